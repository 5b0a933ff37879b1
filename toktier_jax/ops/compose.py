"""States of a table automaton along [N], by composing its transition functions in blocks. Knows no pattern, no text.

Every element of the input is a row of a table, that is a function from states to states. Functions compose
associatively (Hillis and Steele, Data Parallel Algorithms, 1986; for automata with few states Mytkowicz et al.,
Data-Parallel Finite-State Machines, ASPLOS 2014), so a tree of composed blocks gives every prefix. Each level is a
chain of `RADIX` dependent look-ups in small tables, unrolled, and compiles to one kernel: no loop over positions.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int32, Integer, UInt

RADIX = 16
"""Look-ups in one kernel. Kernels go with log(N) / log(RADIX); compile time and the work of the way down with RADIX."""

_TAKE = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))


def take(flat: Array, index: Int32[Array, " *shape"]) -> Array:
    """`flat[index]`, for indices known to lie inside.

    jnp's own indexing wraps negative indices first and so uses each index twice: a chain of look-ups then no longer
    fuses into one kernel.
    """
    return lax.gather(flat, index[..., None], _TAKE, (1,), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def automaton_states(
    rows: Integer[Array, " n"], table: UInt[Array, "rows states"], entry: UInt[Array, ""], *, identity: int
) -> UInt[Array, " n"]:
    """The state after each element.

    `table[row, state]` is the next state; `entry` is the state before the first element, in the table's dtype;
    `identity` is a row that leaves every state as it is. Costs about `states + RADIX` look-ups an element and
    `states / RADIX` elements of memory.
    """
    size, states = rows.shape[0], table.shape[1]
    # Two names for one array: slices that both ways share would be written out as arrays of their own.
    rows, again = lax.optimization_barrier((rows, rows))
    starts, again = (_blocks(array.astype(jnp.int32) * states, identity * states) for array in (rows, again))
    levels = [(again, table.reshape(-1), identity * states)]
    while starts.shape[0] > 1:
        blocks = starts.shape[0]
        composed = _compose(starts, levels[-1][1], states)
        starts = _blocks(lax.iota(jnp.int32, blocks) * states, blocks * states)
        levels.append((starts, composed, blocks * states))
    before = entry.reshape(1)
    for starts, flat, unit in levels[:0:-1]:
        before = lax.optimization_barrier(_walk(before[: starts.shape[0]], starts, flat, unit, inclusive=False))
    return _walk(before[: levels[0][0].shape[0]], *levels[0], inclusive=True)[:size]


def _blocks(starts: Int32[Array, " n"], unit: int) -> Int32[Array, "blocks radix"]:
    """Functions, each by where it starts in its level's table, in blocks; `unit` fills the last one up."""
    return jnp.pad(starts, (0, -starts.shape[0] % RADIX), constant_values=unit).reshape(-1, RADIX)


def _spread(values: Array, width: int) -> Array:
    return lax.broadcast_in_dim(values, (values.shape[0], width), (0,))


def _compose(starts: Int32[Array, "blocks radix"], flat: Array, states: int) -> Array:
    """The function of each block, one after another, and the identity at the end."""
    blocks = starts.shape[0]
    state = lax.broadcasted_iota(flat.dtype, (blocks, states), 1)
    for column in range(RADIX):
        state = take(flat, _spread(starts[:, column], states) + state.astype(jnp.int32))
    # The barrier keeps a level a kernel: fused with the next one, its look-ups would be done again for each use.
    return lax.optimization_barrier(jnp.concatenate([state.reshape(-1), lax.iota(flat.dtype, states)]))


def _walk(before: Array, starts: Int32[Array, "blocks radix"], flat: Array, unit: int, *, inclusive: bool) -> Array:
    """The state before (or after) each function of each block, from the state before the block.

    Every place walks its block on its own and idles by the identity: a chain in which each state is used once.
    """
    blocks = starts.shape[0]
    place = lax.broadcasted_iota(jnp.int32, (blocks, RADIX), 1)
    idle = jnp.full((blocks, RADIX), unit, jnp.int32)
    state = _spread(before, RADIX)
    for column in range(RADIX if inclusive else RADIX - 1):
        walking = place >= column if inclusive else place > column
        start = lax.select(walking, _spread(starts[:, column], RADIX), idle)
        state = take(flat, start + state.astype(jnp.int32))
    return state.reshape(-1)
