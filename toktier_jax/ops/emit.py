"""Tokens of all strings put in the order of the text: counted, ranked, scattered."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, UInt32

from .chunks import Stage, for_chunks, part
from .lookup import take
from .members import Ranked, rank_of, ranked, total
from .pieces import in_order


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
    """The strings of a text that are looked up, in order, and those of them that are no single token.

    begins   int32 [N + 1]  first byte of each, then the text's length
    count    int32 []
    ids      int32 [N]      of each its only token's id, -1 if it has none or several
    edges    uint32 [W]     bit set of the bytes where they begin
    missed   int32 [N]      numbers of those without an id
    misses   int32 []       how many these are
    """

    begins: Int32[Array, " N+1"]
    count: Int32[Array, ""]
    ids: Int32[Array, " N"]
    edges: UInt32[Array, " W"]
    missed: Int32[Array, " N"]
    misses: Int32[Array, ""]


def emit(
    strings: Strings,
    missed_edges: UInt32[Array, " W"],
    tokens: Int32[Array, " N"],
    firsts: UInt32[Array, " W"],
    moved: Int32[Array, " N"],
    capacity: int,
    *,
    chunks: tuple[int, int],
    run: Stage,
) -> Tokens:
    """Writes single tokens and those of missed strings to their places among all tokens.

    missed_edges: bit set of the bytes where missed strings begin; firsts: of those where their tokens begin. The id of
    such a token is in `tokens`, so many bytes further on as `moved` says for the string. chunks: bytes and strings
    worked on at a time.
    """
    size = strings.ids.shape[0]
    every = ranked((strings.edges & ~missed_edges) | firsts)
    missed_before = ranked(missed_edges)
    end_of_text = strings.begins[-1]
    list_, count = in_order(firsts, end_of_text, chunks[0], end_of_text, extra=1)
    out = (jnp.full(capacity, -1, jnp.int32), jnp.zeros(capacity, jnp.int32), jnp.zeros(capacity, jnp.int32))
    chunk = chunks[1]

    def place(every: Ranked, begins: jax.Array, real: jax.Array) -> jax.Array:
        return jnp.where(real, rank_of(every, begins), capacity)

    def put(out: tuple[jax.Array, ...], where: jax.Array, *values: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(a.at[where].set(v, mode="drop") for a, v in zip(out, values, strict=True))

    def single(start: jax.Array, out: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        ids, begins = part(strings.ids, start, chunk), part(strings.begins, start, chunk)
        real = (start + jnp.arange(chunk, dtype=jnp.int32) < strings.count) & (ids >= 0)
        return put(out, run(place, every, begins, real), ids, begins, part(strings.begins, start + 1, chunk))

    out = for_chunks(strings.count, size, chunk, single, out)

    def describe(begins: jax.Array, next_: jax.Array) -> tuple[jax.Array, jax.Array]:
        number = rank_of(missed_before, begins, own=True) - 1
        end = take(strings.begins, take(strings.missed, number) + 1)
        return take(tokens, begins + take(moved, number)), jnp.minimum(next_, end)

    def several(start: jax.Array, out: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        begins = part(list_, start, chunk)
        real = start + jnp.arange(chunk, dtype=jnp.int32) < count
        ids, ends = run(describe, begins, part(list_, start + 1, chunk))
        return put(out, run(place, every, begins, real), ids, begins, ends)

    out = for_chunks(count, size, chunk, several, out)
    return Tokens(*out, total(every), jnp.bool_(False))
