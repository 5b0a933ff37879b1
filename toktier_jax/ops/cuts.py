"""Cuts: borders between symbols that no token lies across, so that the two sides may be encoded apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, UInt8

from toktier_jax.ops.hashing import gram_index, six
from toktier_jax.ops.members import contains
from toktier_jax.ops.scan import Lowering, some
from toktier_jax.types import CutTables


def cut_mask(cuts: CutTables, data: UInt8[Array, " N+6"], *, dense: bool, lowering: Lowering) -> Bool[Array, " N"]:
    """Whether there is a cut before each of N bytes, given these with three more before and behind.

    Neither pieces nor ends of the text are looked at: what is not there counts as bytes 0. With "walk", a block
    without two neighbouring characters of three bytes is searched only if `dense`: few tokenizers that split their
    text into words first have other cuts inside them.
    """
    size = data.shape[0] - 6
    before, after = data[:size], data[3 : 3 + size]
    wide = ((before & np.uint8(0xF0)) == np.uint8(0xE0)) & ((after & np.uint8(0xF0)) == np.uint8(0xE0))

    def by_pairs(data: jax.Array) -> jax.Array:
        pair = data[2 : 2 + size].astype(jnp.int32) | data[3 : 3 + size].astype(jnp.int32) << 8
        return ((data[3 : 3 + size] & np.uint8(0xC0)) != np.uint8(0x80)) & ~contains(cuts.pairs, pair)

    def by_both(data: jax.Array) -> jax.Array:
        bits = cuts.grams.shape[0].bit_length() + 4
        around = [data[k : k + size].astype(jnp.uint32) for k in range(6)]
        six_bytes = contains(cuts.grams, gram_index(*six(*around), bits).astype(jnp.int32))
        return by_pairs(data) & ~(wide & six_bytes)

    if lowering == "arrays":
        return by_both(data)
    return lax.cond(some(wide), by_both, by_pairs if dense else lambda data: jnp.zeros(size, bool), data)
