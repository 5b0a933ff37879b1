"""States of a table automaton along [N], by composing its transition functions in blocks. Knows no pattern, no text.

Every element of the input is a row of a table, that is a function from states to states. Functions compose
associatively (Hillis and Steele, Data Parallel Algorithms, 1986; for automata with few states Mytkowicz et al.,
Data-Parallel Finite-State Machines, ASPLOS 2014), so a tree of composed blocks gives every prefix. Each level is a
chain of `RADIX` dependent look-ups in small tables, unrolled, and compiles to one kernel: no loop over positions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int32, Integer, UInt

RADIX = 16
"""Look-ups in one kernel. Kernels go with log(N) / log(RADIX); compile time and the work of the way down with RADIX."""

_TAKE = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))


def automaton_states(
    rows: Integer[Array, " n"], table: UInt[Array, "rows states"], entry: UInt[Array, ""], *, identity: int
) -> UInt[Array, " n"]:
    """The state after each element.

    `table[row, state]` is the next state; `entry` is the state before the first element, in the table's dtype;
    `identity` is a row that leaves every state as it is. Costs about `states + RADIX` look-ups an element and
    `states / RADIX` elements of memory.
    """

    @jax.custom_batching.custom_vmap
    def along_lines(rows: Integer[Array, "lines n"], table: Array, entry: UInt[Array, " lines"]) -> Array:
        return _states(rows, table, entry, identity)

    @along_lines.def_vmap
    def _(axis_size: int, batched: list[bool], rows: Array, table: Array, entry: Array) -> tuple[Array, bool]:
        """A batch is more lines: batched by the primitives' own rules, its look-ups would not fuse."""
        if batched[1]:
            spread = [
                leaf if is_batched else jnp.stack([leaf] * axis_size)
                for leaf, is_batched in zip((rows, table, entry), batched, strict=True)
            ]
            return lax.map(lambda each: along_lines(*each), tuple(spread)), True
        lines = (axis_size, entry.shape[-1])
        rows = rows if batched[0] else jnp.broadcast_to(rows[None], (*lines, rows.shape[-1]))
        entry = entry if batched[2] else jnp.broadcast_to(entry[None], lines)
        states = along_lines(rows.reshape(-1, rows.shape[-1]), table, entry.reshape(-1))
        return states.reshape(*lines, -1), True

    return along_lines(rows[None], table, entry[None])[0]


class _Level(NamedTuple):
    """Functions in blocks of `RADIX`.

    starts    int32 [lines * blocks, RADIX]  where each function begins in `flat`; lines are filled up to whole blocks
    flat      uint [F * states]              the functions
    identity  where the identity begins
    lines     int
    """

    starts: Array
    flat: Array
    identity: int
    lines: int

    @classmethod
    def of(cls, functions: Integer[Array, "lines n"], flat: Array, identity: int, states: int) -> _Level:
        lines, size = functions.shape
        starts = functions.astype(jnp.int32) * states
        starts = jnp.pad(starts, ((0, 0), (0, -size % RADIX)), constant_values=identity * states)
        return cls(starts.reshape(-1, RADIX), flat, identity * states, lines)


def _states(rows: Array, table: Array, entry: Array, identity: int) -> Array:
    lines, size = rows.shape
    states = table.shape[1]
    # Two names for one array: slices that both ways share would be written out as arrays of their own.
    rows, again = lax.optimization_barrier((rows, rows))
    levels = [_Level.of(again, table.reshape(-1), identity, states)]
    level = _Level.of(rows, table.reshape(-1), identity, states)
    while (blocks := level.starts.shape[0]) > lines:
        composed = _compose(level, states)
        level = _Level.of(lax.iota(jnp.int32, blocks).reshape(lines, -1), composed, blocks, states)
        levels.append(level)
    before = entry
    for level in levels[:0:-1]:
        before = lax.optimization_barrier(_walk(level, before, inclusive=False))
    return _walk(levels[0], before, inclusive=True).reshape(lines, -1)[:, :size]


def _compose(level: _Level, states: int) -> Array:
    """The function of each block, one after another, and the identity at the end."""
    blocks, flat = level.starts.shape[0], level.flat

    def step(state: Array, start: Array, _: Array) -> Array:
        return _take(flat, _spread(start, states) + state.astype(jnp.int32))

    state = _chain(step, lax.broadcasted_iota(flat.dtype, (blocks, states), 1), level.starts)
    # The barrier keeps a level a kernel: fused with the next one, its look-ups would be done again for each use.
    return lax.optimization_barrier(jnp.concatenate([state.reshape(-1), lax.iota(flat.dtype, states)]))


def _walk(level: _Level, before: Array, *, inclusive: bool) -> Array:
    """The state before (or after) each function of each block, from the states before the blocks of each line.

    Every place walks its block on its own and idles by the identity: a chain in which each state is used once.
    """
    starts, flat, identity, lines = level
    blocks = starts.shape[0]
    last = lax.broadcasted_iota(jnp.int32, (blocks, RADIX), 1) - (0 if inclusive else 1)
    idle = jnp.full((blocks, RADIX), identity, jnp.int32)

    def step(state: Array, start: Array, column: Array) -> Array:
        return _take(flat, lax.select(last >= column, _spread(start, RADIX), idle) + state.astype(jnp.int32))

    state = _spread(before.reshape(lines, -1)[:, : blocks // lines].reshape(-1), RADIX)
    return _chain(step, state, starts).reshape(-1)


def _chain(step: Callable[[Array, Array, Array], Array], state: Array, starts: Int32[Array, "blocks radix"]) -> Array:
    """Applies `step` to the columns of `starts` in order: unrolled, so that a GPU has one kernel of it.

    A TPU fuses no look-ups, and its compiler takes minutes for the unrolled chains: there it is a loop.
    """

    def run(unroll: bool | int, state: Array, starts: Array) -> Array:
        columns = (starts.T, lax.iota(jnp.int32, RADIX))
        return lax.scan(lambda state, column: (step(state, *column), None), state, columns, unroll=unroll)[0]

    rolled, unrolled = functools.partial(run, 1), functools.partial(run, True)
    return lax.platform_dependent(state, starts, tpu=rolled, default=unrolled)


def _spread(values: Array, width: int) -> Array:
    return lax.broadcast_in_dim(values, (values.shape[0], width), (0,))


def _take(flat: Array, index: Int32[Array, " *shape"]) -> Array:
    """`flat[index]`, for indices known to lie inside.

    jnp's own indexing wraps negative indices first and so uses each index twice: a chain of look-ups then no longer
    fuses into one kernel.
    """
    return lax.gather(flat, index[..., None], _TAKE, (1,), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)
