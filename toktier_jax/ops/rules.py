"""Merge rules looked up by their pair of ids, and what an id's neighbours can do at the least rank."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from ..types import NEVER, MergeTables
from .chunks import Stage
from .hashing import bound_index
from .lookup import slot_of, take


class Rule(NamedTuple):
    """What merging pairs would be: rank (NEVER where there is no rule), new id with its flag CASCADES."""

    rank: Int32[Array, " C"]
    new: Int32[Array, " C"]


def find_rules(
    merges: MergeTables, left: Int32[Array, " C"], right: Int32[Array, " C"], run: Stage
) -> Rule:
    """The rule of each pair of ids."""

    def slots(merges: MergeTables, left: jax.Array, right: jax.Array) -> jax.Array:
        return slot_of(merges.seed, merges.displacements, [left.astype(jnp.uint32), right.astype(jnp.uint32)])

    def compare(merges: MergeTables, slot: jax.Array, left: jax.Array, right: jax.Array) -> Rule:
        row = take(merges.rows, slot)
        found = (row[:, 0] == left) & (row[:, 1] == right)
        return Rule(jnp.where(found, row[:, 2], NEVER), row[:, 3])

    return run(compare, merges, run(slots, merges, left, right), left, right)


def bounds(
    merges: MergeTables, before: Int32[Array, " C"], id: Int32[Array, " C"], after: Int32[Array, " C"], run: Stage
) -> tuple[Int32[Array, " C"], Int32[Array, " C"]]:
    """Ranks below which each id is merged with no token on its left, and with none on its right.

    `before` and `after` are its neighbours now: whatever they are when that happens, they still end with the same
    symbol, and begin with the same.
    """
    bits = merges.left_bounds.shape[0].bit_length() - 1

    def look(merges: MergeTables, before: jax.Array, id: jax.Array, after: jax.Array) -> tuple[jax.Array, jax.Array]:
        name = id.astype(jnp.uint32)
        last = take(merges.symbols, before) >> np.uint32(16)
        first = take(merges.symbols, after) & np.uint32(0xFFFF)
        return (
            take(merges.left_bounds, bound_index(last, name, bits).astype(jnp.int32)),
            take(merges.right_bounds, bound_index(first, name, bits).astype(jnp.int32)),
        )

    return run(look, merges, before, id, after)
