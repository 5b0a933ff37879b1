"""Tokens of all strings put in the order of the text: their first bytes are the members of a bit set."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, UInt32

from toktier_jax.ops.chunks import Stage, for_chunks, part, write
from toktier_jax.ops.members import Ranked, rank_of, ranked
from toktier_jax.ops.pieces import members_of, take_members
from toktier_jax.ops.places import take
from toktier_jax.ops.scan import Lowering

ELSEWHERE = -(1 << 30)
"""No id: below 0 after any distance in a text is added."""


class Tokens(NamedTuple):
    """Tokens of one buffer; positions are bytes of its data.

    ids, starts, ends  int32 [capacity], -1, 0 and 0 past `count`
    count              int32 []  number of tokens, also where it is above the capacity
    unresolved         bool []   the host must encode this text: a symbol or a merge is beyond these tables
    """

    ids: Int32[Array, " capacity"]
    starts: Int32[Array, " capacity"]
    ends: Int32[Array, " capacity"]
    count: Int32[Array, ""]
    unresolved: Bool[Array, ""]


class Strings(NamedTuple):
    """The strings of a text that are looked up, in order.

    begins  int32 [N + 1]  first byte of each, then the text's length
    edges   uint32 [W]     bit set of these bytes, less the length
    count   int32 []
    ids     int32 [N]      of each its only token's id; of one that has none or several ELSEWHERE + the distance to
                           the equal string whose tokens it has
    """

    begins: Int32[Array, " N+1"]
    edges: UInt32[Array, " W"]
    count: Int32[Array, ""]
    ids: Int32[Array, " N"]


def emit(
    strings: Strings,
    tokens: Int32[Array, " N"],
    firsts: UInt32[Array, " W"],
    capacity: int,
    chunk: int,
    *,
    lowering: Lowering,
    run: Stage,
) -> Tokens:
    """Takes the tokens in order.

    tokens: ids at the first bytes of the tokens of strings that have several; firsts: bit set of the first bytes of all
    tokens; chunk: tokens worked on at a time.
    """
    every, none = members_of(firsts)
    room = -(-capacity // chunk) * chunk
    text_end = strings.begins[-1]
    begins, _ = take_members(every, none, room + 1, text_end, lowering=lowering)
    edges = ranked(strings.edges)
    here = jnp.minimum(every.count, capacity)

    def describe(
        strings: Strings, edges: Ranked, tokens: jax.Array, begin: jax.Array, following: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        number = rank_of(edges, begin, own=True) - 1
        id = take(strings.ids, number)
        several = id < 0
        id = jnp.where(several, take(tokens, jnp.where(several, begin + id - ELSEWHERE, 0)), id)
        return id, jnp.minimum(following, take(strings.begins, number + 1))

    def body(start: jax.Array, out: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        begin, following = part(begins, start, chunk), part(begins, start + 1, chunk)
        real = start + jnp.arange(chunk, dtype=jnp.int32) < here
        id, end = run(describe, strings, edges, tokens, jnp.where(real, begin, 0), following)
        new = (jnp.where(real, id, -1), jnp.where(real, begin, 0), jnp.where(real, end, 0))
        return tuple(write(old, values, start) for old, values in zip(out, new, strict=True))

    zeros = jnp.zeros(room, jnp.int32)
    out = for_chunks(here, room, chunk, body, (jnp.full(room, -1, jnp.int32), zeros, zeros))
    ids, starts, ends = (values[:capacity] for values in out)
    return Tokens(ids, starts, ends, every.count, jnp.bool_(False))
