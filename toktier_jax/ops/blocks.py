"""Elementwise work and look-ups on long buffers, block by block up to the text's length, for CPUs.

XLA fuses everything elementwise that feeds a look-up into its kernel, and computes it again for each use; the branches
of a conditional are compiled apart, which is the only wall that it respects. So a stage behind a wall is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Function = Callable[..., Any]


_ELEMENTS = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))


def take(flat: jax.Array, index: jax.Array) -> jax.Array:
    """`flat[index]` for int32 indices known to lie inside, without the checks of jnp's indexing."""
    return lax.gather(flat, index[..., None], _ELEMENTS, (1,), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def apart(function: Function, *operands: jax.Array, when: jax.Array) -> Any:
    """`function(*operands)`, in kernels of its own, where bool [] `when` holds; else zeros."""

    def nothing(*operands: jax.Array) -> Any:
        shapes = jax.eval_shape(function, *operands)
        return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    return lax.cond(when, function, nothing, *operands)


def by_blocks(function: Function, size: int, block: int, length: jax.Array) -> Any:
    """`function(start)` for the block at each start = 0, block, ... below `length`.

    It returns a pytree of arrays of one block each. The result holds those one after another, as many as cover `size`,
    with zeros for the blocks at or past `length`.
    """
    blocks = -(-size // block)
    shapes = jax.eval_shape(function, jax.ShapeDtypeStruct((), jnp.int32))
    if blocks == 1:
        return apart(function, jnp.int32(0), when=length >= 0)

    def step(number: jax.Array, results: Any) -> Any:
        parts = apart(function, number * block, when=length >= 0)

        def put(result: jax.Array, part: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice(result, part, (number * part.shape[0],))

        return jax.tree.map(put, results, parts)

    empty = jax.tree.map(lambda shape: jnp.zeros((blocks * shape.shape[0],), shape.dtype), shapes)
    return lax.fori_loop(0, jnp.clip(-(-length // block), 0, blocks), step, empty)
