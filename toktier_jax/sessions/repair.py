"""Keeps the tokens of a changing text equal to a full encode for the price of what changed.

Left of a change, finality: what a window that ends at the change has decided stays, whatever follows. Right of it,
coupling: where a new anchor falls on an old one in the unchanged rest, both chains are the same from there on, so the
old tokens stay, moved. An engine that is a black box is given windows of characters instead, and believed where a run
of its records agrees with what is known across a boundary at which the pre-tokenizer forgets (TokTier,
arXiv 2607.29678). Costs are in characters of the change and of its window, never in those of the record.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.sessions.blocks import ANCHOR, Tokens
from toktier_jax.sessions.engine import Engine, Window
from toktier_jax.sessions.patch import Patch
from toktier_jax.sessions.record import Record, flagged

MARGIN = 64
"""Bytes by which a first window reaches past an edit, on each side."""

BLACK_BOX = 512
"""Characters of the first window of an engine that is a black box; doubled at most DOUBLINGS times."""

DOUBLINGS = 5


class Splice(NamedTuple):
    """How a change is made: tokens [lo, hi) of the record become `new`, those after move by `shift` bytes."""

    lo: int
    hi: int
    new: Tokens
    shift: int
    resume: int
    outcome: str


def repair(record: Record, engine: Engine, start: int, stop: int, text: str, counts: Counter[str]) -> Patch:
    """Changes characters [start, stop) of the record's text into `text`. Returns what that did to the ids.

    `counts` is told how: "append", "edit", "widened" (and then one of these), "black box", "full", "reference: why".
    Where anything is raised, nothing is changed.
    """
    byte_start, byte_stop = record.text.byte_of(start), record.text.byte_of(stop)
    change = _Change(record, byte_start, byte_stop, text.encode())
    splice = _splice(record, engine, change, counts)
    patch = _patch(record, splice)
    record.text.replace(start, stop, text)
    record.tokens.splice(splice.lo, splice.hi, splice.new, splice.shift)
    record.resume = splice.resume
    record.revision += 1
    return patch


def _patch(record: Record, splice: Splice) -> Patch:
    new, leading = splice.new.ids, len(record.leading)
    old = record.tokens.ids_between(splice.lo, min(splice.hi, splice.lo + len(new)))
    differs = (old != new[: len(old)]).nonzero()[0]
    keep = int(differs[0]) if len(differs) else len(old)
    ids = np.array(new[keep:], np.int32)
    ids.flags.writeable = False
    return Patch(leading + splice.lo + keep, ids, record.tokens.count - splice.hi, record.revision + 1)


class _Change(NamedTuple):
    """Bytes [start, stop) of the record's old text become `data`."""

    record: Record
    start: int
    stop: int
    data: bytes

    @property
    def shift(self) -> int:
        return len(self.data) - (self.stop - self.start)

    @property
    def length(self) -> int:
        """Bytes of the new text."""
        return self.record.text.byte_length + self.shift

    def text(self, begin: int, end: int) -> bytes:
        """Bytes [begin, end) of the new text; begin <= start and end >= start + len(data)."""
        old = self.record.text
        return b"".join(
            (old.bytes_between(begin, self.start), self.data, old.bytes_between(self.stop, end - self.shift))
        )

    def whole(self) -> bytes:
        return self.text(0, self.length)


def _splice(record: Record, engine: Engine, change: _Change, counts: Counter[str]) -> Splice:
    way = "full" if record.distrust else engine.info.way
    try:
        if way in ("anchors", "tokens"):
            appends = change.start == record.text.byte_length
            found = _append(change, engine) if appends else _edit(change, engine, counts)
            counts[found.outcome] += 1
            return found
        if way == "black box":
            found = _black_box(change, engine, counts)
            if found is not None:
                counts[found.outcome] += 1
                return found
    except UnsupportedError as error:
        counts[f"reference: {error}"] += 1
        return _whole(record, engine.encode_reference(change.whole()), "reference")
    counts["full"] += 1
    if record.distrust:
        return _whole(record, engine.encode_reference(change.whole()), "reference")
    return _whole(record, engine.encode_full(change.whole()), "full")


def _whole(record: Record, window: Window, outcome: str) -> Splice:
    return Splice(0, record.tokens.count, flagged(window, 0), 0, window.decided, outcome)


def _append(change: _Change, engine: Engine) -> Splice:
    record = change.record
    begin = record.resume
    text = change.text(begin, change.length)
    window = engine.encode_window(text, at_start=begin == 0, at_end=True)
    lo = record.tokens.at_byte(begin) if begin else 0
    return Splice(lo, record.tokens.count, flagged(window, begin), 0, begin + window.decided, "append")


def _edit(change: _Change, engine: Engine, counts: Counter[str]) -> Splice:
    record = change.record
    begin = _decided_before(change, engine)
    lo = record.tokens.at_byte(begin) if begin else 0
    after = change.start + len(change.data)
    reach = MARGIN
    while True:
        end = min(after + reach, change.length)
        if end < change.length:
            old = record.text
            end = old.byte_of(old.char_of_floor(end - change.shift)) + change.shift
        window = engine.encode_window(change.text(begin, end), at_start=begin == 0, at_end=end == change.length)
        decided = begin + window.decided
        if (at := _coupling(change, window, begin, after, end, decided)) is not None:
            hi = record.tokens.at_byte(at - change.shift)
            keep = int(np.searchsorted(window.byte_starts, at - begin, side="left"))
            old_resume = record.resume + change.shift
            resume = decided if end == change.length else old_resume if old_resume >= at else at
            return Splice(lo, hi, flagged(window, begin).part(0, keep), change.shift, resume, "edit")
        if end == change.length:
            return Splice(lo, record.tokens.count, flagged(window, begin), change.shift, decided, "edit")
        counts["widened"] += 1
        reach *= 4


def _decided_before(change: _Change, engine: Engine) -> int:
    """An anchor before the change at which work is resumed: a window up to the change has decided it."""
    record = change.record
    reach = MARGIN
    while True:
        token = record.tokens.flagged_before(change.start - reach, ANCHOR) if reach <= change.start else -1
        begin = int(record.tokens.get(token, token + 1).starts[0]) if token >= 0 else 0
        text = record.text.bytes_between(begin, change.start)
        window = engine.encode_window(text, at_start=begin == 0, at_end=False) if text else None
        if window is not None and window.decided:
            return begin + window.decided
        if begin == 0:
            return 0
        reach *= 4


def _coupling(change: _Change, window: Window, begin: int, after: int, end: int, decided: int) -> int | None:
    """The first byte of the new text from which old tokens can stay; None if there is none in the window.

    The start of neither text is one: what a normalizer prepends belongs to the first token.
    """
    record = change.record
    last = end if end == change.length else decided
    new = window.anchors + begin
    new = new[(new >= max(after, 1)) & (new <= last)]
    if not len(new):
        return None
    first = record.tokens.at_byte(max(change.stop, 1))
    upto = record.tokens.at_byte(int(new[-1]) - change.shift + 1)
    old = record.tokens.get(first, upto)
    both = np.intersect1d(new, old.starts[(old.flags & ANCHOR) != 0] + change.shift)
    return int(both[0]) if len(both) else None


# ---- engines that are a black box ----


def _black_box(change: _Change, engine: Engine, counts: Counter[str]) -> Splice | None:
    """Windows of characters that must agree with what is known; None where none does."""
    record = change.record
    old = record.text
    from_char, to_char = old.char_of(change.start), old.char_of(change.stop)
    for doubling in range(DOUBLINGS + 1):
        reach = BLACK_BOX << doubling
        begin = old.byte_of(max(from_char - reach, 0))
        end = old.byte_of(min(to_char + reach, old.length)) + change.shift
        text = change.text(begin, end)
        window = engine.encode_window(text, at_start=begin == 0, at_end=end == change.length)
        fresh = flagged(window, begin)
        left = (0, 0) if begin == 0 else _agreement(change, engine, window, fresh, begin, right=False)
        count = len(fresh.ids)
        right = (record.tokens.count, count) if end == change.length else None
        right = right or _agreement(change, engine, window, fresh, begin, right=True)
        if left is not None and right is not None:
            new = fresh.part(left[1], right[1])
            return Splice(left[0], right[0], new, change.shift, 0, "black box")
        if begin == 0 and end == change.length:
            break
        counts["widened"] += 1
    counts["black box: no window agrees"] += 1
    return None


def _agreement(
    change: _Change, engine: Engine, window: Window, fresh: Tokens, begin: int, *, right: bool
) -> tuple[int, int] | None:
    """Where old and new tokens may be joined, as indices of both: the end of a run of equal records.

    The run has at least two tokens, covers more characters than the longest token, and a boundary lies inside it.
    """
    record = change.record
    if right:
        low, shift = record.tokens.at_byte(change.stop), change.shift
        old = record.tokens.get(low, record.tokens.at_byte(begin + int(window.byte_ends[-1]) - shift))
        bounds = change.start + len(change.data), begin + int(window.byte_ends[-1])
    else:
        low, shift = record.tokens.at_byte(begin), 0
        old = record.tokens.get(low, record.tokens.at_byte(change.start))
        bounds = begin, change.start
    starts = {(s + shift, e + shift, i): k for k, (s, e, i) in enumerate(_records(old))}
    run: list[tuple[int, int]] = []
    best: list[tuple[int, int]] = []
    for index, key in enumerate(_records(fresh)):
        place = starts.get(key) if bounds[0] <= key[0] and key[1] <= bounds[1] else None
        if place is not None and run and run[-1] == (place - 1, index - 1):
            run.append((place, index))
        else:
            run = [] if place is None else [(place, index)]
        if run and _holds(window, fresh, run, begin, engine.info.longest_token) and (not right or not best):
            best = run.copy()
        if right and best:
            break
    if not best:
        return None
    place, index = best[-1]
    return low + place + 1, index + 1


def _records(tokens: Tokens) -> list[tuple[int, int, int]]:
    return list(zip(tokens.starts.tolist(), tokens.ends.tolist(), tokens.ids.tolist(), strict=True))


def _holds(window: Window, fresh: Tokens, run: list[tuple[int, int]], begin: int, longest: int) -> bool:
    if len(run) < 2:
        return False
    first, last = int(fresh.starts[run[0][1]]), int(fresh.ends[run[-1][1]])
    if last - first <= 4 * longest:  # in bytes: at most four a character
        return False
    inside = window.anchors + begin
    return bool(np.any((inside > first) & (inside < last) & (inside > begin)))
