"""Tokens of a long text in blocks that are never changed: a copy shares them all, a change replaces a few.

13 bytes a token: id, first and last byte relative to the block, and a flag byte.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, NamedTuple

import numpy as np

BLOCK = 1024
"""Tokens of a block; a block that changes may grow to twice as many before it is divided."""

ANCHOR, INNER = 1, 2
"""Flags of a token: an anchor is where it begins; a window may begin there inside a piece."""


class Tokens(NamedTuple):
    """n tokens: ids int32, starts and ends int64 (bytes of the text) or int32 (bytes of a block), flags uint8."""

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    flags: np.ndarray

    def part(self, start: int, stop: int) -> Tokens:
        return Tokens(*(each[start:stop] for each in self))


class TokenBlocks:
    """blocks  positions relative to `bases`; firsts: the index of each block's first token; bases: bytes of the text.

    dirty: blocks before this one are as they were when someone last set it high.
    """

    __slots__ = ("bases", "blocks", "count", "dirty", "firsts")

    def __init__(self) -> None:
        self.blocks: list[Tokens] = []
        self.firsts: list[int] = []
        self.bases: list[int] = []
        self.count = 0
        self.dirty = 0

    def copy(self) -> TokenBlocks:
        new = TokenBlocks.__new__(TokenBlocks)
        new.blocks, new.firsts, new.bases = self.blocks.copy(), self.firsts.copy(), self.bases.copy()
        new.count, new.dirty = self.count, self.dirty
        return new

    def tail(self, token: int) -> tuple[Any, ...]:
        """What a splice at `token` can change, for `restore`. Costs what such a splice does."""
        first = max(bisect_right(self.firsts, token) - 1, 0)
        return first, (self.blocks[first:], self.firsts[first:], self.bases[first:]), (self.count, self.dirty)

    def restore(self, tail: tuple[Any, ...]) -> None:
        """Makes the tokens what they were when `tail` gave this, wherever a splice was interrupted."""
        first, (self.blocks[first:], self.firsts[first:], self.bases[first:]), numbers = tail
        self.count, self.dirty = numbers

    def get(self, start: int, stop: int) -> Tokens:
        """Tokens [start, stop) with positions in the text. Costs in proportion to them and a block."""
        parts: list[Tokens] = []
        if start < stop:
            number = bisect_right(self.firsts, start) - 1
            at = start
            while at < stop:
                first, base, block = self.firsts[number], np.int64(self.bases[number]), self.blocks[number]
                part = block.part(at - first, stop - first)
                parts.append(Tokens(part.ids, part.starts + base, part.ends + base, part.flags))
                at = first + len(block.ids)
                number += 1
        if len(parts) == 1:
            return parts[0]
        if not parts:
            none = np.zeros(0, np.int64)
            return Tokens(none.astype(np.int32), none, none, none.astype(np.uint8))
        return Tokens(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def ids_between(self, start: int, stop: int) -> np.ndarray:
        """Ids of tokens [start, stop), int32."""
        if start >= stop:
            return np.zeros(0, np.int32)
        number = bisect_right(self.firsts, start) - 1
        first = self.firsts[number]
        found = self.blocks[number].ids[start - first : stop - first]
        return found if len(found) == stop - start else self.get(start, stop).ids

    def ids(self, leading: tuple[int, ...] = ()) -> np.ndarray:
        """All ids after `leading`: a new int32 array."""
        return np.concatenate([np.array(leading, np.int32), *(block.ids for block in self.blocks)])

    def at_byte(self, byte: int) -> int:
        """The first token that begins at or after `byte`."""
        number = bisect_left(self.bases, byte)
        if number:
            block = self.blocks[number - 1]
            within = int(np.searchsorted(block.starts, byte - self.bases[number - 1], side="left"))
            if within < len(block.ids):
                return self.firsts[number - 1] + within
        return self.firsts[number] if number < len(self.blocks) else self.count

    def flagged_before(self, byte: int, flag: int) -> int:
        """The last token with `flag` that begins at or before `byte`; -1 if there is none."""
        number = bisect_right(self.bases, byte) - 1
        while number >= 0:
            block, base = self.blocks[number], self.bases[number]
            upto = int(np.searchsorted(block.starts, byte - base, side="right"))
            found = np.flatnonzero(block.flags[:upto] & flag)
            if len(found):
                return self.firsts[number] + int(found[-1])
            number -= 1
        return -1

    def splice(self, start: int, stop: int, new: Tokens, shift: int) -> None:
        """Replaces tokens [start, stop) by `new`, whose positions are in the new text, and moves those after by bytes.

        Costs in proportion to `new`, two blocks, and the number of blocks after.
        """
        first = max(bisect_right(self.firsts, start) - 1, 0)
        after = len(self.blocks)
        parts: list[Tokens] = []
        index = base = 0
        if self.blocks:
            index, base = self.firsts[first], self.bases[first]
            if start > index:
                parts.append(self.blocks[first].part(0, start - index))
        if not parts and len(new.starts):
            base = int(new.starts[0])
        if len(new.ids):
            parts.append(_moved(new, -base))
        if stop < self.count:
            last = bisect_right(self.firsts, stop) - 1
            after = last + 1
            tail = self.blocks[last].part(stop - self.firsts[last], len(self.blocks[last].ids))
            if not parts:
                base = self.bases[last] + shift + int(tail.starts[0])
            parts.append(_moved(tail, self.bases[last] + shift - base))
        self.dirty = min(self.dirty, first)
        change = len(new.ids) - (stop - start)
        blocks, firsts, bases = _divided(parts, index, base)
        firsts += [each + change for each in self.firsts[after:]] if change else self.firsts[after:]
        bases += [each + shift for each in self.bases[after:]] if shift else self.bases[after:]
        self.blocks[first:] = blocks + self.blocks[after:]
        self.firsts[first:], self.bases[first:] = firsts, bases
        self.count += change


def _moved(tokens: Tokens, by: int) -> Tokens:
    return Tokens(tokens.ids, tokens.starts + np.int64(by), tokens.ends + np.int64(by), tokens.flags)


def _divided(parts: list[Tokens], index: int, base: int) -> tuple[list[Tokens], list[int], list[int]]:
    """Consecutive tokens, the first with index `index`, positions relative to `base`, as blocks."""
    if not parts:
        return [], [], []
    ids = np.concatenate([part.ids for part in parts], dtype=np.int32)
    flags = np.concatenate([part.flags for part in parts])
    count = len(ids)
    if count <= 2 * BLOCK:
        starts, ends = (np.concatenate([part[at] for part in parts], dtype=np.int32, casting="unsafe") for at in (1, 2))
        return [Tokens(ids, starts, ends, flags)], [index], [base]
    starts, ends = (np.concatenate([part[at] for part in parts]) for at in (1, 2))
    size = -(-count // -(-count // BLOCK))
    blocks, firsts, bases = [], [], []
    for at in range(0, count, size):
        part = Tokens(*(each[at : at + size] for each in (ids, starts, ends, flags)))
        begin = part.starts[0]
        starts_, ends_ = ((each - begin).astype(np.int32) for each in (part.starts, part.ends))
        blocks.append(Tokens(part.ids.copy(), starts_, ends_, part.flags.copy()))
        firsts.append(index + at)
        bases.append(base + int(begin))
    return blocks, firsts, bases
