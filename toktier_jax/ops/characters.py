"""Characters of two or three bytes that are one token before anything merges with them (program/characters.py).

Merging that starts from them instead of their bytes saves the first passes over text in most of the world's scripts.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32, UInt8, UInt32

from toktier_jax.ops.chunks import Stage, for_chunks, part, write
from toktier_jax.ops.members import pack, shift
from toktier_jax.ops.places import take
from toktier_jax.ops.scan import some
from toktier_jax.types import CharacterTables

Bytes = TypeVar("Bytes")
"""Integer arrays of bytes, of numpy or of JAX."""

BUCKETS = 16
"""Kinds of neighbours on one side."""


def left_bucket(byte: Bytes) -> Bytes:
    """The kind of the byte before a character: ASCII, or the upper bits of what ends another character."""
    return (byte >> 7) * (byte >> 2 & 15)


def right_bucket(byte: Bytes) -> Bytes:
    """The kind of the byte after a character: ASCII, or the lower bits of what begins another one."""
    return byte & 15 | (1 - (byte >> 7)) * 15


class Characters(NamedTuple):
    """Bit sets over the bytes of a text, uint32 [W] each.

    begins  where a character begins that is made whatever else happens
    inside  its other bytes
    """

    begins: UInt32[Array, " W"]
    inside: UInt32[Array, " W"]


def find_characters(
    tables: CharacterTables,
    data: UInt8[Array, " N"],
    length: Int32[Array, ""],
    positions: UInt32[Array, " W"],
    heads: UInt32[Array, " W"],
    chunk: int,
    run: Stage,
) -> Characters:
    """The characters all of whose bytes are among `positions` and none after the first among `heads`.

    Those at the very ends of the data are left out: what is beside them is not in sight. `data` is whole chunks.
    """
    size = data.shape[0]
    padded = jnp.pad(data, (1, 3))

    def parse(start: jax.Array) -> tuple[jax.Array, ...]:
        window = part(padded, start, chunk + 4).astype(jnp.int32)
        before, first, second, third, fourth = (window[k : k + chunk] for k in range(5))
        three = (first & 0xF0) == 0xE0
        after = jnp.where(three, fourth, third)
        here = np.int32(1) << left_bucket(before) | np.int32(1) << (BUCKETS + right_bucket(after))
        at = start + jnp.arange(chunk, dtype=jnp.int32)
        inside = (at > 0) & (at + jnp.where(three, 3, 2) < length)
        return jnp.where(inside, _code(first, second, third), 0), here, pack(three)

    def search(start: jax.Array) -> tuple[jax.Array, jax.Array]:
        code, neighbours, three = run(parse, start)
        return pack(take(tables.risks, code) & neighbours == 0), three

    def nothing(start: jax.Array) -> tuple[jax.Array, jax.Array]:
        none = jnp.zeros(chunk // 32, jnp.uint32)
        return none, none

    def body(start: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        wide = some(part(data, start, chunk) >= np.uint8(0x80))
        new = lax.cond(wide, search, nothing, start)
        return write(state[0], new[0], start // 32), write(state[1], new[1], start // 32)

    none = jnp.zeros(size // 32, jnp.uint32)
    begins, three = for_chunks(length, size, chunk, body, (none, none))
    joined = positions & ~heads
    begins = begins & positions & shift(joined, -1) & (~three | shift(joined, -2))
    return Characters(begins, shift(begins, 1) | shift(begins & three, 2))


def _code(first: jax.Array, second: jax.Array, third: jax.Array) -> jax.Array:
    """The code points of characters of two or three bytes, int32 each; 0 where none begins."""
    tail = (first & 0x0F) << 12 | (second & 0x3F) << 6 | third & 0x3F
    two = (first >= 0xC2) & (first < 0xE0)
    return jnp.where((first & 0xF0) == 0xE0, tail, jnp.where(two, (first & 0x1F) << 6 | second & 0x3F, 0))


def made_at(tables: CharacterTables, words: UInt32[Array, " C"]) -> Int32[Array, "C 2"]:
    """Ids and levels (ops/certain.py) of the characters that these words, little-endian, begin with."""
    first, second, third = ((words >> np.uint32(8 * k) & np.uint32(0xFF)).astype(jnp.int32) for k in range(3))
    return take(tables.made, _code(first, second, third))
