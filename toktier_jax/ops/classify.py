"""The symbol of each byte: the class of the character that begins there, CONT or PAD. Knows classes only as numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32, UInt8, UInt16

from ..types import CONT, PAD


def classify(
    data: UInt8[Array, " n"],
    length: Int32[Array, ""],
    pages: UInt8[Array, 4352] | UInt16[Array, 4352],
    table: UInt8[Array, "pages 256"],
    codes: UInt8[Array, 8],
) -> UInt8[Array, " n"]:
    """Symbols of valid UTF-8, and of internal codes 0xF8 + k, each a character of class `codes[k]`.

    `pages[code point >> 8]` is a row of `table`, which holds the class of each code point of the page.
    """
    code_point = _code_points(data)
    page = pages.at[lax.shift_right_logical(code_point, 8)].get(mode="clip")
    symbol = table.reshape(-1).at[(page.astype(jnp.int32) << 8) | (code_point & 0xFF)].get(mode="clip")
    symbol = jnp.where(
        data >= np.uint8(0xF8), codes.at[(data & np.uint8(7)).astype(jnp.int32)].get(mode="clip"), symbol
    )
    symbol = jnp.where((data & np.uint8(0xC0)) == np.uint8(0x80), np.uint8(CONT), symbol)
    return _padded(symbol, length)


def classify_bytes(data: UInt8[Array, " n"], length: Int32[Array, ""], table: UInt8[Array, 256]) -> UInt8[Array, " n"]:
    """Symbols of text in which every byte is a character of its own (after `ByteLevel`)."""
    return _padded(table.at[data.astype(jnp.int32)].get(mode="clip"), length)


def _code_points(data: jax.Array) -> jax.Array:
    """The code point that begins at each byte, int32 [n]; what stands at other bytes means nothing."""
    first = data.astype(jnp.int32)
    one, two, three = (_following(data, count) for count in (1, 2, 3))
    short = ((first & 0x1F) << 6) | one
    middle = ((first & 0x0F) << 12) | (one << 6) | two
    long = ((first & 0x07) << 18) | (one << 12) | (two << 6) | three
    return jnp.where(first < 0x80, first, jnp.where(first < 0xE0, short, jnp.where(first < 0xF0, middle, long)))


def _following(data: jax.Array, count: int) -> jax.Array:
    """The six payload bits of the byte `count` places on."""
    return lax.pad(data, np.uint8(0), ((-count, count, 0),)).astype(jnp.int32) & 0x3F


def _padded(symbol: jax.Array, length: jax.Array) -> jax.Array:
    return jnp.where(lax.iota(jnp.int32, symbol.shape[0]) < length, symbol, np.uint8(PAD))
