"""Strings of a text looked up among the tokens, many at once, and verified byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt8, UInt32

from toktier_jax.ops.chunks import Stage
from toktier_jax.ops.hashing import hash_pair, powers
from toktier_jax.ops.places import take
from toktier_jax.types import SELF, SHORT, Lexicon, Table

_ALL = np.uint32(0xFFFFFFFF)


class Found(NamedTuple):
    """What look-ups gave: whether each string is an entry, its id, whether BPE of the string gives this id."""

    hit: Bool[Array, " C"]
    id: Int32[Array, " C"]
    own: Bool[Array, " C"]


def as_words(data: UInt8[Array, " N"], longest: int) -> UInt32[Array, " W"]:
    """The bytes as little-endian words, with zeros behind for strings of up to `longest` bytes that begin anywhere."""
    padded = jnp.pad(data, (0, -data.shape[0] % 4 + 4 * (longest // 4 + 2)))
    return lax.bitcast_convert_type(padded.reshape(-1, 4), jnp.uint32)


def load(words: UInt32[Array, " W"], start: Int32[Array, " C"], size: Int32[Array, " C"], width: int) -> jax.Array:
    """Strings from any byte on: uint32 [C, width], the first 4 * width bytes of each, zero from its size on.

    One gather of neighbouring words a string: on a CPU that costs as much as a gather of one.
    """
    numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(), start_index_map=(0,))
    parts = lax.gather(words, (start >> 2)[:, None], numbers, (width + 1,), mode="promise_in_bounds")
    shift = ((start & 3) << 3).astype(jnp.uint32)[:, None]
    whole = (parts[:, :-1] >> shift) | ((parts[:, 1:] << np.uint32(1)) << (np.uint32(31) - shift))
    left = size[:, None] - 4 * jnp.arange(width, dtype=jnp.int32)[None, :]
    some = (np.uint32(1) << ((left & 3) << 3).astype(jnp.uint32)) - np.uint32(1)
    return whole & jnp.where(left >= 4, _ALL, jnp.where(left > 0, some, np.uint32(0)))


def slot_of(seed: jax.Array, displacements: Table, words: Sequence[jax.Array]) -> Int32[Array, " C"]:
    """The only slot of a perfect hash table (program/perfect_hash.py) where each key can be."""
    first, second = hash_pair(words, seed)
    buckets = displacements.shape[0]
    bucket = (first >> np.uint32(33 - buckets.bit_length())).astype(jnp.int32)
    place = (second >> np.uint32(31 - buckets.bit_length())).astype(jnp.int32)
    return (place + take(displacements, bucket)) & np.int32(4 * buckets - 1)


def find_short(lexicon: Lexicon, strings: UInt32[Array, "C 4"], mark: UInt32[Array, " C"], run: Stage) -> Found:
    """Looks up strings of up to 16 bytes; longer ones (by their mark) miss."""

    def slots(lexicon: Lexicon, strings: jax.Array, mark: jax.Array) -> jax.Array:
        columns = [strings[:, k] for k in range(SHORT // 4)]
        return slot_of(lexicon.seeds[0], lexicon.displacements, [*columns, mark])

    def compare(lexicon: Lexicon, slot: jax.Array, strings: jax.Array, mark: jax.Array) -> Found:
        row = take(lexicon.rows, slot)
        hit = (row[:, 4] == mark) & jnp.all(row[:, : SHORT // 4] == strings, axis=1)
        return Found(hit, (row[:, 5] & ~SELF).astype(jnp.int32), (row[:, 5] & SELF) != 0)

    return run(compare, lexicon, run(slots, lexicon, strings, mark), strings, mark)


def find_long(lexicon: Lexicon, strings: UInt32[Array, "C W"], mark: UInt32[Array, " C"]) -> Found:
    """Looks up strings of more than 16 bytes; those that the lexicon's width cannot hold miss by their mark."""
    width = strings.shape[1]
    folds = [jnp.sum(strings * jnp.asarray(factor)[None, :], axis=1, dtype=jnp.uint32) for factor in powers(width)]
    row = take(lexicon.strings, slot_of(lexicon.seeds[1], lexicon.displacements_, [*folds, mark]))
    hit = (row[:, width] == mark) & jnp.all(row[:, :width] == strings, axis=1)
    return Found(hit, (row[:, -1] & ~SELF).astype(jnp.int32), (row[:, -1] & SELF) != 0)
