"""Where pieces, and what cuts leave of them, begin; and the members of any bit set in order, chunk by chunk."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32, UInt32

from toktier_jax.ops.chunks import for_chunks, part, write
from toktier_jax.ops.cuts import cut_mask
from toktier_jax.ops.members import Ranked, pack, ranked, ranks, total, unpack
from toktier_jax.ops.scan import Lowering
from toktier_jax.types import TEXT, Buffer, CutTables


class Edges(NamedTuple):
    """Bit sets over the bytes of a text, uint32 [W] each.

    pieces   where pieces begin
    strings  where these begin, or what is between two cuts in them
    """

    pieces: UInt32[Array, " W"]
    strings: UInt32[Array, " W"]


def find_edges(cuts: CutTables, buffer: Buffer, chunk: int, *, dense: bool, lowering: Lowering) -> Edges:
    """The edges in a buffer of whole chunks; `dense` as for `cut_mask`."""
    size = buffer.data.shape[0]
    data = jnp.pad(buffer.data, 3)

    def body(start: jax.Array, edges: Edges) -> Edges:
        inside = start + jnp.arange(chunk, dtype=jnp.int32) < buffer.length
        begins = part(buffer.starts, start, chunk) & inside
        text = (part(buffer.kind, start, chunk) == TEXT) & inside
        cut = cut_mask(cuts, part(data, start, chunk + 6), dense=dense, lowering=lowering) & text
        new = Edges(pack(begins), pack(begins | cut))
        return Edges(*(write(old, words, start // 32) for old, words in zip(edges, new, strict=True)))

    empty = jnp.zeros(size // 32, jnp.uint32)
    return for_chunks(buffer.length, size, chunk, body, Edges(empty, empty))


class Members(NamedTuple):
    """The members of a bit set, to be taken in order.

    every   the set, counted
    count   int32 []  how many they are
    """

    every: Ranked
    count: Int32[Array, ""]


class Cursor(NamedTuple):
    """How far members were taken: how many, and the word that the next one is in, with the members left in it."""

    taken: Int32[Array, ""]
    number: Int32[Array, ""]
    word: UInt32[Array, ""]


def members_of(words: UInt32[Array, " W"]) -> tuple[Members, Cursor]:
    """The members of a set, and the cursor before the first."""
    every = ranked(words)
    return Members(every, total(every)), Cursor(jnp.int32(0), jnp.int32(0), words[0])


def take_members(
    of: Members, cursor: Cursor, size: int, padding: jax.Array, *, lowering: Lowering
) -> tuple[Int32[Array, " size"], Cursor]:
    """The next `size` members, then `padding` where there are no more."""
    upto = jnp.minimum(of.count, cursor.taken + size)
    members = jnp.full(size, padding, jnp.int32)
    if lowering == "walk":
        return _one_by_one(of.every.words, upto - cursor.taken, members, cursor)
    slot = jnp.where(unpack(of.every.words), ranks(of.every) - cursor.taken, size)
    slot = jnp.where(slot < 0, size, slot)
    members = members.at[slot].set(jnp.arange(slot.shape[0], dtype=jnp.int32), mode="drop")
    return members, cursor._replace(taken=upto)


def _one_by_one(
    words: UInt32[Array, " W"], count: jax.Array, members: Int32[Array, " M"], cursor: Cursor
) -> tuple[Int32[Array, " M"], Cursor]:
    """A step takes a word's lowest member, or the next word: plain code, as XLA compiles so small a loop on a CPU."""

    def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        members, found, number, word = state
        none = word == 0
        low = word & (~word + np.uint32(1))
        member = (number << 5) + lax.population_count(low - np.uint32(1)).astype(jnp.int32)
        # without a member this writes where the next one will be written
        members = lax.dynamic_update_index_in_dim(members, member, found, axis=0)
        number = number + none.astype(jnp.int32)
        word = jnp.where(none, lax.dynamic_index_in_dim(words, number, keepdims=False), word ^ low)
        return members, found + (~none).astype(jnp.int32), number, word

    start = (members, jnp.int32(0), cursor.number, cursor.word)
    members, found, number, word = lax.while_loop(lambda state: state[1] < count, step, start)
    return members, Cursor(cursor.taken + found, number, word)
