"""Cuts segments into pieces by a pattern, without a loop over positions: the lowering of a split for GPU and TPU.

The pattern is a bimachine (program/automaton.py). Its two walks, right to left over classes and left to right over the
states of the first, are computed for all positions at once by composing transition functions in blocks (compose.py).
Segment starts are rows of the tables like any other, so that run ends and look-aheads stop at them at no cost.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt8

from toktier_jax.ops.compose import automaton_states
from toktier_jax.types import ANYTHING, BEGIN, COLLAPSED, CONT, END, GAP_START, MATCH_START, FunctionTables, Table

_CUT = 256


def split_arrays(
    tables: FunctionTables,
    symbols: UInt8[Array, " n"],
    starts: Bool[Array, " n"],
    frozen: Bool[Array, " n"],
    length: Int32[Array, ""],
    limit: Int32[Array, ""],
    *,
    at_end: bool,
) -> tuple[Bool[Array, " n"], Bool[Array, " n"], Int32[Array, ""]]:
    """Piece starts, which bytes belong to a match, and up to where both are known.

    `starts` are those of the segments, True at 0; `frozen` bytes lie in segments that stay whole and are no match.
    Without `at_end` more text may follow, and `starts` are certain only up to `limit`: then so are all piece starts at
    or before the last returned value, and the matches before it. It is `length` where `at_end`.
    """
    position = lax.iota(jnp.int32, symbols.shape[0])
    inside = position < length
    cut = jnp.pad(starts[1:], (0, 1)) & (position + 1 < length)
    code = jnp.where(frozen, CONT + _CUT, symbols.astype(jnp.int32) + jnp.where(cut, _CUT, 0))
    code = jnp.where(inside, code, CONT).astype(jnp.uint16)[::-1]
    right = _walk(code, tables.right, END, identity=CONT)[::-1]

    lead = inside & ~frozen & (symbols != CONT)
    states = jnp.shape(tables.right)[1]
    row = jnp.where(lead, right + jnp.where(starts, states, 0), 2 * states).astype(jnp.uint16)
    left = _walk(row, tables.left, BEGIN, identity=2 * states)

    begins = starts | (lead & (left >= GAP_START) & (left < jnp.asarray(tables.begins)))
    match = inside & ~frozen & (left >= MATCH_START)
    if at_end:
        return begins, match, length
    # What follows `limit` can be any text, the end, or a segment start: walk up to it from all states at once.
    code = jnp.where(position[::-1] < limit, code, CONT)
    tail = _walk(code, tables.tail, ANYTHING, identity=CONT)[::-1]
    known = inside & (position <= limit) & ((tail == COLLAPSED) | starts)
    return begins, match, jnp.max(jnp.where(known, position, 0))


def _walk(rows: Array, table: Table, entry: int, *, identity: int) -> Int32[Array, " n"]:
    table = jnp.asarray(table)
    return automaton_states(rows, table, jnp.full((), entry, table.dtype), identity=identity).astype(jnp.int32)
