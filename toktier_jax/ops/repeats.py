"""Equal strings are encoded once: each string that misses is sent to the first one found that equals it."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt32

from toktier_jax.ops.chunks import Stage, for_chunks, part, write
from toktier_jax.ops.hashing import hash_pair
from toktier_jax.ops.lookup import load
from toktier_jax.ops.places import take

LONGEST = 32
"""Bytes of a string at most: longer ones seldom repeat."""

_WIDTH = LONGEST // 4
_NUMBER = np.uint32(0x9E3779B1)


def distances(
    words: UInt32[Array, " W"],
    start: Int32[Array, " U"],
    mark: Int32[Array, " U"],
    count: jax.Array,
    chunk: int,
    run: Stage,
) -> Int32[Array, " U"]:
    """For each of `count` strings the distance in bytes to one that equals it, 0 if that is itself: int32 [U].

    start: first byte; mark: 4 * bytes + place, as in a Lexicon, or 0 for what is no string. U is whole chunks. Strings
    of one hash compete for one place of a table; a loser that is not equal to the winner stays alone.
    """
    size = start.shape[0]
    bits = max(10, (size // 8).bit_length())

    def short(first: jax.Array) -> Bool[Array, " C"]:
        marks = part(mark, first, chunk)
        return (marks > 0) & (marks < 4 * LONGEST + 4)

    def claim(first: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        slot = run(hash_of, words, part(start, first, chunk), part(mark, first, chunk))
        number = first + jnp.arange(chunk, dtype=jnp.int32)
        table = state[0].at[jnp.where(short(first), slot, 1 << bits)].set(number, mode="drop")
        return table, write(state[1], slot, first)

    def hash_of(words: jax.Array, start: jax.Array, mark: jax.Array) -> jax.Array:
        strings = load(words, start, mark >> 2, _WIDTH)
        columns = [strings[:, k] for k in range(_WIDTH)]
        columns[0] = columns[0] ^ mark.astype(jnp.uint32) * _NUMBER
        return (hash_pair(columns, jnp.uint32(0))[0] >> np.uint32(32 - bits)).astype(jnp.int32)

    state = (jnp.zeros(1 << bits, jnp.int32), jnp.zeros(size, jnp.int32))
    table, slots = for_chunks(count, size, chunk, claim, state)

    def compare(first: jax.Array, moved: jax.Array) -> jax.Array:
        winner = take(table, part(slots, first, chunk))
        marks, here = part(mark, first, chunk), part(start, first, chunk)
        there = take(start, winner)
        mine, theirs = (run(functools.partial(load, width=_WIDTH), words, place, marks >> 2) for place in (here, there))
        same = short(first) & (take(mark, winner) == marks) & jnp.all(theirs == mine, axis=1)
        return write(moved, jnp.where(same, there - here, 0), first)

    return for_chunks(count, size, chunk, compare, jnp.zeros(size, jnp.int32))


def copy_bits(
    source: UInt32[Array, " W"],
    target: UInt32[Array, " W"],
    start: Int32[Array, " U"],
    moved: Int32[Array, " U"],
    size: Int32[Array, " U"],
) -> UInt32[Array, " W"]:
    """`target`, empty in all strings that have moved, with their models' members of `source` at their own places."""
    none = target.shape[0]
    apart = (moved != 0) & (size <= LONGEST)
    there = jnp.where(apart, start + moved, 0)
    word, shift = there >> 5, (there & 31).astype(jnp.uint32)
    bits = take(source, word) >> shift | (take(source, word + 1) << np.uint32(1)) << (np.uint32(31) - shift)
    some = (np.uint32(1) << (size & 31).astype(jnp.uint32)) - np.uint32(1)
    bits = bits & jnp.where(size > 31, ~np.uint32(0), some)
    word, shift = start >> 5, (start & 31).astype(jnp.uint32)
    target = target.at[jnp.where(apart, word, none)].add(bits << shift, mode="drop")
    over = (bits >> np.uint32(1)) >> (np.uint32(31) - shift)
    return target.at[jnp.where(apart, word + 1, none)].add(over, mode="drop")
