"""Added tokens -> plan and tables of one matching pass: a trie of the literals and a filter for where they can begin.

The reference matches twice: tokens with `normalized=False` in the text, then the others, themselves normalized, in what
the normalizers made of each segment between the first. The tokens of a pass are one stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import AddedPlan
from toktier_jax.program.classes import Mask, Probe, probe
from toktier_jax.program.sizes import stepped
from toktier_jax.spec.types import AddedToken
from toktier_jax.types import LSTRIP, RSTRIP, SINGLE_WORD, SPECIAL, AddedTables

"""Flags in `AddedTables.tokens`."""

MAX_PAIRS = 16
"""Up to here comparing with every pair is cheaper than looking the pair up."""


@dataclass(frozen=True, eq=False)
class AddedStage:
    """One pass.

    masks   white space and word characters, as the reference's added tokens see them: bool [0x110000] each; none where
            no token needs them
    tokens  the tokens of the pass, `literals` what is looked for
    """

    plan: AddedPlan
    masks: tuple[Mask, ...]
    tokens: tuple[AddedToken, ...]
    literals: tuple[bytes, ...]


def effective_tokens(tokens: Iterable[AddedToken]) -> list[AddedToken]:
    """The tokens that count: none is empty, a later one of the same content or id replaces the earlier one."""
    by_id: dict[int, AddedToken] = {}
    ids: dict[str, int] = {}
    special = {token.content for token in tokens if token.special}
    for token in tokens:
        if token.content:
            id = ids.setdefault(token.content, token.id)
            by_id[id] = replace(token, id=id, special=token.content in special)
    return list(by_id.values())


def added_stage(
    tokens: Sequence[AddedToken], normalize: Callable[[str], bytes] = str.encode, *, probe: Probe = probe
) -> AddedStage | None:
    """The pass that finds `tokens`; None where there are none.

    `normalize` gives the bytes that a token's content is in the text of this pass. Raises UnsupportedError for what the
    reference does that no sequence of segments can say.
    """
    if not tokens:
        return None
    literals = tuple(normalize(token.content) for token in tokens)
    for token, literal in zip(tokens, literals, strict=True):
        if not literal:
            raise UnsupportedError(f"added token {token.content!r}, of which the normalizers leave nothing")
    if len(set(literals)) < len(literals):
        twice = next(token for token, literal in zip(tokens, literals, strict=True) if literals.count(literal) > 1)
        raise UnsupportedError(f"added token {twice.content!r}, which is the same as another one when normalized")
    lstrip, rstrip, single_word = (any(map(flag, tokens)) for flag in (_lstrip, _rstrip, _single_word))
    masks: tuple[Mask, ...] = ()
    if lstrip or rstrip or single_word:
        space, word = probe("Whitespace.space", "component"), probe("Whitespace.word", "component")
        masks = space, word
        if rstrip:
            _refuse_shared_space(tokens, literals, space)
    pairs = {literal[:2] for literal in literals}
    few = len(pairs) <= MAX_PAIRS and all(len(pair) == 2 for pair in pairs)
    longest = stepped(max(map(len, literals)), 32, 2)
    plan = AddedPlan(longest, stepped(len(pairs), 4) if few else 0, lstrip, rstrip, single_word)
    return AddedStage(plan, masks, tuple(tokens), literals)


def added_tables(stage: AddedStage, members: np.ndarray) -> AddedTables:
    """Tables of a stage for the symbols of a program: symbol s lies in the stage's mask k where `members[s, k]`."""
    characters = np.zeros(256, np.uint8)
    if stage.masks:
        characters[: len(members)] = members.astype(np.uint8) @ np.array([1, 2], np.uint8)
    tokens = np.zeros((3, stepped(len(stage.tokens), 64)), np.int32)
    for column, (token, literal) in enumerate(zip(stage.tokens, stage.literals, strict=True)):
        flags = (
            (LSTRIP, token.lstrip),
            (RSTRIP, token.rstrip),
            (SINGLE_WORD, token.single_word),
            (SPECIAL, token.special),
        )
        tokens[:, column] = token.id, len(literal), sum(bit for bit, present in flags if present)
    rejected = np.zeros(tokens.shape[1], bool)
    return AddedTables(_pairs(stage), double_array(stage.literals), tokens, rejected, characters)


def _lstrip(token: AddedToken) -> bool:
    return token.lstrip


def _rstrip(token: AddedToken) -> bool:
    return token.rstrip


def _single_word(token: AddedToken) -> bool:
    return token.single_word


def _refuse_shared_space(tokens: Sequence[AddedToken], literals: Sequence[bytes], space: Mask) -> None:
    """White space that `rstrip` takes and that begins the next token belongs to both in the reference."""
    for token, literal in zip(tokens, literals, strict=True):
        if space[ord(literal.decode(errors="replace")[0])]:
            raise UnsupportedError(f"added token {token.content!r} begins with white space and another one has rstrip")


def _pairs(stage: AddedStage) -> np.ndarray:
    firsts = sorted({literal[:2] for literal in stage.literals})
    if stage.plan.pairs:
        padded = firsts + firsts[-1:] * (stage.plan.pairs - len(firsts))
        return np.array([list(pair) for pair in padded], np.uint8).T.copy()
    table = np.zeros((256, 256), bool)  # by second byte, then first
    for first in firsts:
        table[first[1] if len(first) == 2 else slice(None), first[0]] = True
    return table.reshape(-1)


def double_array(words: Sequence[bytes]) -> np.ndarray:
    """The trie of distinct, non-empty words as int32 [4, S] (see `AddedTables.trie`); node 0 is the root.

    The child of node s by byte b is t = base[s] + b if parent[t] == s (Aoe, An Efficient Digital Search Algorithm by
    Using a Double-Array Structure, 1989).
    """
    children: list[dict[int, int]] = [{}]
    longest = [-1]
    for number in sorted(range(len(words)), key=lambda index: len(words[index])):  # prefixes before what they begin
        node = 0
        for byte in words[number]:
            if byte not in children[node]:
                children[node][byte] = len(children)
                children.append({})
                longest.append(longest[node])
            node = children[node][byte]
        longest[node] = number
    size = stepped(len(children) + 512, 1024)
    while True:
        placed = _place(children, size)
        if placed is not None:
            break
        size *= 2
    slot, base = placed
    array = np.zeros((4, size), np.int32)
    array[1:3] = -1
    for node, below in enumerate(children):
        here = slot[node]
        array[0, here] = base[node]
        array[2, here] = longest[node]
        array[3, here] = bool(below)
        for child in below.values():
            array[1, slot[child]] = here
    return array


def _place(children: Sequence[dict[int, int]], size: int) -> tuple[list[int], list[int]] | None:
    """Slots of the nodes and bases of their children; None if they do not fit in `size` slots."""
    free = bytearray([1]) * size
    free[0] = 0
    slot, base = [0] * len(children), [0] * len(children)
    tried: dict[tuple[int, ...], int] = {}  # up to here these bytes do not fit: slots are never freed
    for node, below in enumerate(children):  # parents were numbered before their children
        if not below:
            continue
        key = tuple(sorted(below))
        first = free.find(1, tried.get(key, key[0]), size - 256 + key[0])
        while first >= 0 and not all(free[first - key[0] + byte] for byte in key):
            first = free.find(1, first + 1, size - 256 + key[0])
        if first < 0:
            return None
        tried[key] = first
        base[node] = first - key[0]
        for byte, child in below.items():
            slot[child] = base[node] + byte
            free[slot[child]] = 0
    return slot, base
