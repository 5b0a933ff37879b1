"""Long pieces that differ in one place from one encoded before: only what lies round that place is merged anew.

A sequence of tokens is the BPE of its text exactly if each two neighbours are that of theirs (sessions/inside.py), so
old and new tokens may be joined at any token that they share. Knows how to merge only what it is given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

REACH = 256
"""Bytes that are merged at least on each side of what differs; four times as many each time after."""

KEPT, PIECES = 1 << 22, 16
"""Bytes of the pieces that are remembered, the latest, and their number. A new piece is compared with all of them."""

Tokens = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids of a string, and the byte after each within it."""


class _Known(NamedTuple):
    """A piece with its tokens: ids, starts and ends int32 [n]."""

    piece: bytes
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class LongPieces:
    """Thread-safe."""

    def __init__(self, merge: Callable[[bytes], Tokens]) -> None:
        """`merge`: the BPE of bytes whose symbols are single bytes, wherever in a piece they stand."""
        self._merge = merge
        self._lock = threading.Lock()
        self._kept: tuple[_Known, ...] = ()

    def encode(self, piece: bytes) -> Tokens:
        """As `merge`, and raises what that raises."""
        alike = [(*_common(known.piece, piece), known) for known in self._kept]
        prefix, suffix, known = max(alike, key=lambda each: each[0] + each[1], default=(0, 0, None))
        if known is None or 2 * (prefix + suffix) < len(piece):
            made = self._merged(piece, 0, piece)
        else:
            made = self._spliced(piece, known, prefix, suffix)
        with self._lock:
            kept, size = [made], len(piece)
            for each in self._kept:
                size += len(each.piece)
                if size <= KEPT and len(kept) < PIECES and each.piece != piece:
                    kept.append(each)
            self._kept = tuple(kept)
        return tuple(made.ids.tolist()), tuple(made.ends.tolist())

    def _merged(self, part: bytes, begin: int, piece: bytes) -> _Known:
        """The tokens of a part that begins at byte `begin` of a piece."""
        ids, ends = (np.array(each, np.int32) for each in self._merge(part))
        return _Known(piece, ids, np.append(0, ends[:-1]).astype(np.int32) + begin, ends + begin)

    def _spliced(self, piece: bytes, known: _Known, prefix: int, suffix: int) -> _Known:
        """The tokens of a piece that shares its first `prefix` and its last `suffix` bytes with a known one."""
        shift, before, after = len(piece) - len(known.piece), REACH, REACH
        old = known._replace(starts=known.starts + shift, ends=known.ends + shift)  # as they lie in the new piece
        while True:
            first = int(known.ends.searchsorted(prefix - before, "right"))
            last = int(old.starts.searchsorted(len(piece) - suffix + after, "left"))
            begin = int(known.starts[first]) if first < len(known.ids) and prefix > before else 0
            end = int(old.starts[last]) if last < len(old.ids) else len(piece)
            new = self._merged(piece[begin:end], begin, piece)
            left = _shared(known, new, begin, prefix) if begin else (0, 0)
            right = _shared(old, new, len(piece) - suffix, end) if end < len(piece) else (len(old.ids), len(new.ids))
            if left is not None and right is not None:
                middle = slice(left[1], right[1])
                columns = zip(known[1:], new[1:], old[1:], strict=True)
                return _Known(piece, *(np.concatenate([a[: left[0]], b[middle], c[right[0] :]]) for a, b, c in columns))
            before *= 1 if left else 4
            after *= 1 if right else 4


def _common(old: bytes, new: bytes) -> tuple[int, int]:
    """Bytes that both begin with, and of the rest those that both end with."""
    size = min(len(old), len(new))
    one, other = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    prefix = _first(one[:size] != other[:size])
    return prefix, _first(one[::-1][: size - prefix] != other[::-1][: size - prefix])


def _first(differs: np.ndarray) -> int:
    return int(differs.argmax()) if differs.any() else len(differs)


def _shared(old: _Known, new: _Known, begin: int, end: int) -> tuple[int, int] | None:
    """The first token of both within bytes [begin, end): its index in each."""
    number = ((new.starts >= begin) & (new.ends <= end)).nonzero()[0]
    at = np.minimum(old.starts.searchsorted(new.starts[number]), len(old.ids) - 1)
    same = (old.starts[at] == new.starts[number]) & (old.ends[at] == new.ends[number])
    found = (same & (old.ids[at] == new.ids[number])).nonzero()[0]
    return (int(at[found[0]]), int(number[found[0]])) if len(found) else None
