"""Tokens of all strings put in the order of the text: counted, ranked, scattered."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from .lookup import take
from .members import pack, rank_of, ranked
from .pieces import members_of, take_members

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
    count   int32 []
    ids     int32 [N]      of each its only token's id; ELSEWHERE + distance to the equal string whose tokens it has for
                           one that has none or several
    """

    begins: Int32[Array, " N+1"]
    count: Int32[Array, ""]
    ids: Int32[Array, " N"]


def emit_walk(strings: Strings, tokens: Int32[Array, " N"], capacity: int) -> Tokens:
    """Writes the tokens of one string after the other, in a loop so small that XLA makes plain code of it on a CPU.

    tokens: ids at the first bytes of tokens of strings that have several, -1 elsewhere.
    """

    def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        ids, starts, ends, count, number, byte = state
        start, end = _at(strings.begins, number), _at(strings.begins, number + 1)
        id = _at(strings.ids, number)
        here, several = start + byte, id < 0
        id = jnp.where(several, _at(tokens, here + id - ELSEWHERE), id)
        real = id >= 0
        fits = real & (count < capacity)
        # the token before it in the same string ends where this one begins
        before = jnp.maximum(count - 1, 0)
        ends = _put(ends, before, jnp.where(fits & (byte > 0), here, _at(ends, before)))
        at = jnp.minimum(count, capacity - 1)
        over = ~several | (here + 1 >= end)
        return (
            _put(ids, at, jnp.where(fits, id, _at(ids, at))),
            _put(starts, at, jnp.where(fits, here, _at(starts, at))),
            _put(ends, at, jnp.where(fits, end, _at(ends, at))),
            count + real.astype(jnp.int32),
            number + over.astype(jnp.int32),
            jnp.where(over, 0, byte + 1),
        )

    zero, zeros = jnp.int32(0), jnp.zeros(capacity, jnp.int32)
    state = (jnp.full(capacity, -1, jnp.int32), zeros, zeros, zero, zero, zero)
    ids, starts, ends, count, *_ = lax.while_loop(lambda state: state[4] < strings.count, step, state)
    return Tokens(ids, starts, ends, count, jnp.bool_(False))


def _at(array: jax.Array, index: jax.Array) -> jax.Array:
    return lax.dynamic_index_in_dim(array, index, keepdims=False)


def _put(array: jax.Array, index: jax.Array, value: jax.Array) -> jax.Array:
    return lax.dynamic_update_index_in_dim(array, value, index, axis=0)


def emit_arrays(strings: Strings, edges: UInt32[Array, " W"], tokens: Int32[Array, " N"], capacity: int) -> Tokens:
    """Takes the first bytes of all tokens in order.

    edges: bit set of the bytes where strings begin; tokens: ids at the first bytes of all tokens, -1 elsewhere.
    """
    firsts, none = members_of(pack(tokens >= 0))
    begins, _ = take_members(firsts, none, capacity + 1, strings.begins[-1], lowering="arrays")
    starts, next_ = begins[:-1], begins[1:]
    ends = jnp.minimum(next_, take(strings.begins, rank_of(ranked(edges), starts, own=True)))
    unused = jnp.arange(capacity, dtype=jnp.int32) >= firsts.count
    ids = jnp.where(unused, -1, take(tokens, starts))
    starts, ends = (jnp.where(unused, 0, place) for place in (starts, ends))
    return Tokens(ids, starts, ends, firsts.count, jnp.bool_(False))
