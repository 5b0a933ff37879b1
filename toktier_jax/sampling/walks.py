"""The two passes of a bimachine (program/automaton.py) over text on the host: one text, or many rows of bytes."""

from __future__ import annotations

import numpy as np

from toktier_jax.ops.split_rule import joins
from toktier_jax.program.split import SplitStage
from toktier_jax.types import BEGIN, END, GAP_START, MATCH_START


def right(stage: SplitStage, column: list[int], starts: np.ndarray | None = None) -> list[int]:
    """The right state at each character, of classes [n]; a segment ends before each of `starts` bool [n + 1]."""
    table, state, found = stage.machine.right.tolist(), END, [END] * len(column)
    for at in range(len(column) - 1, -1, -1):
        if starts is not None and at + 1 < len(column) and starts[at + 1]:
            state = END
        state = found[at] = table[state][column[at]]
    return found


def left(
    stage: SplitStage, rights: list[int], state: int, segments: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Where matches and gaps begin, bool [n]; the left states before each character and at the end, int [n + 1]."""
    table, found, states = stage.machine.left.tolist(), [], [state]
    for at, seen in enumerate(rights):
        if segments is not None and segments[at]:
            state = BEGIN
        state = table[state][seen]
        found.append(GAP_START <= state < stage.machine.starts)
        states.append(state)
    return np.array(found, bool), np.array(states)


def rows(
    stage: SplitStage, column: np.ndarray, inside: np.ndarray, past: np.ndarray, starts: np.ndarray, state: int
) -> np.ndarray:
    """Where the stage's pieces begin, bool [R, n + 1], in rows of bytes that are segments already.

    column int [R, n] is the class of each character, at its first byte; inside and past bool [R, n] are bytes inside a
    character and past a row's end; `starts` bool [R, n + 1] the segments; `state` the left state before the rows.
    """
    machine, (count, size) = stage.machine, column.shape
    seen = np.full(count, END)
    rights = np.empty((size, count), np.int32)
    for at in range(size - 1, -1, -1):
        before = np.where(starts[:, at + 1], END, seen)
        seen = np.where(past[:, at], END, np.where(inside[:, at], seen, machine.right[before, column[:, at]]))
        seen = np.where(inside[:, at] & starts[:, at + 1], END, seen)
        rights[at] = seen
    lefts = np.full(count, state)
    found = np.zeros((count, size + 1), bool)
    states = np.empty((count, size), np.int32)
    for at in range(size):
        skip = inside[:, at] | past[:, at]
        after = machine.left[np.where(starts[:, at], BEGIN, lefts), rights[at]]
        found[:, at] = ~skip & (after >= GAP_START) & (after < machine.starts)
        lefts = np.where(skip, lefts, after)
        states[:, at] = lefts
    found[:, :size] = ruled(stage, found[:, :size], states, starts[:, :size])
    return found


def ruled(stage: SplitStage, starts: np.ndarray, states: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """Starts [R, n] after the stage's rule (ops/split_rule.py), for left states [R, n] after each byte."""
    if stage.plan.behavior == "Isolated":
        return starts
    match = (states >= MATCH_START) ^ stage.plan.invert
    before = np.pad(match, ((0, 0), (1, 0)))[:, :-1]
    return starts & (segments | ~joins(stage.plan, match, before))
