"""Finds a stored text that a new one shares its beginning with. A hash finds candidates, the texts decide."""

from __future__ import annotations

import itertools
import threading

from toktier_jax.sessions.entry import Entry
from toktier_jax.sessions.locks import Busy, IfFree

LENGTHS = tuple(1 << bits for bits in range(6, 25, 2))
"""Characters of the beginnings that are hashed: 64, 256, … 16 Mi."""

CANDIDATES = 8
"""Entries kept for one beginning, the latest: as many texts are compared at most, whatever many share a prompt."""


class ContentIndex:
    """Entries by the hashes of their texts' beginnings. Thread-safe; a wrong hit costs time, never correctness."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_hash: dict[tuple[int, int], list[Entry]] = {}
        self._keys: dict[Entry, list[tuple[int, int]]] = {}
        self._waiting: dict[Entry, object] = {}  # those not wholly hashed, with a mark of their change
        self._numbers = itertools.count()

    def number(self) -> int:
        """A number that no other text has."""
        return next(self._numbers)

    def add(self, entry: Entry, kept: int = 1 << 62) -> None:
        """Takes in an entry, or one whose text was changed after the first `kept` characters. Nothing is hashed before
        a text is looked for, so that named sessions cost nothing."""
        with self._lock:
            keys = self._keys.setdefault(entry, [])
            while keys and keys[-1][0] > kept:
                self._forget(entry, keys.pop())
            self._waiting[entry] = object()

    def _hash(self) -> None:
        """The beginnings of all entries that wait for it; those that are being changed wait on."""
        with self._lock:
            waiting = list(self._waiting.items())
        for entry, change in waiting:
            try:
                with IfFree(entry.lock):
                    chunks, length = entry.record.text.chunks.copy(), entry.record.text.length
            except Busy:
                continue
            keys = self._keys.get(entry, [])
            known = len(keys)
            fresh = [(size, hash(_beginning(chunks, size))) for size in LENGTHS[known:] if size <= length]
            with self._lock:
                # Unless it was changed, has left, or another thread was faster
                if self._waiting.get(entry) is change and self._keys.get(entry) is keys and len(keys) == known:
                    for key in fresh:
                        keys.append(key)
                        found = self._by_hash.setdefault(key, [])
                        found.append(entry)
                        del found[:-CANDIDATES]
                    self._waiting.pop(entry)

    def remove(self, entry: Entry) -> None:
        with self._lock:
            self._waiting.pop(entry, None)
            for key in self._keys.pop(entry, ()):
                self._forget(entry, key)

    def _forget(self, entry: Entry, key: tuple[int, int]) -> None:
        found = self._by_hash.get(key, [])
        if entry in found:
            found.remove(entry)
        if not found:
            self._by_hash.pop(key, None)

    def longest(self, text: str) -> tuple[Entry, int] | None:
        """Of the latest CANDIDATES entries with the longest hashed beginning of `text`, the one that shares most with
        it, and how many characters. Waits for no entry's lock: one that is being changed is passed over."""
        self._hash()
        for size in reversed(LENGTHS):
            if size > len(text):
                continue
            with self._lock:
                found = list(self._by_hash.get((size, hash(text[:size])), ()))
            best: tuple[Entry, int] | None = None
            for entry in found:
                try:
                    with IfFree(entry.lock):
                        common = entry.record.text.common_prefix(text)
                except Busy:
                    continue
                if common >= size and (best is None or common > best[1]):
                    best = entry, common
            if best is not None:
                return best
        return None


def _beginning(chunks: list[str], size: int) -> str:
    parts: list[str] = []
    for chunk in chunks:
        parts.append(chunk[:size])
        size -= len(parts[-1])
        if not size:
            break
    return "".join(parts)
