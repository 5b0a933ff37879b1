"""All splits of a window of a few kilobytes by regular expressions (program/regex.py): no launch, no array of states.

For splits that only cut ("Isolated"), which is nearly all there are; host/window_split.py does the others, and longer
texts. What a text has in common with them is where its starts are decided: the tail tables of the walk say it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from toktier_jax.host.literals import Span
from toktier_jax.host.window_split import Splitter
from toktier_jax.program.regex import scanner
from toktier_jax.program.split import Found

Tail = Callable[[bytes, int, int], int]


class Pieces(NamedTuple):
    """Pieces of a text, added tokens included. Positions are bytes.

    pieces   their bytes
    edges    int32 [n + 1]  where each begins, and the end
    first    int32 [k]  starts of the pieces of the first split
    fixed    indices of the pieces that are added tokens, with their ids
    decided  the last start of a piece that stays whatever text follows
    removed  bool [n] or None  a split removed the piece
    """

    pieces: list[bytes]
    edges: np.ndarray
    first: np.ndarray
    fixed: list[tuple[int, int]]
    decided: int
    removed: np.ndarray | None = None


class Scanner:
    """The splits of one program over texts of one kind of unit: bytes of ASCII, or symbols of characters."""

    def __init__(self, finders: Sequence[re.Pattern[bytes]], tails: Sequence[tuple[Tail, bytes]]) -> None:
        """`tails`: how each split says what is decided, and the table that its codes are translated by."""
        self._find = [each.findall for each in finders]
        self._tails = tails

    @classmethod
    def of_bytes(cls, patterns: Sequence[Found], splits: Sequence[Splitter]) -> Scanner:
        """For texts of ASCII alone."""
        finders = [
            scanner(root, [np.flatnonzero(mask[:128]).tolist() for mask in masks]) for root, masks, *_ in patterns
        ]
        return cls(finders, [(split.known, split.by_byte) for split in splits])

    @classmethod
    def of_symbols(cls, patterns: Sequence[Found], splits: Sequence[Splitter], classes: np.ndarray) -> Scanner:
        """For texts given by the symbols of their characters; `classes` uint8 [0x110000]: of each code point."""
        _, sample = np.unique(classes, return_index=True)
        symbols = classes[sample]
        finders = [scanner(root, [symbols[mask[sample]].tolist() for mask in masks]) for root, masks, *_ in patterns]
        return cls(finders, [(split.known, split.by_symbol) for split in splits])

    def of(self, data: bytes, symbols: bytes, lead: np.ndarray, spans: Sequence[Span], limit: int) -> Pieces:
        """As `__call__`, of the characters that begin at the bytes `lead` and have these symbols."""
        byte = np.append(lead, len(data)).astype(np.int32)
        places = [(*byte.searchsorted((start, stop)).tolist(), index) for start, stop, index in spans]
        found = self(symbols, places, int(byte.searchsorted(limit)))
        edges = byte[found.edges]
        pieces = [data[start:stop] for start, stop in pairwise(edges.tolist())]
        return Pieces(pieces, edges, byte[found.first], found.fixed, int(byte[found.decided]))

    def __call__(self, text: bytes, spans: Sequence[Span], limit: int) -> Pieces:
        """Pieces of `text`, its added tokens included; `limit`: up to where segments are decided before the splits."""
        size, last = len(text), 0
        stages: list[list[bytes]] = [[] for _ in self._find]
        segments: list[int] = []
        fixed: list[tuple[int, int]] = []
        for start, stop, index in [*spans, (size, size, -1)]:
            if last < start:
                segments.append(last)
                parts = [text[last:start]]
                for find, stage in zip(self._find, stages, strict=True):
                    parts = find(parts[0]) if len(parts) == 1 else [piece for part in parts for piece in find(part)]
                    stage += parts
            if start < stop:
                segments.append(start)
                fixed.append((len(stages[-1]), index))
                for stage in stages:
                    stage.append(text[start:stop])
            last = stop
        before = np.array(segments, np.int32)
        first = edges = before
        for number, (stage, (known, table)) in enumerate(zip(stages, self._tails, strict=True)):
            edges = np.zeros(len(stage) + 1, np.int32)
            np.cumsum(np.fromiter(map(len, stage), np.int32, len(stage)), out=edges[1:])
            starts = edges[:-1]
            floor = int(before[before.searchsorted(limit) - 1])
            at = int(before.searchsorted(limit))
            if at == len(before) or before[at] != limit:
                limit = known(text.translate(table), limit, floor)
            limit = int(starts[starts.searchsorted(limit, "right") - 1])
            before = starts
            if not number:
                first = starts
        return Pieces(stages[-1], edges, first, fixed, limit)
