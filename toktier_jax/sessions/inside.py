"""Repair inside a piece, however long: what is old and what is new meet at tokens that they share.

A sequence of tokens is the BPE of its text exactly if each two neighbours are that of theirs: until a merge goes across
some border, the merges on its sides do not know of each other. So a window may begin at any old token and end anywhere:
from the first token that it shares with the old ones its tokens follow those before, and from a later one that it
shares with the old ones after the change, those follow. No piece's place in a text may matter, and no added token may
reach across: the engine marks the tokens of which this is true.
"""

from __future__ import annotations

from collections import Counter

from toktier_jax.sessions.blocks import ANCHOR, INNER, Tokens
from toktier_jax.sessions.change import Change, Splice, encode
from toktier_jax.sessions.engine import Engine
from toktier_jax.sessions.record import flagged

REACH = 64
"""Bytes by which a first window reaches past a change, on each side, at least; four times as many each time after."""


def inside(change: Change, engine: Engine, counts: Counter[str]) -> Splice | None:
    """How the change is made with windows that begin at an old token; None where one at an anchor is as short."""
    record, tokens = change.record, change.record.tokens
    margin = reach = max(REACH, 4 * engine.info.longest_added)
    appends = change.start == record.text.byte_length
    if appends and change.start - record.resume <= 4 * reach:
        return None
    after = change.start + len(change.data)
    while True:
        first = tokens.flagged_before(change.start - reach, INNER) if reach < change.start else -1
        if first < 0:
            return None
        begin = int(tokens.get(first, first + 1).starts[0])
        end = min(after + reach, change.length)
        if end < change.length:
            end = record.text.byte_of(record.text.char_of_floor(end - change.shift)) + change.shift
        window = encode(change, engine, begin, end, counts)
        new = flagged(window, begin)
        new.flags[:1] &= ~ANCHOR & 255  # a window's start looks like one
        left = _shared(tokens.get(first, tokens.at_byte(change.start)), new, 0, (begin, change.start))
        right = tokens.count - first, len(new.ids)
        if end < change.length:
            old = tokens.get(tokens.at_byte(change.stop), tokens.at_byte(end - change.shift))
            right = _shared(old, new, change.shift, (after, end - margin))
            right = right and (right[0] + tokens.at_byte(change.stop) - first, right[1])
        if left is not None and right is not None:
            lo, hi = first + left[0], first + right[0]
            resume = _resume(change, begin, after, end, window.decided)
            outcome = "append" if appends else "edit"
            return Splice(lo, hi, new.part(left[1], right[1]), change.shift, resume, outcome)
        counts["widened"] += 1
        reach *= 4


def _shared(old: Tokens, new: Tokens, shift: int, bounds: tuple[int, int]) -> tuple[int, int] | None:
    """The first token of both, inside `bounds` of the new text: its index in each."""
    at = (old.starts + shift).searchsorted(new.starts)
    inside = (at < len(old.starts)) & (new.starts >= bounds[0]) & (new.ends <= bounds[1])
    number = inside.nonzero()[0]
    at = at[number]
    same = (old.starts[at] + shift == new.starts[number]) & (old.ends[at] + shift == new.ends[number])
    same &= (old.ids[at] == new.ids[number]) & ((old.flags[at] & new.flags[number] & INNER) != 0)
    found = same.nonzero()[0]
    return (int(at[found[0]]), int(number[found[0]])) if len(found) else None


def _resume(change: Change, begin: int, after: int, end: int, decided: int) -> int:
    """From where an append goes on: the last place that is known to stay."""
    record = change.record
    if end == change.length and decided:
        return begin + decided
    if record.resume >= change.stop and end < change.length and record.resume + change.shift >= end:
        return record.resume + change.shift
    if record.resume <= begin:
        return record.resume
    token = record.tokens.flagged_before(begin, ANCHOR)
    return int(record.tokens.get(token, token + 1).starts[0]) if token >= 0 else 0
