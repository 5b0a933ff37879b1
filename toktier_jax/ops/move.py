"""Gives the bytes of a buffer more or less room, and takes all that is known of each along to its new place."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32

from toktier_jax.ops.scan import Lowering, prefix_sum, running_max
from toktier_jax.types import Buffer


class Moved(NamedTuple):
    """A buffer after a move; its new bytes are still the first ones of what they came from.

    source  int32 [M]  the byte that each byte came from
    offset  int32 [M]  how many bytes of the same source are before it
    """

    buffer: Buffer
    source: Int32[Array, " M"]
    offset: Int32[Array, " M"]


def move(buffer: Buffer, widths: Int32[Array, " N"], size: int, *, lowering: Lowering) -> Moved:
    """Byte i of the text takes `widths[i]` bytes of a buffer of `size` bytes.

    A segment start at a byte that is dropped goes to the next that is not; a segment of which nothing is left is gone.
    If the text does not fit, `length` is larger than the buffer.
    """
    old = buffer.data.shape[0]
    index = jnp.arange(old, dtype=jnp.int32)
    text = index < buffer.length
    widths = jnp.where(text, widths, 0)
    ends = prefix_sum(widths, lowering=lowering)
    slots = ends - widths
    sources = jnp.zeros(size, jnp.int32).at[jnp.where(widths > 0, slots, size)].set(index, mode="drop")
    source = running_max(sources, lowering=lowering)
    marks = (buffer.starts & text).astype(jnp.uint8) + (buffer.texts & text).astype(jnp.uint8)
    marks = jnp.zeros(size, jnp.uint8).at[slots].max(marks, mode="drop")
    offset = jnp.arange(size, dtype=jnp.int32) - slots[source]
    token = None if buffer.token is None else jnp.where(offset == 0, buffer.token[source], -1)
    last = jnp.minimum(buffer.decided, old - 1)
    return Moved(
        Buffer(
            data=buffer.data[source],
            length=ends[-1],
            starts=marks > np.uint8(0),
            texts=marks > np.uint8(1),
            kind=buffer.kind[source],
            token=token,
            origin=origins(buffer)[:, source],
            decided=jnp.where(buffer.decided < buffer.length, slots[last], ends[-1]),
            resume=None if buffer.resume is None else buffer.resume[source] & (offset == 0),
        ),
        source,
        offset,
    )


def shift(buffer: Buffer, count: int, size: int) -> Buffer:
    """`count` bytes of room before the text, in a buffer of `size` bytes; they belong to its first segment."""
    old = buffer.data.shape[0]

    def moved(array: jax.Array) -> jax.Array:
        return lax.pad(array, np.zeros((), array.dtype), ((count, size - old - count, 0),))

    def begun(array: jax.Array) -> jax.Array:
        """What is said of the first byte of the text is said of the first byte of the room."""
        index = jnp.arange(size, dtype=jnp.int32)
        return jnp.where(index == count, False, moved(array)) | ((index == 0) & array[0]) if count else moved(array)

    return Buffer(
        data=moved(buffer.data),
        length=buffer.length + count,
        starts=begun(buffer.starts),
        texts=begun(buffer.texts),
        kind=moved(buffer.kind),
        token=None if buffer.token is None else moved(buffer.token + 1) - 1,
        origin=jnp.stack([moved(row) for row in origins(buffer)]),
        decided=jnp.where(buffer.decided > 0, buffer.decided + count, 0),
        resume=None if buffer.resume is None else begun(buffer.resume),
    )


def origins(buffer: Buffer) -> Int32[Array, "2 N"]:
    """The origin of each byte."""
    if buffer.origin is not None:
        return buffer.origin
    index = jnp.arange(buffer.data.shape[0], dtype=jnp.int32)
    return jnp.stack([index, index + 1])
