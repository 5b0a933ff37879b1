"""The symbol of each byte: the class of the character that begins there, CONT or PAD. Knows classes only as numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32, UInt8, UInt16

from toktier_jax.ops.blocks import apart, by_blocks, take
from toktier_jax.ops.scan import Lowering, some
from toktier_jax.types import CONT, PAD

_BLOCK = 1 << 13


def classify(
    data: UInt8[Array, " n"],
    length: Int32[Array, ""],
    pages: UInt8[Array, " 4352"] | UInt16[Array, " 4352"],
    table: UInt8[Array, "page 256"],
    codes: UInt8[Array, " 8"],
    *,
    lowering: Lowering,
) -> UInt8[Array, " n"]:
    """Symbols of valid UTF-8, and of internal codes 0xF8 + k, each a character of class `codes[k]`.

    `pages[code point >> 8]` is a row of `table`, which holds the class of each code point of the page. Blocks of plain
    ASCII take one look-up a byte on a CPU.
    """
    size = data.shape[0]
    block = min(size, _BLOCK) if lowering == "walk" else size
    padded = lax.pad(data, np.uint8(0), ((0, -size % block + 3, 0),))
    table = table.reshape(-1)
    ascii_page = lax.dynamic_slice(table, (pages[0].astype(jnp.int32) << 8,), (128,))

    def ascii_only(text: jax.Array) -> jax.Array:
        return take(ascii_page, text[:block].astype(jnp.int32))

    def any_text(text: jax.Array) -> jax.Array:
        page, place = apart(_code_points, text, when=length >= 0) if lowering == "walk" else _code_points(text)
        page = take(pages, page.astype(jnp.int32)).astype(jnp.int32)
        return _special(text[:block], take(table, (page << 8) | place.astype(jnp.int32)), codes)

    def one(start: jax.Array) -> jax.Array:
        text = lax.dynamic_slice(padded, (start,), (block + 3,))
        return lax.cond(some(text >= np.uint8(0x80)), any_text, ascii_only, text)

    symbol = by_blocks(one, size, block, length)[:size] if lowering == "walk" else any_text(padded)
    return _padded(symbol, length)


def classify_bytes(
    data: UInt8[Array, " n"], length: Int32[Array, ""], table: UInt8[Array, " 256"]
) -> UInt8[Array, " n"]:
    """Symbols of text in which every byte is a character of its own (after `ByteLevel`)."""
    return _padded(take(table, data.astype(jnp.int32)), length)


def _code_points(text: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Page (code point >> 8, uint16 [n]) and place (code point & 255, uint8 [n]) of the character at each byte.

    `text` is uint8 [n + 3]. What stands at bytes that begin no character means nothing, but is in range.
    """
    size = text.shape[0] - 3
    first, one, two, three = (lax.slice(text, (k,), (size + k,)) for k in range(4))
    one, two, three = one & np.uint8(0x3F), two & np.uint8(0x3F), three & np.uint8(0x3F)
    six, two_bits, four_bits = np.uint8(6), np.uint8(2), np.uint8(4)

    def by_length(
        one_byte: jax.Array, two_bytes: jax.Array, three_bytes: jax.Array, four_bytes: jax.Array
    ) -> jax.Array:
        rest = jnp.where(first < np.uint8(0xF0), three_bytes, four_bytes)
        return jnp.where(first < np.uint8(0x80), one_byte, jnp.where(first < np.uint8(0xE0), two_bytes, rest))

    place = by_length(first, (first << six) | one, (one << six) | two, (two << six) | three)
    short = (first & np.uint8(0x1F)) >> two_bits
    middle = ((first & np.uint8(0x0F)) << four_bits) | (one >> two_bits)
    high = ((first & np.uint8(0x07)) << two_bits) | (one >> four_bits)  # at most 31; 16 in valid text
    low = (one << four_bits) | (two >> two_bits)
    wide = jnp.minimum(high, np.uint8(0x10)).astype(jnp.uint16) << np.uint16(8) | low.astype(jnp.uint16)
    page = by_length(jnp.zeros_like(wide), short.astype(jnp.uint16), middle.astype(jnp.uint16), wide)
    return page, place


def _special(text: jax.Array, symbol: jax.Array, codes: jax.Array) -> jax.Array:
    """Symbols of internal codes and of bytes that continue a character put in place."""
    symbol = jnp.where(text >= np.uint8(0xF8), take(codes, (text & np.uint8(7)).astype(jnp.int32)), symbol)
    return jnp.where((text & np.uint8(0xC0)) == np.uint8(0x80), np.uint8(CONT), symbol)


def _padded(symbol: jax.Array, length: jax.Array) -> jax.Array:
    return jnp.where(lax.iota(jnp.int32, symbol.shape[0]) < length, symbol, np.uint8(PAD))
