"""Long arrays worked on chunk by chunk, so that cost follows what is there and a chunk stays in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from toktier_jax.ops.scan import Lowering

State = TypeVar("State")


def for_chunks(
    count: jax.Array, capacity: int, size: int, body: Callable[[jax.Array, State], State], state: State
) -> State:
    """`state = body(start, state)` for start = 0, size, 2 size, ... below `count` (int32 []), which is <= `capacity`.

    Where one chunk holds the capacity there is no loop.
    """
    if size >= capacity:
        return body(jnp.int32(0), state)
    _, state = lax.while_loop(
        lambda carry: carry[0] < count,
        lambda carry: (carry[0] + size, body(carry[0], carry[1])),
        (jnp.int32(0), state),
    )
    return state


def part(array: jax.Array, start: jax.Array, size: int) -> jax.Array:
    """`array[start : start + size]` along the first axis; within it."""
    return lax.dynamic_slice_in_dim(array, start, size)


def write(array: jax.Array, values: jax.Array, start: jax.Array) -> jax.Array:
    """`array` with `values` from `start` on along the first axis; within it."""
    return lax.dynamic_update_slice_in_dim(array, values, start, axis=0)


class Stage(Protocol):
    """Runs `function(*operands)`."""

    def __call__(self, function: Callable[..., Any], *operands: Any) -> Any: ...


def stage(lowering: Lowering, count: jax.Array) -> Stage:
    """How a stage of look-ups is run: for "walk" in kernels of its own; `count`: any int32 [] that is not negative.

    XLA's CPU compiler fuses what feeds a gather into it, and computes that again for each word of a row and for each
    of its uses; the branch of a conditional, here one that is always taken, is compiled apart.
    """

    def apart(function: Callable[..., Any], *operands: Any) -> Any:
        def never(*operands: Any) -> Any:
            return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(function, *operands))

        return lax.cond(count >= 0, function, never, *operands)

    return apart if lowering == "walk" else lambda function, *operands: function(*operands)
