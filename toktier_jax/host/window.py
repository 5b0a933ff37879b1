"""Encodes small windows of a text by a program's tables without the big pipeline: the engine of token sessions.

Added tokens and the quick check are looked for on the host, short texts are cut by regular expressions
(host/window_scan.py), long ones by the walk (host/window_split.py), pieces are looked up one by one
(host/word_merge.py). A window says besides its tokens where work can be resumed. What this path cannot do it refuses by
name before it is made (`refusal`), or for one window by raising UnsupportedError.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from toktier_jax.host.literals import AddedFinder, Span
from toktier_jax.host.refusals import QuickCheckFailed
from toktier_jax.host.utf8 import character_start, first_bytes
from toktier_jax.host.window_scan import Pieces, Scanner
from toktier_jax.host.window_split import Cut, Splitter
from toktier_jax.host.word_merge import WordMerger
from toktier_jax.plan import AddedPlan, BPEPlan, QuickCheckPlan, SplitPlan
from toktier_jax.program.regex import is_quick
from toktier_jax.program.split import Found
from toktier_jax.types import CONT, EncodeProgram

SCANNED = 1 << 13
"""Bytes of a window that is scanned: a pattern that gives back a lot is still quick on it. Longer ones are walked."""

LONGEST = 1 << 18
"""Bytes of a piece without a cut that is merged here, once in 5 to 13 us each; then only round what differs."""

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

    def __init__(
        self, program: EncodeProgram, contextual: np.ndarray | None, patterns: Sequence[Found] | None = None
    ) -> None:
        """`program` has numpy tables; `contextual` bool [0x110000]: the quick check's form looks at what is before;
        `patterns`: of each split, where all of them only cut (program/split.py); scanned if that is quick."""
        plan, tables = program.plan, program.tables
        assert isinstance(plan.model, BPEPlan)
        if patterns is not None and not all(is_quick(each[0]) for each in patterns):
            patterns = None
        steps = list(zip(plan.steps, tables.steps, strict=True))
        flags = [part for step, part in steps if isinstance(step, QuickCheckPlan)]
        self._find_added = AddedFinder([part for step, part in steps if isinstance(step, AddedPlan)])
        self._suspects = np.asarray(flags[0]) if flags else None
        self._contextual = contextual if flags else None
        plain = np.full(256, CONT, np.uint8)
        self._classes: np.ndarray | None = None
        if tables.pages is not None and tables.table is not None:
            self._classes = np.asarray(tables.table)[np.asarray(tables.pages)].reshape(-1)
            plain[:128] = self._classes[:128]
        self._splits = [Splitter(step, part, plain) for step, part in steps if isinstance(step, SplitPlan)]
        self._scan = None if patterns is None else Scanner.of_bytes(patterns, self._splits)
        self._scan_symbols = (
            None
            if patterns is None or self._classes is None
            else Scanner.of_symbols(patterns, self._splits, self._classes)
        )
        self.merger = WordMerger(plan.model, tables.model, LONGEST)

    def encode(self, data: bytes, *, at_start: bool = True, checked: bool = False) -> HostWindow:
        """Tokens of valid UTF-8 text of any length. Nothing is different `at_start` of a text.

        Raises QuickCheckFailed unless `checked`; UnsupportedError where only the reference can encode a piece.
        """
        self.merger.load()
        parts: list[HostWindow] = []
        begin, size = 0, BLOCK
        while True:
            end = character_start(data, min(begin + size, len(data)))
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
        characters = None if data.isascii() else self._classify(data, spans, checked)
        boundary = None if characters is None else characters.boundary
        if self._contextual is not None:
            decided = min(decided, _last_boundary(data, boundary))
        cut = self._scanned if size <= SCANNED and self._scan is not None else self._walked
        found = cut(data, spans, characters, decided)
        first, decided = found.first, found.decided
        if boundary is not None:
            first = first[boundary[first]]
            decided = int(first[max(np.searchsorted(first, decided, side="right") - 1, 0)])
        return HostWindow(*self._tokens(found), first, decided)

    def _scanned(self, data: bytes, spans: list[Span], characters: _Characters | None, decided: int) -> Pieces:
        if characters is None:
            assert self._scan is not None
            return self._scan(data, spans, decided)
        assert self._scan_symbols is not None
        return self._scan_symbols.of(data, characters.classes.tobytes(), characters.lead, spans, decided)

    def _walked(self, data: bytes, spans: list[Span], characters: _Characters | None, decided: int) -> Pieces:
        symbols = None
        if characters is not None:
            symbols = np.full(len(data), CONT, np.uint8)
            symbols[characters.lead] = characters.classes
        state = _open(len(data), spans)
        first = state.starts
        for number, split in enumerate(self._splits):
            state, decided = split(data, symbols, state, decided)
            if not number:
                first = state.starts
        edges = np.append(np.flatnonzero(state.starts), len(data)).astype(np.int32)
        bounds = edges.tolist()
        pieces = [data[start:stop] for start, stop in pairwise(bounds)]
        fixed = [(bisect_left(bounds, start), index) for start, _, index in spans]
        removed = None if state.removed is None else state.removed[edges[:-1]]
        return Pieces(pieces, edges, np.flatnonzero(first).astype(np.int32), fixed, decided, removed)

    def _tokens(self, found: Pieces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        pieces, starts, ends = found.pieces, found.edges[:-1], found.edges[1:]
        known = self.merger.look_up(pieces)
        for number, index in found.fixed:
            known[number] = index
        ids = np.array(known, np.int32)
        missed = (ids < 0) if found.removed is None else (ids < 0) & ~found.removed
        counts = np.ones(len(ids), np.int32) if found.removed is None else (~found.removed).astype(np.int32)
        numbers = missed.nonzero()[0]
        made = self.merger.find([pieces[number] for number in numbers.tolist()])
        counts[numbers] = [len(tokens[0]) for tokens in made]
        ids, starts, ends = ids.repeat(counts), starts.repeat(counts), ends.repeat(counts)
        places = (ids < 0).nonzero()[0]
        ids[places] = list(chain.from_iterable(tokens[0] for tokens in made))
        ends[places] = starts[places] + np.array(list(chain.from_iterable(tokens[1] for tokens in made)), np.int32)
        again = (starts[1:] == starts[:-1]).nonzero()[0]  # of one piece: the next begins where the one before ends
        starts[again + 1] = ends[again]
        return ids, starts, ends

    def _classify(self, data: bytes, spans: list[Span], checked: bool) -> _Characters:
        """Raises QuickCheckFailed unless `checked`."""
        lead = first_bytes(data)
        if self._classes is None:
            return _Characters(lead, np.full(len(lead), CONT, np.uint8), None)
        codes = np.frombuffer(data.decode().encode("utf-32-le"), np.uint32)
        classes = self._classes[codes]
        if self._suspects is None or self._contextual is None:
            return _Characters(lead, classes, None)
        suspect = self._suspects[classes]
        if not suspect.any():
            return _Characters(lead, classes, None)
        boundary = np.ones(len(data) + 1, bool)
        boundary[lead] = ~self._contextual[codes]
        for start, stop, _ in spans:
            suspect[(lead >= start) & (lead < stop)] = False
            boundary[start : stop + 1] = True
        if suspect.any() and not checked:
            raise QuickCheckFailed
        boundary[0] = True
        return _Characters(lead, classes, boundary)


class _Characters(NamedTuple):
    """Characters of a text beyond ASCII.

    lead      int64 [k]  their first bytes
    classes   uint8 [k]  their symbols
    boundary  bool [n + 1] or None (everywhere)  the normal form leaves alone what is before the byte
    """

    lead: np.ndarray
    classes: np.ndarray
    boundary: np.ndarray | None


def _open(size: int, spans: list[Span]) -> Cut:
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
    step = np.int64(by)  # a text may be longer than 2 GiB
    return HostWindow(part.ids, part.starts + step, part.ends + step, part.anchors + step, by + part.decided)


def joined(parts: list[HostWindow]) -> HostWindow:
    """Windows end to end."""
    if len(parts) == 1:
        return parts[0]
    ids, starts, ends, anchors = (np.concatenate(column) for column in list(zip(*parts, strict=True))[:4])
    return HostWindow(ids, starts, ends, anchors, parts[-1].decided)
