"""A prompt's boundary, repaired: what stays as context, what the next tokens have to spell again, its covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.sampling.covers import Covers, cover_rules
from toktier_jax.sampling.healing import Healed, heal
from toktier_jax.sampling.prompt import NO_CONTEXT, Context
from toktier_jax.sampling.request import Request
from toktier_jax.sampling.tree import Tree, plant
from toktier_jax.sampling.vocabulary import vocabulary_of


@dataclass(frozen=True, eq=False)
class Boundary:
    """One row of a batch on its way.

    tree      what is forwarded before the first sampled token
    rest      for "heal": bytes that the next tokens have to spell
    covers    for "exact"
    kept, cut, dropped, logprob   as in BoundaryReport; of "exact" they are known once a leaf is drawn
    """

    context: Context
    tree: Tree
    rest: bytes = b""
    covers: Covers | None = None
    kept: tuple[int, ...] = ()
    cut: bytes = b""
    dropped: float = 0.0
    logprob: float = 0.0


def repair(request: Request, context: Context, limit: int) -> Boundary:
    """The boundary of a prompt. Raises InputError for one without covers or context, of more than `limit` ids, or of
    which `limit` tokens or more would be forwarded."""
    if len(context.ids) > limit:  # before its covers are looked for, which costs in proportion to it
        raise _too_long(len(context.ids), limit)
    found = _exact(request, context) if context.mode == "exact" and context.text else _healed(request, context)
    if not found.tree.trunk:
        raise InputError(NO_CONTEXT)
    size = len(found.tree.trunk) + int(found.tree.depths.max())
    if size >= limit:
        raise _too_long(size, limit)
    return found


def _too_long(size: int, limit: int) -> InputError:
    return InputError(f"the prompt has {size} tokens and the model's context {limit}: shorten it, or keep only its end")


def _exact(request: Request, context: Context) -> Boundary:
    try:
        covers = cover_rules(request.tok).covers(context.ids, context.text)
    except UnsupportedError as error:
        raise UnsupportedError(f'{error}; use boundary="heal"') from None
    if not covers.leaves[0].size:
        raise InputError("no token sequence of this vocabulary covers the end of the prompt")
    return Boundary(context, plant(covers.trunk, covers.nodes), covers=covers, cut=covers.rest)


def _healed(request: Request, context: Context) -> Boundary:
    vocabulary: Any = vocabulary_of(request.tok)
    healed = Healed(context.ids, b"")
    if context.mode == "heal":
        healed = heal(vocabulary, context.ids, context.tail, request.heal_tokens, context.fixed)
    elif context.tail:
        healed = Healed((*context.ids, *vocabulary.spelling(context.tail)), b"")
    return Boundary(context, plant(healed.kept, []), healed.rest, None, healed.kept, healed.rest)
