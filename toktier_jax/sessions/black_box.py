"""Repair with an engine that is a black box: windows of characters that must agree with what is known.

They are believed where a run of their records agrees across a boundary at which the pre-tokenizer forgets (TokTier,
arXiv 2607.29678).
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from toktier_jax.sessions.blocks import Tokens
from toktier_jax.sessions.change import Change, Splice
from toktier_jax.sessions.engine import Engine, Window
from toktier_jax.sessions.record import flagged

BLACK_BOX = 512
"""Characters of the first window; doubled at most DOUBLINGS times."""

DOUBLINGS = 5


def black_box(change: Change, engine: Engine, counts: Counter[str]) -> Splice | None:
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
    change: Change, engine: Engine, window: Window, fresh: Tokens, begin: int, *, right: bool
) -> tuple[int, int] | None:
    """Where old and new tokens may be joined, as indices of both: the end of a run of equal records.

    The run has at least two tokens, covers more characters than the longest token, and a boundary lies inside it.
    """
    if not len(window.ids):
        return None
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
