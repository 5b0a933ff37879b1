"""Is a byte buffer valid UTF-8? Four bytes at a time, elementwise, no scan. Decodes nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt8

from toktier_jax.ops.scan import some

_TOP = np.uint32(0x80808080)  # a fact about each byte of a word is told by the byte's top bit


def valid_utf8(data: UInt8[Array, " N"], length: Int32[Array, ""]) -> Bool[Array, ""]:
    """Whether data[:length] is valid UTF-8: bool [].

    Strict as Unicode's table 3-7 and Rust's `str`: no surrogate, nothing overlong, at most U+10FFFF, no character cut
    off at the end. Each byte is judged by itself and the three before it (Keiser and Lemire, Validating UTF-8 In Less
    Than One Instruction Per Byte, 2021), here in the bytes of 32-bit words instead of vector lanes.
    """
    size = data.shape[0]
    data = jnp.pad(data, (0, -size % 4)) if size % 4 else data
    words = lax.bitcast_convert_type(data.reshape(-1, 4), jnp.uint32)
    words = words & _text_only(length - 4 * jnp.arange(words.shape[0], dtype=jnp.int32))
    earlier = lax.optimization_barrier(lax.pad(words, np.uint32(0), ((1, -1, 0),)))
    bad = lax.reduce(_misplaced(words, earlier) | _forbidden(words, earlier), np.uint32(0), lax.bitwise_or, (0,))
    return (bad == 0) & ~_cut_off(data, length)


def _cut_off(data: jax.Array, length: jax.Array) -> jax.Array:
    """Whether one of the last bytes begins a character that needs more bytes than are left."""
    last = length - jnp.arange(1, 4, dtype=jnp.int32)
    lead = jnp.where(last >= 0, data[jnp.maximum(last, 0)], np.uint8(0))
    return some(lead >= jnp.asarray([0xC0, 0xE0, 0xF0], jnp.uint8))


def _text_only(left: jax.Array) -> jax.Array:
    """Mask of the first `left` bytes of each word: what follows the text counts as NUL."""
    bits = (8 * jnp.clip(left, 0, 3)).astype(jnp.uint32)
    return jnp.where(left >= 4, np.uint32(0xFFFFFFFF), (np.uint32(1) << bits) - np.uint32(1))


def _back(words: jax.Array, earlier: jax.Array, count: int) -> jax.Array:
    """The words as they were `count` bytes before."""
    return (words << np.uint32(8 * count)) | (earlier >> np.uint32(32 - 8 * count))


def _bit(words: jax.Array, bit: int) -> jax.Array:
    """Bit `bit` of each byte, moved to its top bit; the other bits mean nothing."""
    return words << np.uint32(7 - bit)


def _is(words: jax.Array, byte: int, mask: int = 0xFF) -> jax.Array:
    """Bytes that equal `byte` in the bits of `mask`."""
    rest = (words & np.uint32(mask * 0x01010101)) ^ np.uint32(byte * 0x01010101)
    return ~(((rest & ~_TOP) + ~_TOP) | rest) & _TOP


def _misplaced(words: jax.Array, earlier: jax.Array) -> jax.Array:
    """Continuation bytes where none is due, and other bytes where one is."""
    one, two, three = (_back(words, earlier, count) for count in (1, 2, 3))
    due = (one & _bit(one, 6)) | (two & _bit(two, 6) & _bit(two, 5))
    due |= three & _bit(three, 6) & _bit(three, 5) & _bit(three, 4)
    return (due ^ (words & ~_bit(words, 6))) & _TOP


def _forbidden(words: jax.Array, earlier: jax.Array) -> jax.Array:
    """C0, C1, F5 to FF; and second bytes that would spell an overlong form, a surrogate or too large a number."""
    one = _back(words, earlier, 1)
    five, four = _bit(words, 5), _bit(words, 4)
    above_f4 = _is(words, 0xF0, 0xF0) & (_bit(words, 3) | (_bit(words, 2) & (_bit(words, 1) | _bit(words, 0))))
    small = (_is(one, 0xE0) & ~five) | (_is(one, 0xF0) & ~five & ~four)
    large = (_is(one, 0xED) & five) | (_is(one, 0xF4) & (five | four))
    return (_is(words, 0xC0, 0xFE) | above_f4 | small | large) & _TOP
