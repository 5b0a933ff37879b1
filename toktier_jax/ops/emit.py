"""Tokens of all strings put in the order of the text: counted, ranked, scattered."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from .chunks import for_chunks, part
from .lookup import take
from .members import pack, rank_of, ranked, total
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

    begins  int32 [N + 1]  first byte of each, then the text's length
    count   int32 []
    ids     int32 [N]      of each its only token's id, -1 if it has none or several
    edges   uint32 [W]     bit set of the bytes where they begin
    missed  int32 [N]      numbers of those without an id
    misses  int32 []       how many these are
    """

    begins: Int32[Array, " N+1"]
    count: Int32[Array, ""]
    ids: Int32[Array, " N"]
    edges: UInt32[Array, " W"]
    missed: Int32[Array, " N"]
    misses: Int32[Array, ""]


def emit_walk(strings: Strings, moved: Int32[Array, " N"], tokens: Int32[Array, " N"], capacity: int) -> Tokens:
    """Writes the tokens of one string after the other, in a loop so small that XLA makes plain code of it on a CPU.

    The id of a missed string's token is in `tokens` at its first byte, so many bytes further on as `moved` says.
    """

    def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        ids, starts, ends, count, number, missed, byte = state
        start, end = _at(strings.begins, number), _at(strings.begins, number + 1)
        id = _at(strings.ids, number)
        here = start + byte
        several = id < 0
        id = jnp.where(several, _at(tokens, here + _at(moved, missed)), id)
        real = id >= 0
        # the token before it in the same string ends where this one begins
        before = jnp.maximum(count - 1, 0)
        ends = _put(ends, before, jnp.where(real & (byte > 0), here, _at(ends, before)))
        over = ~several | (here + 1 >= end)
        return (
            _put(ids, count, id),
            _put(starts, count, here),
            _put(ends, count, end),
            count + real.astype(jnp.int32),
            number + over.astype(jnp.int32),
            missed + (over & several).astype(jnp.int32),
            jnp.where(over, 0, byte + 1),
        )

    zero = jnp.int32(0)
    blank = jnp.zeros(capacity + 1, jnp.int32)  # the last entry takes what is too much
    state = (jnp.full(capacity + 1, -1, jnp.int32), blank, blank, zero, zero, zero, zero)
    ids, starts, ends, count, *_ = lax.while_loop(lambda state: state[4] < strings.count, step, state)
    unused = jnp.arange(capacity, dtype=jnp.int32) >= count
    ids = jnp.where(unused, -1, ids[:capacity])  # entry `count` may hold what was no token
    starts, ends = (jnp.where(unused, 0, place[:capacity]) for place in (starts, ends))
    return Tokens(ids, starts, ends, count, jnp.bool_(False))


def _at(array: jax.Array, index: jax.Array) -> jax.Array:
    return lax.dynamic_index_in_dim(array, index, keepdims=False)


def _put(array: jax.Array, index: jax.Array, value: jax.Array) -> jax.Array:
    return lax.dynamic_update_index_in_dim(array, value, index, axis=0)


def emit_arrays(
    strings: Strings, missed_edges: UInt32[Array, " W"], tokens: Int32[Array, " N"], capacity: int, chunk: int
) -> Tokens:
    """Writes single tokens and those of missed strings to their ranks among all tokens.

    missed_edges: bit set of the bytes where missed strings begin. The id of a missed string's token is in `tokens` at
    its first byte. chunk: strings worked on at a time.
    """
    size = strings.ids.shape[0]
    firsts = pack(tokens >= 0)
    every = ranked((strings.edges & ~missed_edges) | firsts)
    missed_before = ranked(missed_edges)
    end_of_text = strings.begins[-1]
    list_, count = in_order(firsts, end_of_text, extra=1, lowering="arrays")
    out = (jnp.full(capacity, -1, jnp.int32), jnp.zeros(capacity, jnp.int32), jnp.zeros(capacity, jnp.int32))

    def put(
        out: tuple[jax.Array, ...], real: jax.Array, ids: jax.Array, begins: jax.Array, ends: jax.Array
    ) -> tuple[jax.Array, ...]:
        where = jnp.where(real, rank_of(every, begins), capacity)
        return tuple(a.at[where].set(v, mode="drop") for a, v in zip(out, (ids, begins, ends), strict=True))

    def single(start: jax.Array, out: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        ids, begins = part(strings.ids, start, chunk), part(strings.begins, start, chunk)
        real = (start + jnp.arange(chunk, dtype=jnp.int32) < strings.count) & (ids >= 0)
        return put(out, real, ids, begins, part(strings.begins, start + 1, chunk))

    out = for_chunks(strings.count, size, chunk, single, out)

    def several(start: jax.Array, out: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        begins = part(list_, start, chunk)
        number = rank_of(missed_before, begins, own=True) - 1
        ends = jnp.minimum(part(list_, start + 1, chunk), take(strings.begins, take(strings.missed, number) + 1))
        return put(out, start + jnp.arange(chunk, dtype=jnp.int32) < count, take(tokens, begins), begins, ends)

    out = for_chunks(count, size, chunk, several, out)
    return Tokens(*out, total(every), jnp.bool_(False))
