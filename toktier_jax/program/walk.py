"""A bimachine's tables as they are walked in lanes (ops/walk.py): every step of a walk is one look-up."""

from __future__ import annotations

import numpy as np

from toktier_jax.program.automaton import Bimachine
from toktier_jax.program.sizes import stepped
from toktier_jax.types import BEGIN, CONT, END, GAP_START, WalkTables


def walk_tables(machine: Bimachine, codes: np.ndarray) -> WalkTables:
    """The tables of `machine` where symbol s is its class `codes[s]` (int [S], the symbols that are classes).

    Sizes are padded, so that programs with equal plans share executables.
    """
    count = machine.right.shape[1]
    columns = np.full(256, count + 1, np.uint8)  # `count` goes on in a character, `count + 1` is past the text
    columns[: len(codes)] = codes
    columns[CONT] = count
    width = stepped(count + 2, 32, 2)
    right, left = _with_marks(machine, width)
    dtype = np.uint8 if max(right.max(), left.max()) < 256 else np.uint16
    tail = np.zeros((stepped(len(machine.tail), 64), width), np.int64)
    tail[: len(machine.tail), :count] = machine.tail
    tail[: len(machine.tail), count:] = np.arange(len(machine.tail))[:, None]
    tail = tail.astype(np.uint8 if len(tail) <= 256 else np.uint16)
    states = np.int32(len(machine.left))
    return WalkTables(columns, _typed(right, dtype), _typed(left, dtype), tail, np.int32(machine.starts), states)


def _with_marks(machine: Bimachine, width: int) -> tuple[np.ndarray, np.ndarray]:
    """`right` and `left` with two marks in the right state: in a character, and a segment starts here.

    Right states are r (of the machine's R states); R + r, a byte that continues a character; 2 R + r, a segment starts
    at this byte, so that the byte before sees END; 3 R, both. `right` has twice `width` columns, the second half for
    bytes at which a segment starts.
    """
    states, classes = machine.right.shape
    right = np.zeros((stepped(3 * states + 1, 256, 2), 2 * width), np.int64)
    left = np.zeros((stepped(len(machine.left), 64, 2), len(right)), np.int64)
    seen = np.concatenate([np.arange(states), np.arange(states), np.full(states + 1, END)])  # by the byte before
    for start, columns in enumerate((right[: len(seen), :width], right[: len(seen), width:])):
        columns[:, :classes] = machine.right[seen] + 2 * states * start
        columns[:, classes] = 3 * states if start else seen + states
        columns[:, classes + 1] = END + states  # nothing begins past the text
    rows = slice(len(machine.left))
    left[rows, :states] = machine.left
    left[rows, states : 2 * states] = machine.inside[:, None]
    left[rows, 2 * states : 3 * states] = machine.left[BEGIN]
    left[rows, 3 * states] = GAP_START
    return right, left


def _typed(table: np.ndarray, dtype: type[np.uint8 | np.uint16]) -> np.ndarray:
    """With 256 rows for uint8: every index that a state and an input can form then lies inside, and goes unchecked."""
    rows = 256 - len(table) if dtype == np.uint8 else 0
    return np.pad(table, ((0, rows), (0, 0))).astype(dtype)
