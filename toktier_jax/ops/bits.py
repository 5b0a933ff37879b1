"""Bit sets over byte positions, 32 to a word: rank, select, the next and the previous member. Nothing about tokenizers.

What is rare in a text (added tokens, their borders) is found and filled in words, 32 times cheaper than in bytes
(rank and select after Jacobson, Space-efficient Static Trees and Graphs, FOCS 1989).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

_BLOCK = 8  # words that are counted together


class Ranked(NamedTuple):
    """A bit set that can be counted and indexed.

    words   uint32 [W]     bit i % 32 of word i // 32: position i is a member
    before  int32 [W / 8]  members in the blocks of 8 words before each
    count   int32 []
    """

    words: UInt32[Array, " W"]
    before: Int32[Array, " B"]
    count: Int32[Array, ""]


def word_count(size: int) -> int:
    """Words for `size` positions: whole blocks."""
    return -(-size // (32 * _BLOCK)) * _BLOCK


def pack(mask: Bool[Array, " N"]) -> UInt32[Array, " W"]:
    """The set of true positions."""
    missing = word_count(mask.shape[0]) * 32 - mask.shape[0]
    return _pack_rows(jnp.pad(mask, (0, missing)) if missing else mask)


def unpack(words: UInt32[Array, " W"], size: int) -> Bool[Array, " N"]:
    """The set as bool [size]."""
    bits = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)[None, :]) & np.uint32(1)
    return (bits != 0).reshape(-1)[:size]


def ranked(words: UInt32[Array, " W"]) -> Ranked:
    """Counts the members."""
    counts = jnp.sum(_count(words).reshape(-1, _BLOCK), axis=1, dtype=jnp.int32)
    upto = jnp.cumsum(counts, dtype=jnp.int32)
    return Ranked(words, upto - counts, upto[-1])


def rank(bits: Ranked, positions: Int32[Array, " C"]) -> Int32[Array, " C"]:
    """Members before each position (0 to 32 W)."""
    block = jnp.minimum(positions // (32 * _BLOCK), bits.before.shape[0] - 1)
    word = (block * _BLOCK)[:, None] + jnp.arange(_BLOCK, dtype=jnp.int32)[None, :]
    return bits.before[block] + jnp.sum(_count(bits.words[word] & _low(positions[:, None] - 32 * word)), axis=1)


def select(bits: Ranked, first: Int32[Array, ""], count: int) -> Int32[Array, " C"]:
    """Positions of the `count` members with ranks from `first` on; 32 W for a rank that is none."""
    slot = jnp.maximum(bits.before - first, 0)  # a block's first member; the last of the blocks with none counts
    numbers = jnp.arange(slot.shape[0], dtype=jnp.int32)
    block = lax.cummax(jnp.zeros(count, jnp.int32).at[slot].max(numbers, mode="drop"))
    words = bits.words.reshape(-1, _BLOCK)[block]
    ranks = first + jnp.arange(count, dtype=jnp.int32)
    skip, word, left = ranks - bits.before[block], jnp.zeros_like(block), words[:, 0]
    for column in range(_BLOCK - 1):
        here = _count(words[:, column])
        beyond = (word == column) & (skip >= here)
        skip, word = jnp.where(beyond, skip - here, skip), jnp.where(beyond, column + 1, word)
        left = jnp.where(beyond, words[:, column + 1], left)
    place = jnp.zeros_like(block)
    for width in (16, 8, 4, 2, 1):
        low = _count(left & np.uint32((1 << width) - 1))
        beyond = skip >= low
        skip = jnp.where(beyond, skip - low, skip)
        left = jnp.where(beyond, left >> np.uint32(width), left)
        place = jnp.where(beyond, place + width, place)
    return jnp.where(ranks < bits.count, 32 * (_BLOCK * block + word) + place, 32 * bits.words.shape[0])


def fill(edges: UInt32[Array, " W"]) -> UInt32[Array, " W"]:
    """Positions with an odd number of members at or before them: the insides of intervals, given both ends of each."""
    filled = edges
    for step in (1, 2, 4, 8, 16):
        filled = filled ^ (filled << np.uint32(step))
    odd = (filled >> np.uint32(31)) != 0
    if edges.shape[0] == 1:
        return filled
    missing = -edges.shape[0] % 32
    upto = unpack(fill(_pack_rows(jnp.pad(odd, (0, missing)))), edges.shape[0])
    return filled ^ jnp.where(upto != odd, np.uint32(0xFFFFFFFF), np.uint32(0))


def _pack_rows(mask: Bool[Array, " N"]) -> UInt32[Array, " W"]:
    bits = mask.reshape(-1, 32).astype(jnp.uint32) << jnp.arange(32, dtype=jnp.uint32)[None, :]
    return jnp.sum(bits, axis=1, dtype=jnp.uint32)


def _count(words: jax.Array) -> jax.Array:
    return lax.population_count(words).astype(jnp.int32)


def _low(count: jax.Array) -> jax.Array:
    """Words with their lowest `count` bits set (none below 0, all from 32)."""
    some = (np.uint32(1) << jnp.clip(count, 0, 31).astype(jnp.uint32)) - np.uint32(1)
    return jnp.where(count >= 32, np.uint32(0xFFFFFFFF), some)


class Neighbours(NamedTuple):
    """A bit set in which the next or the previous member of a position is found.

    words  uint32 [W]
    near   int32 [W]   the nearest word with a member, from this word on in the direction of the search (W or -1: none)
    """

    words: UInt32[Array, " W"]
    near: Int32[Array, " W"]


def forward(words: UInt32[Array, " W"]) -> Neighbours:
    """For `next_member`."""
    count = words.shape[0]
    return Neighbours(words, lax.cummin(jnp.where(words != 0, jnp.arange(count, dtype=jnp.int32), count), reverse=True))


def backward(words: UInt32[Array, " W"]) -> Neighbours:
    """For `last_member`."""
    return Neighbours(words, lax.cummax(jnp.where(words != 0, jnp.arange(words.shape[0], dtype=jnp.int32), -1)))


def next_member(bits: Neighbours, positions: Int32[Array, " C"]) -> Int32[Array, " C"]:
    """The first member at or after each position (0 to 32 W); 32 W where there is none."""
    words, near = bits
    count = words.shape[0]
    word = positions >> 5
    here = jnp.where(word < count, words[jnp.minimum(word, count - 1)], np.uint32(0))
    here = here & (np.uint32(0xFFFFFFFF) << (positions & 31).astype(jnp.uint32))
    later = jnp.where(word + 1 < count, near[jnp.minimum(word + 1, count - 1)], count)
    word = jnp.where(here != 0, word, later)
    here = jnp.where(here != 0, here, jnp.where(word < count, words[jnp.minimum(word, count - 1)], np.uint32(1)))
    lowest = lax.population_count((here & (~here + np.uint32(1))) - np.uint32(1)).astype(jnp.int32)
    return (word << 5) + lowest


def last_member(bits: Neighbours, positions: Int32[Array, " C"]) -> Int32[Array, " C"]:
    """The last member at or before each position (0 to 32 W - 1); -1 where there is none."""
    words, near = bits
    word = positions >> 5
    here = words[word] & (np.uint32(0xFFFFFFFF) >> (np.uint32(31) - (positions & 31).astype(jnp.uint32)))
    word = jnp.where(here != 0, word, jnp.where(word > 0, near[jnp.maximum(word - 1, 0)], -1))
    here = jnp.where(here != 0, here, words[jnp.maximum(word, 0)])
    return jnp.where(word < 0, -1, (word << 5) + 31 - lax.clz(here).astype(jnp.int32))
