"""Finds added tokens in a small text on the host, and where text that may yet become one begins."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from toktier_jax.types import AddedTables

Span = tuple[int, int, int]
"""Start, end and id of an added token."""


class AddedFinder:
    """The passes of one program, none of whose tokens look at their neighbours."""

    def __init__(self, passes: Sequence[AddedTables]) -> None:
        self._passes = [_Literals(tables) for tables in passes]

    def __call__(self, data: bytes) -> tuple[list[Span], int]:
        """The added tokens in order, and up to where nothing that follows makes another."""
        spans: list[Span] = []
        frontier = len(data)
        for literals in self._passes:
            gaps: list[Span] = []
            last = 0
            for start, stop, _ in [*spans, (len(data), len(data), -1)]:
                if start > last:
                    more, edge = literals.find(data, last, start)
                    gaps += more
                    if start == len(data):
                        frontier = min(frontier, edge)
                last = stop
            spans = sorted(spans + gaps)
        for start, stop, _ in spans:
            if start < frontier < stop:
                frontier = start
        return spans, frontier


class _Literals:
    """Finds the added tokens of one pass: leftmost, of those the longest."""

    def __init__(self, tables: AddedTables) -> None:
        tokens = np.asarray(tables.tokens)
        words = _words(np.asarray(tables.trie))
        self._ids = {word: int(tokens[0, number]) for word, number in words.items()}
        ordered = sorted(words, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, ordered)))
        self._longest = len(ordered[0])
        self._begins = re.compile(b"[%b]" % b"".join(b"\\x%02x" % byte for byte in sorted({word[0] for word in words})))
        self._prefixes = frozenset(word[:size] for word in words for size in range(1, len(word)))

    def find(self, data: bytes, start: int, stop: int) -> tuple[list[Span], int]:
        """Those in data[start:stop], and where its longest end begins that a longer text could make one of."""
        spans = [
            (match.start(), match.end(), self._ids[match.group()])
            for match in self._pattern.finditer(data, start, stop)
        ]
        for match in self._begins.finditer(data, max(stop - self._longest + 1, start), stop):
            if data[match.start() : stop] in self._prefixes:
                return spans, match.start()
        return spans, stop


def _words(trie: np.ndarray) -> dict[bytes, int]:
    """The words of a double array (program/added.py), each with its number."""
    base, parent, longest = trie[0], trie[1], trie[2]
    spelled: dict[int, bytes] = {0: b""}
    children: dict[int, list[int]] = {}
    for slot in np.flatnonzero(parent >= 0).tolist():
        children.setdefault(int(parent[slot]), []).append(slot)
    order = [0]
    words: dict[bytes, int] = {}
    for node in order:
        for slot in children.get(node, ()):
            spelled[slot] = spelled[node] + bytes([slot - int(base[node])])
            if longest[slot] >= 0 and longest[slot] != longest[node]:
                words[spelled[slot]] = int(longest[slot])
            order.append(slot)
    return words
