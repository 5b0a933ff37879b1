"""Keeps the tokens of a changing text equal to a full encode for the price of what changed.

Left of a change, finality: what a window that ends at the change has decided stays, whatever follows. Right of it,
coupling: where a new anchor falls on an old one in the unchanged rest, both chains are the same from there on, so the
old tokens stay, moved. Inside a piece the two meet at a token that they share (inside.py); an engine that is a black
box is believed where it agrees with what is known (black_box.py). Costs are in characters of the change and of its
window, never in those of the record.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.sessions.black_box import black_box
from toktier_jax.sessions.blocks import ANCHOR
from toktier_jax.sessions.change import Change, Splice, encode
from toktier_jax.sessions.engine import Engine, Window
from toktier_jax.sessions.inside import inside
from toktier_jax.sessions.patch import Patch
from toktier_jax.sessions.record import Record, flagged

MARGIN = 64
"""Bytes by which a first window reaches past an edit, on each side."""


def repair(record: Record, engine: Engine, start: int, stop: int, text: str, counts: Counter[str]) -> Patch:
    """Changes characters [start, stop) of the record's text into `text`. Returns what that did to the ids.

    `counts` is told how: "append", "edit", "widened" (and then one of these), "black box", "full", "reference: why";
    and by which encode, if not the host's.
    Where anything is raised, nothing is changed.
    """
    byte_start, byte_stop = record.text.byte_of(start), record.text.byte_of(stop)
    change = Change(record, byte_start, byte_stop, text.encode())
    splice = _splice(record, engine, change, counts)
    patch = _patch(record, splice)
    text_tail, token_tail, resume = record.text.tail(start), record.tokens.tail(splice.lo), record.resume
    try:
        record.text.replace(start, stop, text)
        record.tokens.splice(splice.lo, splice.hi, splice.new, splice.shift)
        record.resume, record.revision = splice.resume, patch.revision
    except BaseException:  # an interrupt can come between any two
        record.text.restore(text_tail)
        record.tokens.restore(token_tail)
        record.resume, record.revision = resume, patch.revision - 1
        raise
    return patch


def _patch(record: Record, splice: Splice) -> Patch:
    new, leading = splice.new.ids, len(record.leading)
    old = record.tokens.ids_between(splice.lo, min(splice.hi, splice.lo + len(new)))
    differs = (old != new[: len(old)]).nonzero()[0]
    keep = int(differs[0]) if len(differs) else len(old)
    ids = np.array(new[keep:], np.int32)
    ids.flags.writeable = False
    return Patch(leading + splice.lo + keep, ids, record.tokens.count - splice.hi, record.revision + 1)


def _splice(record: Record, engine: Engine, change: Change, counts: Counter[str]) -> Splice:
    way = "full" if record.distrust else engine.info.way
    try:
        if way in ("anchors", "tokens"):
            appends = change.start == record.text.byte_length
            found = inside(change, engine, counts) if way == "tokens" else None
            found = found or (_append if appends else _edit)(change, engine, counts)
            counts[found.outcome] += 1
            return found
        if way == "black box":
            found = black_box(change, engine, counts)
            if found is not None:
                counts[found.outcome] += 1
                return found
    except UnsupportedError as error:
        counts[f"reference: {error.reason}"] += 1
        return _whole(record, engine.encode_reference(change.whole()))
    counts["full"] += 1
    encode_all = engine.encode_reference if record.distrust else engine.encode_full
    return _whole(record, encode_all(change.whole()))


def _whole(record: Record, window: Window) -> Splice:
    return Splice(0, record.tokens.count, flagged(window, 0), 0, window.decided, "full")


def _append(change: Change, engine: Engine, counts: Counter[str]) -> Splice:
    record = change.record
    begin = record.resume
    window = encode(change, engine, begin, change.length, counts)
    lo = record.tokens.at_byte(begin) if begin else 0
    return Splice(lo, record.tokens.count, flagged(window, begin), 0, begin + window.decided, "append")


def _edit(change: Change, engine: Engine, counts: Counter[str]) -> Splice:
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
        window = encode(change, engine, begin, end, counts)
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


def _decided_before(change: Change, engine: Engine) -> int:
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


def _coupling(change: Change, window: Window, begin: int, after: int, end: int, decided: int) -> int | None:
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
