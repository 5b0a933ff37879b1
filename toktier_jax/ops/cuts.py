"""Cuts: borders between symbols that no token lies across, so that the two sides may be encoded apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, UInt8

from ..types import CutTables
from .hashing import gram_index, six
from .members import contains
from .scan import Lowering


def cut_mask(cuts: CutTables, data: UInt8[Array, " N+6"], *, dense: bool, lowering: Lowering) -> Bool[Array, " N"]:
    """Whether there is a cut before each of N bytes, given these with three more before and behind.

    Neither pieces nor ends of the text are looked at: what is not there counts as bytes 0. With "walk", a block
    without two neighbouring characters of three bytes is searched only if `dense`: few tokenizers that split their
    text into words first have other cuts inside them.
    """
    size = data.shape[0] - 6
    around = [data[k : k + size].astype(jnp.uint32) for k in range(6)]
    wide = ((around[0] & np.uint32(0xF0)) == np.uint32(0xE0)) & ((around[3] & np.uint32(0xF0)) == np.uint32(0xE0))
    lead = (around[3] & np.uint32(0xC0)) != np.uint32(0x80)

    def by_pairs() -> jax.Array:
        return lead & ~contains(cuts.pairs, (around[2] | around[3] << np.uint32(8)).astype(jnp.int32))

    def by_both() -> jax.Array:
        bits = cuts.grams.shape[0].bit_length() + 4
        six_bytes = contains(cuts.grams, gram_index(*six(*around), bits).astype(jnp.int32))
        return by_pairs() & ~(wide & six_bytes)

    if lowering == "arrays":
        return by_both()
    return lax.cond(jnp.any(wide), by_both, by_pairs if dense else lambda: jnp.zeros(size, bool))
