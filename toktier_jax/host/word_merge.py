"""Pieces to ids on the host, one at a time, from a program's own tables: for windows of a few hundred pieces.

A piece is looked up whole, in what was encoded before and in the vocabulary; what is no token is merged by the rules,
lowest rank first. Knows no text and no pieces beside the one it is given.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.host.heap_merge import LONG, NO_RULE, merge_long
from toktier_jax.host.long_pieces import LongPieces, Tokens
from toktier_jax.host.refusals import beyond_program
from toktier_jax.plan import BPEPlan
from toktier_jax.types import CASCADES, FIRST_CODE, SELF, BPETables, Lexicon

KEPT = 1 << 17
"""Pieces that are remembered; then the memory begins anew."""

HOT = 1 << 15
"""Entries of the dictionaries that are asked first."""

LONG_PIECE = 1 << 11
"""Bytes of a piece from which on it is compared with those encoded before."""


class _Hot(dict[Any, int]):
    """What was asked lately of a large dictionary: it stays in the processor's caches. `default` where it has none."""

    def __init__(self, source: dict[Any, int], default: int) -> None:
        self._source, self._default = source, default

    def __missing__(self, key: Any) -> int:
        found = self._source.get(key, self._default)
        if len(self) >= HOT:
            self.clear()
        self[key] = found
        return found


class _Kept(dict[bytes, Tokens]):
    """The tokens of pieces that were asked for before."""

    def __init__(self, encode: Callable[[bytes], Tokens]) -> None:
        self._encode = encode

    def __missing__(self, piece: bytes) -> Tokens:
        found = self._encode(piece)
        if len(piece) <= 256:
            if len(self) >= KEPT:
                self.clear()
            self[piece] = found
        return found


class WordMerger:
    """BPE of single pieces. Thread-safe; `load` comes first."""

    def __init__(self, plan: BPEPlan, tables: BPETables, longest: int | None = None) -> None:
        """`longest`: bytes between two cuts from which on `find` refuses: a step in Python for each takes seconds."""
        self._longest = longest
        self._plan = plan
        self._tables = tables
        self._lock = threading.Lock()
        self._ready = False
        self.known: dict[bytes, int] = {}
        """Pieces that are one token."""
        self._parts = _Kept(self._encode)
        self._long = LongPieces(self._merge_piece)

    def load(self) -> None:
        """Makes the dictionaries, once: a tenth of a second."""
        if self._ready:
            return
        with self._lock:
            if self._ready:
                return
            merges = self._tables.merges
            rows = np.asarray(merges.rows)
            rows = rows[rows[:, 0] >= 0].astype(np.int64)
            made = rows[:, 3] & ~CASCADES
            keys = (rows[:, 0] << 32 | rows[:, 1]).tolist()
            rules = dict(zip(keys, (rows[:, 2] << 32 | made).tolist(), strict=True))
            self._rules = _Hot(rules, NO_RULE)
            self._strings = _strings(self._tables.lexicon)
            self._base = np.asarray(self._tables.base).tolist()
            plain = self._plan.unit == "byte" and not self._plan.places and min(self._base[0]) >= 0
            self._plain: list[int] = self._base[0] if plain else []
            self._unknown = np.asarray(self._tables.unknown).tolist()
            pairs = np.asarray(self._tables.cuts.pairs)
            self._crossed = np.unpackbits(pairs.view(np.uint8), bitorder="little").astype(bool)
            whole = 3 if self._plan.places else 0
            self.known = {
                string: index & ~int(SELF)
                for (string, place), index in self._strings.items()
                if place == whole and (index & int(SELF) or self._plan.wholes)
            }
            self._words = _Hot(self.known, -1)
            self._ready = True

    def look_up(self, pieces: list[bytes]) -> list[int]:
        """The ids of pieces that are one token, -1 for the others."""
        return list(map(self._words.__getitem__, pieces))

    def find(self, pieces: list[bytes]) -> list[Tokens]:
        """The tokens of whole pieces. Raises UnsupportedError where one holds what only the reference can encode."""
        return list(map(self._parts.__getitem__, pieces))

    def _encode(self, piece: bytes) -> Tokens:
        index = self._words[piece]
        if index >= 0:
            return (index,), (len(piece),)
        return self._long.encode(piece) if self._plain and len(piece) >= LONG_PIECE else self._merge_piece(piece)

    def _merge_piece(self, piece: bytes) -> Tokens:
        """Merges between cuts, where no token can lie across."""
        bounds = [0, *self._cuts(piece), len(piece)]
        ids: list[int] = []
        ends: list[int] = []
        for start, stop in itertools.pairwise(bounds):
            place = (start == 0) + 2 * (stop == len(piece)) if self._plan.places else 0
            part = piece[start:stop]
            index = self._strings.get((part, place))
            if index is not None and index & int(SELF):
                ids.append(index & ~int(SELF))
                ends.append(stop)
                continue
            symbols = self._symbols(part, place)
            if symbols is None:
                raise beyond_program()
            if self._longest is not None and len(part) > self._longest:
                raise UnsupportedError(f"a piece of the text has more than {self._longest} bytes to merge")
            merged = self._merge(*symbols) if len(symbols[0]) < LONG else merge_long(*symbols, self._rules)
            ids += merged[0]
            ends += [start + end for end in merged[1]]
        return tuple(ids), tuple(ends)

    def _cuts(self, piece: bytes) -> list[int]:
        if len(piece) < 16:
            return []
        data = np.frombuffer(piece, np.uint8).astype(np.int64)
        before, after = data[:-1], data[1:]
        lead = (after & 0xC0 != 0x80) & (after & 0xF0 != 0xE0)  # six bytes decide between characters of three
        return (np.flatnonzero(lead & ~self._crossed[before | after << 8]) + 1).tolist()

    def _symbols(self, part: bytes, place: int) -> tuple[list[int], list[int]] | None:
        """Ids of the symbols before merging, and the byte after each; None where the host cannot say."""
        if self._plain:
            return [self._plain[byte] for byte in part], list(range(1, len(part) + 1))
        ids: list[int] = []
        ends: list[int] = []
        fused = False
        at = 0
        unknown = self._plan.unknown
        while at < len(part):
            width = 1 if self._plan.unit == "byte" else _width(part[at])
            stop = at + width
            where = (place & 1 if at == 0 else 0) | (place & 2 if stop == len(part) else 0)
            if self._plan.unit == "byte":
                index = self._base[where][part[at]]
            else:
                index = self._strings.get((part[at:stop], where), -1)
                index = index & ~int(SELF) if index >= 0 else -1
            if index >= 0:
                ids.append(index)
                ends.append(stop)
                fused = False
            elif unknown == "bytes":
                ids += [self._unknown[byte] for byte in part[at:stop]]
                ends += range(at + 1, stop + 1)
            elif unknown in ("token", "fuse"):
                if unknown == "fuse" and fused:
                    ends[-1] = stop
                else:
                    ids.append(self._unknown[256])
                    ends.append(stop)
                fused = True
            else:
                return None
            at = stop
        return ids, ends

    def _merge(self, ids: list[int], ends: list[int]) -> tuple[list[int], list[int]]:
        """The definition: the lowest rank first, of equal ones the leftmost."""
        rules = self._rules
        ranks = [rules[left << 32 | right] for left, right in itertools.pairwise(ids)]
        while ranks:
            best = min(ranks)
            if best == NO_RULE:
                break
            at = ranks.index(best)
            ids[at] = new = best & 0xFFFFFFFF
            ends[at] = ends[at + 1]
            del ids[at + 1], ends[at + 1], ranks[at]
            if at:
                ranks[at - 1] = rules[ids[at - 1] << 32 | new]
            if at < len(ranks):
                ranks[at] = rules[new << 32 | ids[at + 1]]
        return ids, ends


def _strings(lexicon: Lexicon) -> dict[tuple[bytes, int], int]:
    """Every string of a lexicon, with its place: its id, with SELF where it has the flag."""
    found: dict[tuple[bytes, int], int] = {}
    for table, width in ((np.asarray(lexicon.rows), 4), (np.asarray(lexicon.strings), None)):
        words = table.shape[1] - 2 if width is None else width
        marks, ids = table[:, words], table[:, words + 1]
        used = np.flatnonzero(marks >> 2)
        data = np.ascontiguousarray(table[used, :words]).astype("<u4").tobytes()
        sizes, places = (marks[used] >> 2).tolist(), (marks[used] & 3).tolist()
        step = 4 * words
        for row, (size, place, index) in enumerate(zip(sizes, places, ids[used].tolist(), strict=True)):
            found[data[row * step : row * step + size], place] = index
    return found


def _width(lead: int) -> int:
    if lead < 0xC0 or lead >= FIRST_CODE:
        return 1
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
