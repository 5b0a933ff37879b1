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

from ..types import CONT, PAD, WalkTables
from .lanes import Automaton, lane_words, unpack_lanes, walk_lanes

_END, _GAP, _GAP_START, _MATCH_START = 0, 1, 2, 3  # states of program/automaton.py
_COLLAPSED, _ANYTHING = 0, 1


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
    size = symbols.shape[0]
    marked = lax.optimization_barrier(_marked(tables, symbols, starts, frozen))
    shape, words = lane_words(marked, tables.codes[PAD], length)
    same = tables.codes[CONT].astype(jnp.int32)  # the code of a byte that goes on in a character,
    within = tables.right[_END, same].astype(jnp.int32)  # and the first right state of such bytes
    right = Automaton(tables.right, same, within, within + 1, within - 1, backward=True)
    left = Automaton(tables.left, within, jnp.int32(_GAP), tables.begins, tables.states - tables.begins, backward=False)
    rights = walk_lanes(right, shape, words)
    state = unpack_lanes(shape, walk_lanes(left, shape, rights))[:size]
    inside = lax.iota(jnp.int32, size) < length
    begins = inside & (state >= _GAP_START) & (state < tables.begins.astype(state.dtype))
    match = inside & (state >= _MATCH_START)
    return begins, match, length if at_end else _known(tables, symbols, starts, frozen, length, limit)


def _marked(tables: WalkTables, symbols: jax.Array, starts: jax.Array, frozen: jax.Array) -> jax.Array:
    """The column of `right` at each byte, in the tables' dtype."""
    dtype = tables.right.dtype
    code = tables.codes.at[jnp.where(frozen, np.uint8(CONT), symbols).astype(jnp.int32)].get(mode="clip")
    return code.astype(dtype) + jnp.where(starts, dtype.type(tables.right.shape[1] // 2), dtype.type(0))


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
        return (state != _COLLAPSED) & (at > 0)

    def step(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        at, state = carry
        at = at - 1
        code = tables.codes[jnp.where(frozen[at], np.uint8(CONT), symbols[at])]
        state = tables.tail[state, code].astype(jnp.int32)
        return at, jnp.where(starts[at], _COLLAPSED, state)

    return lax.while_loop(undecided, step, (limit, jnp.where(certain, _COLLAPSED, _ANYTHING)))[0]
