"""Equal strings are encoded once: each string that misses is sent to the first one found that equals it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt32

from .chunks import for_chunks, part, write
from .hashing import hash_pair
from .lookup import load, take

LONGEST = 32
"""Bytes of a string at most: longer ones seldom repeat."""

_WIDTH = LONGEST // 4
_NUMBER = np.uint32(0x9E3779B1)


def models(
    words: UInt32[Array, " W"],
    start: Int32[Array, " U"],
    mark: Int32[Array, " U"],
    count: jax.Array,
    chunk: int,
) -> Int32[Array, " U"]:
    """For each of `count` strings the number of one that equals it (itself, if need be): int32 [U].

    start: first byte; mark: 4 * bytes + place, as in a Lexicon, or 0 for what is no string. U is whole chunks. Strings
    of one hash compete for one place of a table; a loser that is not equal to the winner stays alone.
    """
    size = start.shape[0]
    bits = max(10, (size // 8).bit_length())

    def slots(first: jax.Array) -> tuple[jax.Array, jax.Array, Bool[Array, " C"]]:
        marks = part(mark, first, chunk)
        strings = load(words, part(start, first, chunk), marks >> 2, _WIDTH)
        columns = [strings[:, k] for k in range(_WIDTH)]
        columns[0] = columns[0] ^ marks.astype(jnp.uint32) * _NUMBER
        hashed = hash_pair(columns, jnp.uint32(0))[0] >> np.uint32(32 - bits)
        return hashed.astype(jnp.int32), strings, (marks > 0) & (marks < 4 * LONGEST + 4)

    def claim(first: jax.Array, table: jax.Array) -> jax.Array:
        slot, _, short = slots(first)
        number = first + jnp.arange(chunk, dtype=jnp.int32)
        return table.at[jnp.where(short, slot, 1 << bits)].set(number, mode="drop")

    table = for_chunks(count, size, chunk, claim, jnp.zeros(1 << bits, jnp.int32))

    def compare(first: jax.Array, model: jax.Array) -> jax.Array:
        slot, strings, short = slots(first)
        winner = take(table, slot)
        marks = take(mark, winner)
        theirs = load(words, take(start, winner), marks >> 2, _WIDTH)
        same = short & (marks == part(mark, first, chunk)) & jnp.all(theirs == strings, axis=1)
        number = first + jnp.arange(chunk, dtype=jnp.int32)
        return write(model, jnp.where(same, winner, number), first)

    return for_chunks(count, size, chunk, compare, jnp.arange(size, dtype=jnp.int32))
