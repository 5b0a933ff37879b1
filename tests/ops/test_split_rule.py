"""The rules on hand-made pieces. Against the reference: tests/program/test_split.py."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from toktier_jax.ops.split_rule import apply_rule
from toktier_jax.plan import SplitPlan

TEXT = "aaB|bAAb"
"""Upper-case letters are matches of one byte, runs of lower-case letters gaps; `|` begins a segment and is a gap."""


def rule(behavior: str, invert: bool = False) -> str:
    """The pieces, removed bytes left out."""
    segments = np.array([at == 0 or char == "|" for at, char in enumerate(TEXT)])
    match = np.array([char.isupper() for char in TEXT])
    starts = segments | match | np.append(True, match[:-1])
    plan = SplitPlan("char", behavior, invert)  # type: ignore[arg-type]  # one of the literals
    begins, removed = apply_rule(plan, jnp.asarray(segments), jnp.asarray(starts), jnp.asarray(match))
    gone = np.zeros(len(TEXT), bool) if removed is None else np.asarray(removed)
    marked = ("/" * bool(start) + char * (not drop) for char, start, drop in zip(TEXT, begins, gone, strict=True))
    return "".join(marked)


@pytest.mark.parametrize(
    ("behavior", "expected", "inverted"),
    [
        ("Isolated", "/aa/B/|b/A/A/b", "/aa/B/|b/A/A/b"),
        ("Removed", "/aa//|b///b", "//B//A/A/"),
        ("MergedWithPrevious", "/aaB/|bA/A/b", "/aa/B/|b/A/Ab"),
        ("MergedWithNext", "/aa/B/|b/A/Ab", "/aaB/|bA/A/b"),
        ("Contiguous", "/aa/B/|b/AA/b", "/aa/B/|b/AA/b"),
    ],
)
def test_rule(behavior: str, expected: str, inverted: str) -> None:
    assert rule(behavior) == expected
    assert rule(behavior, invert=True) == inverted
