"""Keeps XLA from fusing a cheap array expression into an expensive reader of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from toktier_jax.ops.scan import Lowering


def materialize(value: jax.Array, length: jax.Array, *, lowering: Lowering) -> jax.Array:
    """`value`, computed once and stored; `length` is any int32 [] that is never negative.

    Fused into a reduction or a broadcast an expression is computed again for each element read and not vectorized,
    10 times slower on a CPU. XLA drops optimization barriers there before it fuses, but keeps a branch that it cannot
    decide.
    """
    if lowering == "arrays":
        return lax.optimization_barrier(value)
    return lax.cond(length >= 0, lambda kept: kept, jnp.zeros_like, value)
