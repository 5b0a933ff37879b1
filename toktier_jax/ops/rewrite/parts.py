"""What the rewrites share: reads of their tables, and bytes that take other data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt8

from toktier_jax.ops.move import Moved, origins
from toktier_jax.ops.places import before, nearest
from toktier_jax.types import CONT, Buffer, RewriteTables


def with_data(
    moved: Moved,
    new: Bool[Array, " M"],
    data: UInt8[Array, " M"],
    ends: Int32[Array, " M"],
    starts: Int32[Array, " M"] | None = None,
) -> Buffer:
    """The moved buffer with other bytes where they are `new`, and another origin: by default with the same start."""
    buffer = moved.buffer
    start, end = origins(buffer)
    origin = jnp.stack([start if starts is None else jnp.where(new, starts, start), jnp.where(new, ends, end)])
    return buffer._replace(data=jnp.where(new, data, buffer.data), origin=origin)


def pool_of(tables: RewriteTables) -> jax.Array:
    assert tables.pool is not None, "tables of a plan that makes bytes"
    return jnp.asarray(tables.pool)


def begins_member(tables: RewriteTables, symbols: jax.Array) -> Bool[Array, " N"]:
    """Whether a character of the plan's class begins at each byte."""
    assert tables.members is not None, "tables of a plan with a class"
    return nearest(tables.members, symbols)


def members(tables: RewriteTables, symbols: jax.Array) -> Bool[Array, " N"]:
    """Whether each byte lies in a character of the plan's class."""
    member = begins_member(tables, symbols)
    for _ in range(3):
        member = member | (before(member) & (symbols == np.uint8(CONT)))
    return member
