"""A bimachine's tables as transition functions by symbol, for the lowering that composes them (ops/compose.py)."""

from __future__ import annotations

import numpy as np

from toktier_jax.program.automaton import Bimachine
from toktier_jax.types import BEGIN, COLLAPSED, CONT, END, MATCH_START, PAD, FunctionTables


def function_tables(machine: Bimachine, codes: np.ndarray) -> FunctionTables:
    """The tables of `machine` where symbol s is its class `codes[s]` (int [S], the symbols that are classes)."""
    right = _by_symbol(machine.right, codes, END)
    tail = _by_symbol(machine.tail, codes, COLLAPSED)
    kept = _reached(machine.left)
    number = np.cumsum(kept) - 1
    step = number[machine.left[kept]].T
    again = np.broadcast_to(step[:, BEGIN, None], step.shape)
    left = np.concatenate([step, again, np.arange(len(kept[kept]))[None]])
    return FunctionTables(right, _narrow(left), tail, np.int32(kept[: machine.starts].sum()))


def _reached(left: np.ndarray) -> np.ndarray:
    """bool [L]: left states of whole characters. Bytes that continue one need no state here: they are the identity."""
    kept = np.arange(len(left)) <= MATCH_START  # these have fixed numbers
    while not kept[left[kept]].all():
        kept[left[kept]] = True
    return kept


def _by_symbol(table: np.ndarray, codes: np.ndarray, end: int) -> np.ndarray:
    """[512, states]: row s + 256 k maps the state at the next byte to that at a byte of symbol s; k: a segment ends."""
    states = len(table)
    rows = np.tile(np.arange(states), (512, 1))  # CONT and PAD leave the state as it is
    rows[256:] = end
    rows[: len(codes)] = table[:, codes].T
    rows[256 : 256 + len(codes)] = table[end, codes][:, None]
    assert len(codes) <= min(CONT, PAD)
    return _narrow(rows)


def _narrow(table: np.ndarray) -> np.ndarray:
    """uint8 where the states fit, else uint16."""
    return table.astype(np.uint8 if table.shape[1] <= 256 else np.uint16)
