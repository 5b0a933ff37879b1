"""Cuts segments into pieces by walking a bimachine's tables: the lowering of a split for CPUs.

Two walks, right to left over codes and left to right over the states of the first (program/walk.py). Text is walked in
lanes, each a contiguous stretch, all lanes in step (ops/lanes.py).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt8

from toktier_jax.errors import UnsupportedError
from toktier_jax.ops.blocks import apart, by_blocks, take
from toktier_jax.ops.lanes import BLOCK, Automaton, lanes_for, place_of, walk_lanes
from toktier_jax.types import ANYTHING, COLLAPSED, CONT, END, GAP, GAP_START, MATCH_START, PAD, WalkTables


def split_walk(
    tables: WalkTables,
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
    Without `at_end` more text may follow and `starts` are certain only up to `limit`: then all piece starts at or
    before the last returned value are certain, and so are the matches before it. It is `length` where `at_end`.
    """
    begins, match = _cut(tables, jnp.where(frozen, np.uint8(CONT), symbols), starts, length)
    return begins, match, length if at_end else _known(tables, symbols, starts, frozen, length, limit)


@jax.custom_batching.custom_vmap
def _cut(tables: WalkTables, symbols: jax.Array, starts: jax.Array, length: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Piece starts and bytes of matches, bool [N]. Bytes of frozen segments have the symbol CONT."""
    size = symbols.shape[0]
    lanes = lanes_for(size, length, tables.right.dtype)
    same = tables.codes[CONT].astype(jnp.int32)  # the code of a byte that goes on in a character,
    within = tables.right[END, same].astype(jnp.int32)  # and the first right state of such bytes
    right = Automaton(tables.right, same, within, within + 1, within - 1, backward=True)
    left = Automaton(tables.left, within, jnp.int32(GAP), tables.begins, tables.states - tables.begins, backward=False)
    words = _code_words(tables, symbols, starts, length, lanes.total)
    states = walk_lanes(left, lanes, walk_lanes(right, lanes, words)).reshape(-1)
    block = min(lanes.total, BLOCK)

    def flags(start: jax.Array) -> tuple[jax.Array, jax.Array]:
        number = lax.div(start, jnp.int32(lanes.per)) + lax.iota(jnp.int32, block // lanes.per)
        packed = apart(lambda number: take(states, place_of(lanes, number)), number, when=length >= 0)
        state = lax.bitcast_convert_type(packed, tables.left.dtype).reshape(-1)
        inside = start + lax.iota(jnp.int32, block) < length
        begins = (state >= GAP_START) & (state < tables.begins.astype(state.dtype))
        return inside & begins, inside & (state >= MATCH_START)

    begins, match = by_blocks(flags, lanes.total, block, length)
    return begins[:size], match[:size]


@_cut.def_vmap
def _cut_rows(
    rows: int, batched: list, tables: WalkTables, symbols: jax.Array, starts: jax.Array, length: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], tuple[bool, bool]]:
    """Rows one after another are one text: each begins a segment, and what pads it is its end."""
    if any(jax.tree.leaves(batched[0])):
        raise UnsupportedError("vmap over the tables of a split: a program is the same for all rows (in_axes=None)")
    symbols, starts = (
        values if axis else jnp.broadcast_to(values, (rows, *values.shape))
        for values, axis in zip((symbols, starts), batched[1:3], strict=True)
    )
    whole = jnp.int32(symbols.size)
    begins, match = _cut(tables, symbols.reshape(-1), starts.reshape(-1), whole)
    match = match.reshape(symbols.shape) & (symbols != np.uint8(PAD))
    return (begins.reshape(symbols.shape), match), (True, True)


def _code_words(tables: WalkTables, symbols: jax.Array, starts: jax.Array, length: jax.Array, total: int) -> jax.Array:
    """The column of `right` at each byte, packed in words: uint32, `total` codes."""
    dtype = tables.right.dtype
    half = dtype.type(tables.right.shape[1] // 2)
    block = min(total, BLOCK)
    symbols = lax.pad(symbols, np.uint8(PAD), ((0, total - symbols.shape[0], 0),))
    starts = lax.pad(starts, np.bool_(False), ((0, total - starts.shape[0], 0),))

    def words(start: jax.Array) -> jax.Array:
        symbol, begin = (lax.dynamic_slice(values, (start,), (block,)) for values in (symbols, starts))
        code = take(tables.codes, symbol.astype(jnp.int32)).astype(dtype) + jnp.where(begin, half, dtype.type(0))
        return lax.bitcast_convert_type(code.reshape(-1, 4 // dtype.itemsize), jnp.uint32)

    return by_blocks(words, total, block, length)


def _known(
    tables: WalkTables, symbols: jax.Array, starts: jax.Array, frozen: jax.Array, length: jax.Array, limit: jax.Array
) -> jax.Array:
    """From `limit` to the left, to where the right state is the same whatever follows `limit`: int32 [].

    That is two characters on average; a run of white space before `\\s+$` is walked whole.
    """
    last = symbols.shape[0] - 1
    certain = (limit < length) & starts[jnp.minimum(limit, last)]

    def undecided(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        at, state = carry
        return (state != COLLAPSED) & (at > 0)

    def step(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        at, state = carry
        at = at - 1
        code = tables.codes[jnp.where(frozen[at], np.uint8(CONT), symbols[at])]
        state = tables.tail[state, code].astype(jnp.int32)
        return at, jnp.where(starts[at], COLLAPSED, state)

    return lax.while_loop(undecided, step, (limit, jnp.where(certain, COLLAPSED, ANYTHING)))[0]
