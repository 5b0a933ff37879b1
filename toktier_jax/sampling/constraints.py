"""Constraints on what is generated: the Protocol, and how one that knows only tokens sees a token that straddles.

A constraint sees only bytes past the prompt. A token that begins inside the prompt is shown to it as tokens that spell
the rest: as one token where there is one, else as several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import numpy as np

from toktier_jax.errors import InputError
from toktier_jax.sampling.vocabulary import Vocabulary


class Constraint(Protocol):
    """Which tokens may come next; bytes with several spellings must be treated alike.

    A constraint that is a pytree (a registered dataclass, say) is pure: it runs inside the jitted loop, and its state
    is a pytree of arrays of fixed shapes. Any other runs on the host, step by step, with numpy arrays.
    """

    def init(self) -> Any:
        """The state of all rows at the prompt's end."""
        ...

    def mask(self, state: Any) -> Any:
        """bool [B, V]: the tokens that each row may go on with; V is the model's vocab_size."""
        ...

    def advance(self, state: Any, token: Any) -> Any:
        """The state after one token a row, int32 [B]; a row whose token is -1 stays as it is."""
        ...


def is_pure(constraint: Constraint) -> bool:
    """Whether a constraint is a pytree of its own and can run in the jitted loop."""
    return not jax.tree_util.all_leaves([constraint])


def checked_mask(constraint: Constraint, state: Any, batch: int, vocab_size: int) -> np.ndarray:
    """The mask on the host; raises InputError for another shape."""
    mask = np.asarray(constraint.mask(state))
    if mask.shape != (batch, vocab_size) or mask.dtype != bool:
        raise InputError(f"constraint: mask is {mask.dtype} {list(mask.shape)}; expected bool [{batch}, {vocab_size}]")
    return mask


def allowed(
    constraint: Constraint, state: Any, mask: np.ndarray, vocabulary: Vocabulary, row: int, rests: Sequence[bytes]
) -> np.ndarray:
    """bool [n]: whether row `row` may go on with each of these byte strings. The empty one always may.

    `mask` is that of `state`.
    """
    known: dict[bytes, bool] = {b"": True}

    def one(rest: bytes) -> bool:
        if rest not in known:
            ids = vocabulary.by_bytes.get(rest)
            known[rest] = bool(mask[row, list(ids)].any()) if ids else _spelled(rest)
        return known[rest]

    def _spelled(rest: bytes) -> bool:
        at, seen = state, mask
        for id in vocabulary.spelling(rest):
            if not seen[row, id]:
                return False
            at = constraint.advance(at, one_token(len(mask), row, id))
            seen = np.asarray(constraint.mask(at))
        return True

    return np.array([one(rest) for rest in rests], bool)


def fed(constraint: Constraint, state: Any, vocabulary: Vocabulary, rests: Sequence[bytes]) -> Any:
    """The state after each row's bytes."""
    for row, rest in enumerate(rests):
        for id in vocabulary.by_bytes.get(rest, ())[:1] or vocabulary.spelling(rest):
            state = constraint.advance(state, one_token(len(rests), row, id))
    return state


def one_token(batch: int, row: int, id: int) -> np.ndarray:
    """int32 [B] of -1, with one row's token."""
    tokens = np.full(batch, -1, np.int32)
    tokens[row] = id
    return tokens


def healing_mask(
    constraint: Constraint, state: Any, vocabulary: Vocabulary, size: int, rests: Sequence[bytes]
) -> np.ndarray:
    """bool [B, size]: what the constraint allows of each row's candidates, where `rests` have to be spelled first."""
    base = checked_mask(constraint, state, len(rests), size)
    mask = base.copy()
    for row, rest in enumerate(rests):
        if rest:
            lo, hi = vocabulary.range(rest)
            tokens = vocabulary.order[lo:hi]
            pasts = [vocabulary.strings[token][len(rest) :] for token in tokens.tolist()]
            mask[row] = False
            mask[row, vocabulary.prefixes(rest)] = True
            mask[row, tokens] = allowed(constraint, state, base, vocabulary, row, pasts)
    return mask


def shown(
    constraint: Constraint, state: Any, vocabulary: Vocabulary, tokens: np.ndarray, rests: Sequence[bytes]
) -> Any:
    """The state after one token a row, -1 for none, of which only the bytes past `rests` are shown."""
    straddle = [bool(rest) and token >= 0 for token, rest in zip(tokens.tolist(), rests, strict=True)]
    pasts = [
        vocabulary.strings[token][len(rest) :] if straddles else b""
        for token, rest, straddles in zip(tokens.tolist(), rests, straddle, strict=True)
    ]
    state = fed(constraint, state, vocabulary, pasts)
    whole = np.where(straddle, -1, tokens).astype(np.int32)
    return constraint.advance(state, whole) if (whole >= 0).any() else state
