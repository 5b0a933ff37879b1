"""Where pieces, and what cuts leave of them, begin; and the members of any bit set in order, chunk by chunk."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, UInt32

from ..types import TEXT, Buffer, CutTables
from .chunks import for_chunks, part, write
from .cuts import cut_mask
from .members import pack, ranked, ranks, total, unpack
from .scan import Lowering


class Edges(NamedTuple):
    """Bit sets over the bytes of a text, uint32 [W] each.

    pieces   where pieces begin
    strings  where these begin, or what is between two cuts in them
    leads    where characters begin
    """

    pieces: UInt32[Array, " W"]
    strings: UInt32[Array, " W"]
    leads: UInt32[Array, " W"]


def find_edges(cuts: CutTables, buffer: Buffer, chunk: int, *, dense: bool, lowering: Lowering) -> Edges:
    """The edges in a buffer of whole chunks; `dense` as for `cut_mask`."""
    size = buffer.data.shape[0]
    data = jnp.pad(buffer.data, 3)

    def body(start: jax.Array, edges: Edges) -> Edges:
        inside = start + jnp.arange(chunk, dtype=jnp.int32) < buffer.length
        begins = part(buffer.starts, start, chunk) & inside
        text = (part(buffer.kind, start, chunk) == TEXT) & inside
        around = part(data, start, chunk + 6)
        cut = cut_mask(cuts, around, dense=dense, lowering=lowering) & text
        lead = (around[3:-3] & np.uint8(0xC0)) != np.uint8(0x80)
        new = Edges(pack(begins), pack(begins | cut), pack(lead))
        return Edges(*(write(old, words, start // 32) for old, words in zip(edges, new, strict=True)))

    empty = jnp.zeros(size // 32, jnp.uint32)
    return for_chunks(buffer.length, size, chunk, body, Edges(empty, empty, empty))


def in_order(
    words: UInt32[Array, " W"], below: jax.Array, chunk: int, padding: jax.Array, extra: int = 0
) -> tuple[Int32[Array, " M"], Int32[Array, ""]]:
    """The members of a bit set in order, all of them `below` a position: int32 [32 W + extra], then `padding`.

    Also their number. The set is whole chunks.
    """
    size = 32 * words.shape[0]

    def body(start: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        members, found = state
        here = ranked(part(words, start // 32, chunk // 32))
        slot = jnp.where(unpack(here.words), found + ranks(here), size + extra)
        members = members.at[slot].set(start + jnp.arange(chunk, dtype=jnp.int32), mode="drop")
        return members, found + total(here)

    members = jnp.full(size + extra, padding, jnp.int32)
    return for_chunks(below, size, chunk, body, (members, jnp.int32(0)))
