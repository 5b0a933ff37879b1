"""Two 32-bit hashes of a few words, the same in numpy (when tables are built) and in JAX (when they are read)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from toktier_jax.types import NEVER

Words = TypeVar("Words")
"""uint32 arrays of one shape, of numpy or of JAX."""

_ODD = np.random.default_rng(20).integers(0, 1 << 32, (2, 8), np.uint32) | np.uint32(1)
_FINISH = (np.uint32(0x2C1B3C6D), np.uint32(0x297A2D39))
_POWERS = (np.uint32(0x9E3779B1), np.uint32(0x85EBCA77))


def hash_pair(words: Sequence[Words], seed: Words) -> tuple[Words, Words]:
    """Two hashes of up to 8 words, whose upper bits are mixed best; a table's seed is chosen when it is built."""
    result = []
    for odd, finish in zip(_ODD, _FINISH, strict=True):
        value = words[0] * odd[0]
        for word, factor in zip(words[1:], odd[1:], strict=False):
            value = value + word * factor
        value = value ^ seed
        value = (value ^ (value >> np.uint32(15))) * finish
        result.append((value ^ (value >> np.uint32(13))) * finish)
    return result[0], result[1]


def powers(count: int) -> np.ndarray:
    """Factors that fold a long string's words into two: uint32 [2, count]; the sums of word * factor are hashed."""
    factors = np.ones((2, count), np.uint32)
    for row, base in zip(factors, _POWERS, strict=True):
        np.multiply.accumulate(np.full(count, base, np.uint32), out=row)
    return factors


SYMBOL_BITS = 14
"""Bits of a symbol's hash in a table of symbols; above two of these a token's count of symbols has four, as a power."""


def pack_symbols(first: Words, last: Words, power: Words) -> Words:
    """A token's first and last symbol and the power of two that is at most its count of symbols, in a word."""
    return first | last << np.uint32(SYMBOL_BITS) | power << np.uint32(2 * SYMBOL_BITS)


def first_key(packed: Words) -> Words:
    """The key of a neighbour on the right, for `bound_index`, from its packed symbols."""
    return bound_key(packed & np.uint32((1 << SYMBOL_BITS) - 1), packed >> np.uint32(2 * SYMBOL_BITS))


def last_key(packed: Words) -> Words:
    """The key of a neighbour on the left."""
    symbol = (packed >> np.uint32(SYMBOL_BITS)) & np.uint32((1 << SYMBOL_BITS) - 1)
    return bound_key(symbol, packed >> np.uint32(2 * SYMBOL_BITS))


def bound_key(symbol: Words, power: Words) -> Words:
    return symbol | power << np.uint32(SYMBOL_BITS)


def bound_index(key: Words, id: Words, bits: int) -> Words:
    """Where in a table of 2 ** bits entries the bound of an id with a neighbour of that key is: uint32 arrays."""
    value = (key + np.uint32(1)) * np.uint32(0x7FEB352D) ^ id * np.uint32(0x846CA68B)
    return (value ^ (value >> np.uint32(15))) * np.uint32(0xC2B2AE3D) >> np.uint32(32 - bits)


def gram_index(first: Words, second: Words, bits: int) -> Words:
    """Which of 2 ** bits bits stands for these two words."""
    value = (first ^ (first >> np.uint32(15))) * np.uint32(0xD168AAAD) ^ second * np.uint32(0xAF723597)
    return (value ^ (value >> np.uint32(16))) * np.uint32(0x9E3779B1) >> np.uint32(32 - bits)


def six(b0: Words, b1: Words, b2: Words, b3: Words, b4: Words, b5: Words) -> tuple[Words, Words]:
    """The three bytes before a border and the three after it, as two words for `gram_index`."""
    return b0 | b1 << np.uint32(8) | b2 << np.uint32(16), b3 | b4 << np.uint32(8) | b5 << np.uint32(16)


_BOUND_SHIFT, _BOUND_MOST = 3, 0xFFFF


def pack_bound(rank: np.ndarray) -> np.ndarray:
    """Lower bounds of ranks, rounded down to uint16."""
    return np.where(rank == NEVER, _BOUND_MOST, np.minimum(rank >> _BOUND_SHIFT, _BOUND_MOST - 1)).astype(np.uint16)


def unpack_bound(bound: jax.Array) -> jax.Array:
    """The ranks that uint16 bounds stand for, int32."""
    return jnp.where(bound == _BOUND_MOST, NEVER, bound.astype(jnp.int32) << _BOUND_SHIFT)
