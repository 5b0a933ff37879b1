"""Reads of an array by place: of a neighbour, of any place and of the nearest. Nothing about tokenizers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from toktier_jax.types import Table


def take(table: Table, index: jax.Array) -> jax.Array:
    """`table[index]` along the first axis, within it."""
    return jnp.asarray(table).at[index].get(mode="promise_in_bounds")


def nearest(table: Table, index: jax.Array) -> jax.Array:
    """`table[index]` along the first axis, with indices outside taken to the nearest entry; of any integer type."""
    return jnp.asarray(table).at[index.astype(jnp.int32)].get(mode="clip", wrap_negative_indices=False)


def before(values: jax.Array) -> jax.Array:
    """Each place sees what is before it; zero at the start."""
    return lax.pad(values, np.zeros((), values.dtype), ((1, -1, 0),))


def after(values: jax.Array, count: int) -> jax.Array:
    """Each place sees what is `count` places after it; zero past the end."""
    return lax.pad(values, np.zeros((), values.dtype), ((-count, count, 0),)) if count else values
