"""Whether a text is in the normal form already, as far as one look at each character tells. Changes no byte."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, UInt8

from toktier_jax.ops.places import nearest
from toktier_jax.types import TEXT, Buffer, Table


def quick_check(
    flags: Table, buffer: Buffer, symbols: UInt8[Array, " N"], *, at_end: bool = True
) -> tuple[Buffer, Bool[Array, ""]]:
    """The buffer, and whether a TEXT segment holds a character with `flags[symbol]`.

    With `at_end=False` what follows may still join the last character: `decided` becomes at most its first byte.
    """
    index = jnp.arange(buffer.data.shape[0], dtype=jnp.int32)
    text = index < buffer.length
    flagged = nearest(flags, symbols)
    suspect = flagged & text & (buffer.kind == np.uint8(TEXT))
    failed = jnp.max(suspect.astype(jnp.uint8)) > np.uint8(0)
    if at_end:
        return buffer, failed
    back = buffer.length - jnp.arange(1, 5, dtype=jnp.int32)
    tail = nearest(buffer.data, back)
    lead = (back >= 0) & ((tail & np.uint8(0xC0)) != np.uint8(0x80))
    last = jnp.max(jnp.where(lead, back, 0))
    return buffer._replace(decided=jnp.minimum(buffer.decided, last)), failed
