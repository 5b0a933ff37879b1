"""Merge rules looked up by their pair of ids, and what an id's neighbours can do at the least rank."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from toktier_jax.ops.chunks import Stage
from toktier_jax.ops.hashing import bound_index, first_key, last_key, unpack_bound
from toktier_jax.ops.lookup import slot_of
from toktier_jax.ops.places import take
from toktier_jax.types import NEVER, MergeTables


class Rule(NamedTuple):
    """What tables say of each token and its neighbours, int32 [W] each.

    rank         of the rule that joins the token and the next one; NEVER where there is none
    new          the id that this makes, with flag CASCADES
    least_left   no rule of lower rank joins the token with what its left neighbour may become: any token that ends
                 with the same symbol and has more of them
    least_right  nor with what its right neighbour may become
    """

    rank: Int32[Array, " W"]
    new: Int32[Array, " W"]
    least_left: Int32[Array, " W"]
    least_right: Int32[Array, " W"]


def find_rules(merges: MergeTables, id: Int32[Array, " W"], bytes_: Bool[Array, ""] | None, run: Stage) -> Rule:
    """The rules of neighbours. bytes_: bool [], whether all tokens are single bytes, which are looked up faster."""
    symbols = run(lambda table, id: take(table, id), merges.symbols, id)
    if bytes_ is None:
        return _of_ids(merges, id, symbols, run)
    of_ids = functools.partial(_of_ids, run=run)
    return lax.cond(bytes_, _of_bytes, of_ids, merges, id, symbols)


def _of_bytes(merges: MergeTables, id: Int32[Array, " W"], symbols: UInt32[Array, " W"]) -> Rule:
    del id
    byte = symbols & np.uint32(0xFF)
    pair = byte | _next(byte) << np.uint32(8)
    row = take(merges.of_bytes, pair.astype(jnp.int32))
    return Rule(row[:, 0], row[:, 1], _previous(row[:, 2]), row[:, 3])


def _of_ids(merges: MergeTables, id: Int32[Array, " W"], symbols: UInt32[Array, " W"], run: Stage) -> Rule:
    following = _next(id)
    rank, new = run(_compare, merges.rows, run(_slots, merges, id, following), id, following)

    def least(merges: MergeTables, id: jax.Array, symbols: jax.Array) -> tuple[jax.Array, jax.Array]:
        return bounds_of(merges, id, _previous(symbols), _next(symbols))

    return Rule(rank, new, *run(least, merges, id, symbols))


def rule_of(
    merges: MergeTables, id: Int32[Array, " W"], following: Int32[Array, " W"]
) -> tuple[Int32[Array, " W"], Int32[Array, " W"]]:
    """Rank and new id, as in Rule, of each pair of ids."""
    return _compare(merges.rows, _slots(merges, id, following), id, following)


def _slots(merges: MergeTables, id: Int32[Array, " W"], following: Int32[Array, " W"]) -> Int32[Array, " W"]:
    return slot_of(merges.seed, merges.displacements, [id.astype(jnp.uint32), following.astype(jnp.uint32)])


def _compare(
    rows: Int32[Array, "R 4"], slot: Int32[Array, " W"], id: Int32[Array, " W"], following: Int32[Array, " W"]
) -> tuple[Int32[Array, " W"], Int32[Array, " W"]]:
    row = take(rows, slot)
    found = (row[:, 0] == id) & (row[:, 1] == following)
    return jnp.where(found, row[:, 2], NEVER), row[:, 3]


def bounds_of(
    merges: MergeTables, id: Int32[Array, " W"], before: UInt32[Array, " W"], after: UInt32[Array, " W"]
) -> tuple[Int32[Array, " W"], Int32[Array, " W"]]:
    """`least_left` and `least_right`, as in Rule, of ids between tokens of these symbols."""
    bits = merges.left_bounds.shape[0].bit_length() - 1
    name = id.astype(jnp.uint32)
    left = bound_index(last_key(before), name, bits)
    right = bound_index(first_key(after), name, bits)
    bounds = take(merges.left_bounds, left.astype(jnp.int32)), take(merges.right_bounds, right.astype(jnp.int32))
    return unpack_bound(bounds[0]), unpack_bound(bounds[1])


def _previous(values: jax.Array) -> jax.Array:
    return jnp.concatenate([values[:1], values[:-1]])


def _next(values: jax.Array) -> jax.Array:
    return jnp.concatenate([values[1:], values[-1:]])
