"""Bit sets of positions, 32 to a word: packing, counting, and their members in order. Nothing about tokenizers.

Prefix sums go by levels of 32, each a masked sum over a triangle: one kernel a level, and small programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

_BELOW = np.tri(32, 32, -1, dtype=bool)
_LOWER = (np.uint64(1) << np.arange(32, dtype=np.uint64)).astype(np.uint32) - np.uint32(1)
"""`_LOWER[i]` has the bits below bit i."""

_NIBBLE = np.uint32(0x10204080)
"""Times a word of four bytes 0 or 1: these as a nibble in the upper four bits."""


def pack(mask: Bool[Array, " N"]) -> UInt32[Array, " W"]:
    """The set of true positions; N is a multiple of 32."""
    fours = lax.bitcast_convert_type(mask.astype(jnp.uint8).reshape(-1, 4), jnp.uint32)
    nibbles = ((fours * _NIBBLE) >> np.uint32(28)).reshape(-1, 8)
    return jnp.sum(nibbles << (4 * jnp.arange(8, dtype=jnp.uint32))[None, :], axis=1, dtype=jnp.uint32)


def unpack(words: UInt32[Array, " W"]) -> Bool[Array, " N"]:
    """The set as bool [32 W]."""
    return ((words[:, None] >> jnp.arange(32, dtype=jnp.uint32)[None, :]) & np.uint32(1) != 0).reshape(-1)


def sums_before(values: Int32[Array, " M"]) -> Int32[Array, " M"]:
    """Sum of all earlier entries."""
    return _before(values, 0, lambda rows, axis: jnp.sum(rows, axis=axis, dtype=jnp.int32), jnp.add)


def max_before(values: Int32[Array, " M"]) -> Int32[Array, " M"]:
    """Largest of all earlier entries, or -1."""
    return _before(values, -1, lambda rows, axis: jnp.max(rows, axis=axis), jnp.maximum)


def _before(
    values: Int32[Array, " M"],
    empty: int,
    reduce: Callable[[jax.Array, int], jax.Array],
    join: Callable[[jax.Array, jax.Array], jax.Array],
) -> Int32[Array, " M"]:
    """The reduction of all earlier entries, by levels of 32, each over a triangle; `empty` is that of none."""
    size = values.shape[0]
    if size <= 32:
        return reduce(jnp.where(_BELOW[:size, :size], values[None, :], empty), 1)
    rows = jnp.pad(values, (0, -size % 32), constant_values=empty).reshape(-1, 32)
    inner = reduce(jnp.where(_BELOW[None], rows[:, None, :], empty), 2)
    return join(inner, _before(reduce(rows, 1), empty, reduce, join)[:, None]).reshape(-1)[:size]


def contains(words: UInt32[Array, " W"], position: Int32[Array, ...]) -> Bool[Array, ...]:
    """Whether each position (within the words) is a member."""
    word = jnp.asarray(words).at[position >> 5].get(mode="promise_in_bounds")
    return (word >> (position & 31).astype(jnp.uint32)) & np.uint32(1) != 0


class Ranked(NamedTuple):
    """A bit set, and the number of members before each word.

    words   uint32 [W]
    before  int32 [W]
    """

    words: UInt32[Array, " W"]
    before: Int32[Array, " W"]


def ranked(words: UInt32[Array, " W"]) -> Ranked:
    """Counts the members."""
    return Ranked(words, sums_before(lax.population_count(words).astype(jnp.int32)))


def total(of: Ranked) -> Int32[Array, ""]:
    """The number of members."""
    return of.before[-1] + lax.population_count(of.words[-1]).astype(jnp.int32)


def rank_of(of: Ranked, position: Int32[Array, " C"], *, own: bool = False) -> Int32[Array, " C"]:
    """Members before each position (within the words), itself counted too with `own`."""
    pair = jnp.stack([of.words.astype(jnp.int32), of.before], axis=1).at[position >> 5].get(mode="promise_in_bounds")
    below = (np.uint32(1 + own) << (position & 31).astype(jnp.uint32)) - np.uint32(1)
    return pair[:, 1] + lax.population_count(pair[:, 0].astype(jnp.uint32) & below).astype(jnp.int32)


def ranks(of: Ranked) -> Int32[Array, " N"]:
    """Members before each of the 32 W positions."""
    inner = lax.population_count(of.words[:, None] & jnp.asarray(_LOWER)[None, :]).astype(jnp.int32)
    return (of.before[:, None] + inner).reshape(-1)


def shift(words: UInt32[Array, " W"], by: int) -> UInt32[Array, " W"]:
    """The set with `by` added to each position, less than 32 either way; what leaves the words is dropped."""
    up, down = np.uint32(abs(by)), np.uint32(32 - abs(by))
    if by < 0:
        return words >> up | jnp.pad(words, (0, 1))[1:] << down
    return words << up | jnp.pad(words, (1, 0))[:-1] >> down


def toggle(words: UInt32[Array, " W"], positions: Int32[Array, " C"], mask: Bool[Array, " C"]) -> UInt32[Array, " W"]:
    """Adds the positions where `mask` says so to the set: distinct ones, and none of them a member."""
    index = jnp.where(mask, positions >> 5, words.shape[0])
    return words.at[index].add(np.uint32(1) << (positions & 31).astype(jnp.uint32), mode="drop")


def insides(edges: UInt32[Array, " W"]) -> UInt32[Array, " W"]:
    """Positions with an odd number of members at or before them: the insides of intervals, given both ends of each."""
    filled = edges
    for step in (1, 2, 4, 8, 16):
        filled = filled ^ (filled << np.uint32(step))
    odd = (filled >> np.uint32(31)).astype(jnp.int32)
    return filled ^ jnp.where(sums_before(odd) & 1 == 1, np.uint32(0xFFFFFFFF), np.uint32(0))
