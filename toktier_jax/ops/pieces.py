"""Where pieces, and what cuts leave of them, begin; and the members of any bit set in order, chunk by chunk."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
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
    words: UInt32[Array, " W"], padding: jax.Array, extra: int = 0, *, lowering: Lowering
) -> tuple[Int32[Array, " M"], Int32[Array, ""]]:
    """The members of a bit set in order, int32 [32 W + extra], then `padding`; and their number."""
    size = 32 * words.shape[0]
    members = jnp.full(size + extra, padding, jnp.int32)
    if lowering == "walk":
        count = jnp.sum(lax.population_count(words).astype(jnp.int32), dtype=jnp.int32)
        return _one_by_one(words, count, members), count
    every = ranked(words)
    slot = jnp.where(unpack(words), ranks(every), size + extra)
    return members.at[slot].set(jnp.arange(size, dtype=jnp.int32), mode="drop"), total(every)


def _one_by_one(words: UInt32[Array, " W"], count: jax.Array, members: Int32[Array, " M"]) -> Int32[Array, " M"]:
    """A step takes a word's lowest member, or the next word: plain code, as XLA compiles so small a loop on a CPU."""

    def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        members, found, number, word = state
        none = word == 0
        low = word & (~word + np.uint32(1))
        member = (number << 5) + lax.population_count(low - np.uint32(1)).astype(jnp.int32)
        # without a member this writes where the next one will be written
        members = lax.dynamic_update_slice(members, jnp.where(none, members[found], member)[None], (found,))
        number = number + none.astype(jnp.int32)
        word = jnp.where(none, lax.dynamic_index_in_dim(words, number, keepdims=False), word ^ low)
        return members, found + (~none).astype(jnp.int32), number, word

    start = (members, jnp.int32(0), jnp.int32(0), words[0])
    return lax.while_loop(lambda state: state[1] < count, step, start)[0]
