"""Token healing: how many tokens of a prompt to drop, and which tokens may stand for the dropped bytes. No model.

After Lundberg's guidance and Xu and others (arXiv 2601.23223), by the rules in docs/sampling.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from toktier_jax.errors import InputError
from toktier_jax.sampling.prefill import bucket
from toktier_jax.sampling.vocabulary import Vocabulary


@dataclass(frozen=True)
class Healed:
    """`kept` ids stay as context; the text that follows must begin with `rest`, the bytes of the dropped tokens."""

    kept: tuple[int, ...]
    rest: bytes


def heal(
    vocabulary: Vocabulary, ids: Sequence[int], tail: bytes = b"", tokens: int | Literal["auto"] = 1, fixed: int = 0
) -> Healed:
    """Drops the last `tokens` ids, or what "auto" finds; never a special token, never the whole context.

    `tail` are bytes after the ids that are no token yet: the first bytes of a character; they count as one token.
    The first `fixed` ids are a context that was given, and stay.
    """
    if tokens != "auto" and (not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0):
        raise InputError(f'heal_tokens={tokens!r}: expected a number of tokens or "auto"')
    ids = tuple(ids)
    droppable = 0
    for id in reversed(ids[fixed:]):
        if not vocabulary.strings[id]:  # special, or without bytes: never crossed
            break
        droppable += 1
    bare = droppable == len(ids)
    if bare:
        droppable -= 1  # nothing before that stays: one token has to, as context
    wanted = _auto(vocabulary, ids, droppable, tail) if tokens == "auto" else tokens - (1 if tail else 0)
    count = max(0, min(wanted, droppable))
    if bare and tokens != "auto" and wanted > droppable and not tail:
        count = 0  # nothing would remain: the prompt stays as it is
    rest = b"".join(vocabulary.strings[id] for id in ids[len(ids) - count :]) + tail
    if not tail and not vocabulary.extends(rest):
        return Healed(ids, b"")
    return Healed(ids[: len(ids) - count], rest)


def _auto(vocabulary: Vocabulary, ids: tuple[int, ...], droppable: int, tail: bytes) -> int:
    """Tokens back to the boundary at or before the longest suffix that some token strictly extends."""
    strings = [vocabulary.strings[id] for id in ids[len(ids) - droppable :]]
    data = b"".join(strings) + tail
    for start in range(max(0, len(data) - vocabulary.longest), len(data)):
        if vocabulary.extends(data[start:]):
            begin, boundary = 0, len(tail)
            sizes = [len(string) for string in reversed(strings)]
            while boundary < len(data) - start:
                boundary += sizes[begin]
                begin += 1
            return begin
    return 0


@dataclass(frozen=True, eq=False)
class HealTables:
    """For each row and each number of bytes of its rest already spelled, the tokens that may come: B rows, K offsets.

    ranges  int32 [B, K, 3]  [lo, hi) of the tokens that begin with what remains, (0, V) where nothing remains; the rank
                             of the longest token that is a proper prefix of it, -1 for none (draw.in_ranges)
    barred  int32 [B, K, D]  ids that are a proper prefix of it after which no tokens spell the rest, filled up with -1
    left    int32 [B, K]     bytes that remain
    """

    ranges: np.ndarray
    barred: np.ndarray
    left: np.ndarray


def heal_tables(vocabulary: Vocabulary, rests: Sequence[bytes]) -> HealTables:
    """Tables of a batch; sizes are powers of two, so that prompts of one bucket share an executable.

    Raises InputError where a rest cannot be spelled by any tokens.
    """
    offsets = bucket(max(map(len, rests)) + 1)
    ranges = np.tile(np.array([0, len(vocabulary.order), -1], np.int32), (len(rests), offsets, 1))
    left = np.zeros((len(rests), offsets), np.int32)
    barred: dict[tuple[int, int], list[int]] = {}
    for row, rest in enumerate(rests):
        reach = [True] * (len(rest) + 1)  # whether the rest from here on can be spelled to its end
        for offset in range(len(rest) - 1, -1, -1):
            lo, hi = vocabulary.range(rest[offset:])
            found = vocabulary.prefixes(rest[offset:])
            dead = [id for id in found if not reach[offset + len(vocabulary.strings[id])]]
            ranges[row, offset] = lo, hi, vocabulary.ranks[found[-1]] if found else -1
            left[row, offset] = len(rest) - offset
            reach[offset] = hi > lo or len(dead) < len(found)
            if dead:
                barred[row, offset] = dead
        if not reach[0]:
            vocabulary.check_spelled(rest, "the end of the prompt")
            raise InputError(f"no tokens spell {rest!r}, the end of the prompt")
    width = bucket(max(map(len, barred.values())), 1) if barred else 0
    dead_ids = np.full((len(rests), offsets, width), -1, np.int32)
    for (row, offset), ids in barred.items():
        dead_ids[row, offset, : len(ids)] = ids
    return HealTables(ranges, dead_ids, left)
