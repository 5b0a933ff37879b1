"""Encodes small windows of a text by a program's tables without the big pipeline: the engine of token sessions.

Added tokens and the quick check are looked for on the host, splits are walked in one lane (ops/one_lane.py), pieces
are looked up one by one (host/word_merge.py). A window says besides its tokens where work can be resumed. What this
path cannot do it refuses by name before it is made (`refusal`), or for one window by raising UnsupportedError.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.host.window_split import Cut, Splitter
from toktier_jax.host.word_merge import WordMerger
from toktier_jax.plan import AddedPlan, BPEPlan, QuickCheckPlan, SplitPlan
from toktier_jax.types import CONT, AddedTables, EncodeProgram

BLOCK = 1 << 17
"""Bytes encoded at a time. A longer text is cut where starts are decided."""


class HostWindow(NamedTuple):
    """Tokens of a window, as if the text ended with it. Positions are bytes of the window.

    ids, starts, ends  int32 [n]
    anchors            int32 [k]  where the first split begins pieces, outside added tokens: work may be resumed there
    decided            up to here nothing changes whatever text follows; an anchor, 0 if there is no other
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    anchors: np.ndarray
    decided: int


class QuickCheckFailed(Exception):
    """The window is not in the normal form: it has to be normalized first."""


def refusal(program: EncodeProgram) -> str | None:
    """Why windows of this program cannot be encoded here, None if they can."""
    plan = program.plan
    if not isinstance(plan.model, BPEPlan):
        return "the model is no BPE"
    split = False
    for step in plan.steps:
        match step:
            case AddedPlan():
                if step.lstrip or step.rstrip or step.single_word:
                    return "added tokens look at their neighbours"
                if split:
                    return "added tokens after a split"
            case SplitPlan():
                split = True
            case QuickCheckPlan(form):
                if not form or split:
                    return "normalization beyond a Unicode form"
            case _:
                return f"the text is rewritten ({type(step).__name__})"
    return None if split else "the text is one piece"


class WindowEncoder:
    """Windows of one program, which `refusal` does not refuse. Thread-safe."""

    def __init__(self, program: EncodeProgram, contextual: np.ndarray | None) -> None:
        """`program` has numpy tables; `contextual` bool [0x110000]: the quick check's form looks at what is before."""
        plan, tables = program.plan, program.tables
        assert isinstance(plan.model, BPEPlan)
        steps = list(zip(plan.steps, tables.steps, strict=True))
        flags = [part for step, part in steps if isinstance(step, QuickCheckPlan)]
        self._added = [_Literals(part) for step, part in steps if isinstance(step, AddedPlan)]
        self._suspects = np.asarray(flags[0]) if flags else None
        self._contextual = contextual if flags else None
        self._pages = None if tables.pages is None else np.asarray(tables.pages, np.int64)
        self._table = None if tables.table is None else np.asarray(tables.table).reshape(-1)
        plain = np.full(256, CONT, np.uint8)
        if self._pages is not None and self._table is not None:
            plain[:128] = self._table[self._pages[0] << 8 :][:128]
        self._splits = [Splitter(step, part, plain) for step, part in steps if isinstance(step, SplitPlan)]
        self.merger = WordMerger(plan.model, tables.model)

    def encode(self, data: bytes, *, checked: bool = False) -> HostWindow:
        """Tokens of valid UTF-8 text of any length.

        Raises QuickCheckFailed unless `checked`; UnsupportedError where only the reference can encode a piece.
        """
        self.merger.load()
        parts: list[HostWindow] = []
        begin, size = 0, BLOCK
        while True:
            end = min(begin + size, len(data))
            while end < len(data) and data[end] & 0xC0 == 0x80:
                end -= 1
            part = self._encode(data[begin:end], checked)
            if end == len(data):
                parts.append(moved(part, begin))
                return joined(parts)
            if not part.decided:
                size *= 2
                continue
            size = BLOCK
            parts.append(moved(cut(part, part.decided), begin))
            begin += part.decided

    def _encode(self, data: bytes, checked: bool) -> HostWindow:
        size = len(data)
        if not size:
            none = np.zeros(0, np.int32)
            return HostWindow(none, none, none, none, 0)
        spans, decided = self._find_added(data)
        symbols, boundary = (None, None) if data.isascii() else self._classify(data, spans, checked)
        if self._contextual is not None:
            decided = min(decided, _last_boundary(data, boundary))
        state = _open(size, spans)
        anchors = state.starts
        for number, split in enumerate(self._splits):
            state, decided = split(data, symbols, state, decided)
            if not number:
                anchors = state.starts
        first = np.flatnonzero(anchors).astype(np.int32)
        if boundary is not None:
            first = first[boundary[first]]
            decided = int(first[max(np.searchsorted(first, decided, side="right") - 1, 0)])
        return self._tokens(data, state, spans, first, decided)

    def _tokens(
        self, data: bytes, state: Cut, spans: list[tuple[int, int, int]], anchors: np.ndarray, decided: int
    ) -> HostWindow:
        edges = np.append(np.flatnonzero(state.starts), len(data)).astype(np.int32)
        bounds = edges.tolist()
        found = self.merger.look_up([data[start:stop] for start, stop in pairwise(bounds)])
        for start, _, index in spans:
            found[bisect_left(bounds, start)] = index
        ids, starts, ends = np.array(found, np.int32), edges[:-1], edges[1:]
        keep = np.ones(len(ids), bool)
        if state.removed is not None:
            keep = ~state.removed[starts]
        if -1 in found:
            ids, starts, ends = self._merged(data, ids, starts, ends, np.flatnonzero((ids < 0) & keep).tolist(), keep)
        elif state.removed is not None:
            ids, starts, ends = ids[keep], starts[keep], ends[keep]
        return HostWindow(ids, starts, ends, anchors, decided)

    def _merged(
        self, data: bytes, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray, missed: list[int], keep: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens of all kept pieces, where those of some (`missed`) have to be made."""
        counts = keep.astype(np.int64)
        made: list[int] = []
        stops: list[int] = []
        for number in missed:
            begin = int(starts[number])
            tokens = self.merger.find(data[begin : ends[number]])
            if tokens is None:
                raise UnsupportedError("the text holds characters that only the reference can handle")
            counts[number] = len(tokens[0])
            made += tokens[0]
            stops += [begin + stop for stop in tokens[1]]
        of_missed = np.zeros(len(counts), bool)
        of_missed[missed] = True
        ids, ends, places = (np.repeat(each, counts) for each in (ids, ends, of_missed))
        ids[places], ends[places] = made, stops
        if keep.all():
            return ids, np.concatenate([starts[:1], ends[:-1]]), ends
        begins = np.repeat(starts, counts)
        follows = np.flatnonzero(begins[1:] == begins[:-1]) + 1
        begins[follows] = ends[follows - 1]
        return ids, begins, ends

    def _classify(
        self, data: bytes, spans: list[tuple[int, int, int]], checked: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Symbols of text beyond ASCII, uint8 [n], and where the normal form leaves alone what is before, bool [n]
        (None: everywhere)."""
        raw = np.frombuffer(data, np.uint8)
        symbols = np.full(len(data), CONT, np.uint8)
        if self._pages is None or self._table is None:
            return symbols, None
        codes = np.frombuffer(data.decode().encode("utf-32-le"), np.uint32)
        lead = np.flatnonzero((raw & 0xC0) != 0x80)
        classes = self._table[self._pages[codes >> 8] << 8 | (codes & 255)]
        symbols[lead] = classes
        if self._suspects is None or self._contextual is None:
            return symbols, None
        suspect = self._suspects[classes]
        if not suspect.any():
            return symbols, None
        boundary = np.ones(len(data) + 1, bool)
        boundary[lead] = ~self._contextual[codes]
        for start, stop, _ in spans:
            suspect[(lead >= start) & (lead < stop)] = False
            boundary[start : stop + 1] = True
        if suspect.any() and not checked:
            raise QuickCheckFailed
        boundary[0] = True
        return symbols, boundary

    def _find_added(self, data: bytes) -> tuple[list[tuple[int, int, int]], int]:
        """Added tokens as (start, stop, id), in order, and where text that may yet become one begins."""
        spans: list[tuple[int, int, int]] = []
        frontier = len(data)
        for literals in self._added:
            gaps: list[tuple[int, int, int]] = []
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
        self._prefixes = frozenset(word[:size] for word in words for size in range(1, len(word)))

    def find(self, data: bytes, start: int, stop: int) -> tuple[list[tuple[int, int, int]], int]:
        """Those in data[start:stop], and where its longest end begins that a longer text could make one of."""
        spans = [
            (match.start(), match.end(), self._ids[match.group()])
            for match in self._pattern.finditer(data, start, stop)
        ]
        for begin in range(max(stop - self._longest + 1, start), stop):
            if data[begin:stop] in self._prefixes:
                return spans, begin
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


def _open(size: int, spans: list[tuple[int, int, int]]) -> Cut:
    """A window before its first split: one open segment between the added tokens."""
    starts = np.zeros(size, bool)
    starts[0] = True
    if not spans:
        return Cut(starts, None, None)
    frozen = np.zeros(size, bool)
    for start, stop, _ in spans:
        frozen[start:stop] = True
        starts[start] = True
        if stop < size:
            starts[stop] = True
    return Cut(starts, frozen, None)


def _last_boundary(data: bytes, boundary: np.ndarray | None) -> int:
    """The start of the last character that nothing before it takes part in: what follows may still change that one."""
    at = len(data) - 1
    while at > 0 and (data[at] & 0xC0 == 0x80 or (boundary is not None and not boundary[at])):
        at -= 1
    return at


def cut(part: HostWindow, stop: int) -> HostWindow:
    """The part of a window up to `stop`, where it is decided."""
    count = int(np.searchsorted(part.ends, stop, side="right"))
    anchors = part.anchors[part.anchors < stop]
    return HostWindow(part.ids[:count], part.starts[:count], part.ends[:count], anchors, stop)


def moved(part: HostWindow, by: int) -> HostWindow:
    """A window that begins at byte `by` of another."""
    if not by:
        return part
    step = np.int32(by)
    return HostWindow(part.ids, part.starts + step, part.ends + step, part.anchors + step, by + part.decided)


def joined(parts: list[HostWindow]) -> HostWindow:
    """Windows end to end."""
    if len(parts) == 1:
        return parts[0]
    ids, starts, ends, anchors = (np.concatenate(column) for column in list(zip(*parts, strict=True))[:4])
    return HostWindow(ids, starts, ends, anchors, parts[-1].decided)
