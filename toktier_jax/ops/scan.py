"""Prefix sums, running maxima, compaction and "any" over [N], in both lowerings. Nothing about tokenizers."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

Lowering = Literal["arrays", "walk"]


def prefix_sum(values: jax.Array, *, lowering: Lowering) -> jax.Array:
    """Inclusive prefix sum of int32 [N]."""
    del lowering
    return jnp.cumsum(values, dtype=jnp.int32)


def running_max(values: jax.Array, *, lowering: Lowering, reverse: bool = False) -> jax.Array:
    """Inclusive running maximum of int32 [N], from the left, or from the right with `reverse`."""
    if lowering == "arrays":  # 6 kernels and 0.3 s of compiling for a GPU, where associative_scan takes 10 and 2 s
        return lax.cummax(values, reverse=reverse)
    return lax.associative_scan(jnp.maximum, values, reverse=reverse)


def running_min(values: jax.Array, *, lowering: Lowering, reverse: bool = False) -> jax.Array:
    """Inclusive running minimum of int32 [N], from the left, or from the right with `reverse`."""
    return -running_max(-values, lowering=lowering, reverse=reverse)


def compact(mask: jax.Array, capacity: int, *, lowering: Lowering) -> tuple[jax.Array, jax.Array]:
    """Positions of the true entries of bool [N], in order.

    Returns int32 [capacity], padded with N, and their number as int32 [] (which can exceed `capacity`).
    """
    size = mask.shape[0]
    rank = prefix_sum(mask.astype(jnp.int32), lowering=lowering)
    slot = jnp.where(mask, rank - 1, capacity)
    positions = jnp.full((capacity,), size, jnp.int32)
    return positions.at[slot].set(jnp.arange(size, dtype=jnp.int32), mode="drop"), rank[-1]


def some(mask: jax.Array) -> jax.Array:
    """Whether any entry of bool [N] is true: bool []. Compiles in a tenth of the time of `jnp.any` on a CPU."""
    return jnp.max(mask.astype(jnp.int32)) > 0
