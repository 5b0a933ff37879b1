"""Every second member of runs: which pairs of `aaaaaa` merge when the leftmost pair does first."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, UInt32

from toktier_jax.ops.members import max_before, pack, unpack

_EVEN = np.uint32(0x55555555)


def alternate(
    ties: Bool[Array, " N"], begin: Bool[Array, " N"], earlier: tuple[Bool[Array, 2], Bool[Array, 2]]
) -> Bool[Array, " N"]:
    """The 2nd, 4th, ... of each run of true entries of `ties` whose predecessor's `begin` is true; N % 32 == 0.

    earlier: the two entries before the first, of `ties` and of `begin`. A sum of two sets carries through a run to its
    end (Langdale and Lemire, Parsing Gigabytes of JSON per Second, VLDB Journal 2019): added at the first member of
    runs that begin at an even position, it clears just these.
    """
    run, begins = (
        jnp.concatenate([_last_two(two), pack(mask)]) for mask, two in zip((ties, begin), earlier, strict=True)
    )
    first = run & ~_later(run) & _later(begins)
    from_even = run & ~_add(run, first & _EVEN)
    from_odd = run & ~_add(run, first & ~_EVEN)
    return unpack(((from_even & ~_EVEN) | (from_odd & _EVEN))[1:])


def _last_two(entries: Bool[Array, 2]) -> UInt32[Array, 1]:
    """A word with two entries in its upper bits."""
    return jnp.sum(entries.astype(jnp.uint32) << jnp.arange(30, 32, dtype=jnp.uint32), keepdims=True, dtype=jnp.uint32)


def _later(words: UInt32[Array, " W"]) -> UInt32[Array, " W"]:
    """Every member moved on by one."""
    return (words << np.uint32(1)) | jnp.concatenate([jnp.zeros(1, jnp.uint32), words[:-1] >> np.uint32(31)])


def _add(left: UInt32[Array, " W"], right: UInt32[Array, " W"]) -> UInt32[Array, " W"]:
    """The sum of two numbers of 32 W bits, lowest word first.

    A word's carry is that of the last word before it which does not merely pass one on.
    """
    total = left + right
    carries = (total < left).astype(jnp.int32)
    passes = total == np.uint32(0xFFFFFFFF)
    index = jnp.arange(total.shape[0], dtype=jnp.int32)
    last = max_before(jnp.where(passes, -1, 2 * index + carries))
    return total + jnp.where(last < 0, 0, last & 1).astype(jnp.uint32)
