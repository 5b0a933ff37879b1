"""What becomes of matches and gaps: the Split behaviours. Knows no pattern."""

from __future__ import annotations

from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Array, Bool

from toktier_jax.ops.places import before
from toktier_jax.plan import SplitPlan

T = TypeVar("T", jax.Array, np.ndarray)


def apply_rule(
    plan: SplitPlan, segments: Bool[Array, " n"], starts: Bool[Array, " n"], match: Bool[Array, " n"]
) -> tuple[Bool[Array, " n"], Bool[Array, " n"] | None]:
    """Piece starts after the rule, and which bytes it removes (None: it never does).

    `segments` are the starts before this step and stay; `starts` are those of matches and gaps, `match` the bytes that
    lie in a match. Gaps are never neighbours; with `invert` the two change places. "Merged" joins a match to one
    neighbour unless that one is a match too; "Contiguous" joins neighbours of one kind.
    """
    if plan.behavior == "Isolated":
        return starts, None
    match = match ^ np.bool_(plan.invert)
    if plan.behavior == "Removed":
        return starts, match
    return starts & (segments | ~joins(plan, match, before(match))), None


def joins(plan: SplitPlan, matched: T, before: T) -> T:
    """Where a piece goes on that began before, if the places before are as in `before`: for arrays of any library."""
    match plan.behavior:
        case "MergedWithPrevious":
            return matched & ~before
        case "MergedWithNext":
            return ~matched & before
        case "Contiguous":
            return ~(matched ^ before)
        case other:
            raise ValueError(f"{other} joins nothing")
