"""Makes a failing text small: bisection from both ends, then delta debugging over what is left.

Source of the second: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE TSE 28(2), 2002.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_PLAIN = "a 1"


def shrink(text: str, fails: Callable[[str], bool], seconds: float = 20.0) -> str:
    """A part of `text` that still fails, from which no single character can be taken; plain letters where they do.

    `fails(text)` must hold. After `seconds` the smallest text so far is returned.
    """
    deadline = time.monotonic() + seconds
    text = text[: _bisect(len(text), lambda stop: fails(text[:stop]), deadline)]
    text = text[len(text) - _bisect(len(text), lambda size: fails(text[len(text) - size :]), deadline) :]
    width = max(len(text) // 2, 1)
    while time.monotonic() < deadline:
        smaller = _without_parts(text, width, fails, deadline)
        if width == 1 and smaller == text:
            break
        width = max(min(width // 2, len(smaller) // 2), 1)
        text = smaller
    for at, plain in ((at, plain) for at in range(len(text)) for plain in _PLAIN):
        simpler = text[:at] + plain + text[at + 1 :]
        if time.monotonic() < deadline and text[at] not in _PLAIN and fails(simpler):
            text = simpler
    return text


def _bisect(size: int, fails: Callable[[int], bool], deadline: float) -> int:
    """A number that fails, the smallest one if all above it fail too. `fails(size)` must hold."""
    low = 0
    while low < size and time.monotonic() < deadline:
        middle = (low + size) // 2
        if fails(middle):
            size = middle
        else:
            low = middle + 1
    return size


def _without_parts(text: str, width: int, fails: Callable[[str], bool], deadline: float) -> str:
    """`text` without those of its parts of `width` characters that the failure does not need."""
    at = 0
    while at < len(text) and time.monotonic() < deadline:
        smaller = text[:at] + text[at + width :]
        if fails(smaller):
            text = smaller
        else:
            at += width
    return text
