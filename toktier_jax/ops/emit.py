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
    count              int32 []  number of tokens; where it is above the capacity, the last end is not to be used
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
    ids     int32 [N]      of each its only token's id; of one that has none or several ELSEWHERE + the distance to
                           the equal string whose tokens it has
    """

    begins: Int32[Array, " N+1"]
    count: Int32[Array, ""]
    ids: Int32[Array, " N"]


def emit_walk(strings: Strings, tokens: Int32[Array, " N"], capacity: int) -> Tokens:
    """Writes the tokens of one string after the other, in loops so small that XLA makes plain code of them on a CPU.

    tokens: ids at the first bytes of tokens of strings that have several, -1 elsewhere.
    """

    def token(number: jax.Array, byte: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The token that begins `byte` bytes into a string (negative if none), where that is, the end of the string."""
        start, end = _at(strings.begins, number), _at(strings.begins, number + 1)
        id = _at(strings.ids, number)
        several = id < 0
        id = jnp.where(several, _at(tokens, start + byte + id - ELSEWHERE), id)
        return id, start + byte, end, ~several | (start + byte + 1 >= end)

    def write(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        ids, starts, ends, count, number, byte = state
        id, here, end, over = token(number, byte)
        # the token before it in the same string ends where this one begins
        before = jnp.maximum(count - 1, 0)
        ends = _put(ends, before, jnp.where((byte > 0) & (id >= 0), here, _at(ends, before)))
        return (
            _put(ids, count, id),
            _put(starts, count, here),
            _put(ends, count, end),
            count + (id >= 0).astype(jnp.int32),
            number + over.astype(jnp.int32),
            jnp.where(over, 0, byte + 1),
        )

    def skip(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        count, number, byte = state
        id, _, _, over = token(number, byte)
        return count + (id >= 0).astype(jnp.int32), number + over.astype(jnp.int32), jnp.where(over, 0, byte + 1)

    zero, zeros = jnp.int32(0), jnp.zeros(capacity, jnp.int32)
    state = (jnp.full(capacity, -1, jnp.int32), zeros, zeros, zero, zero, zero)
    state = lax.while_loop(lambda s: (s[4] < strings.count) & (s[3] < capacity), write, state)
    ids, starts, ends, here, number, byte = state
    count, _, _ = lax.while_loop(lambda s: s[1] < strings.count, skip, (here, number, byte))
    ids, starts, ends = (  # what was no token may have been written behind the last one
        out.at[here].set(blank, mode="drop") for out, blank in ((ids, -1), (starts, 0), (ends, 0))
    )
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
