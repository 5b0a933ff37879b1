"""Forwards the contexts of a batch, trees included, and keeps what a cache already holds. Shapes come in buckets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32

from toktier_jax.errors import CapacityError, InputError
from toktier_jax.sampling.per_model import per_model
from toktier_jax.sampling.tree import Tree
from toktier_jax.sampling.vocabulary import check_members

CHUNK = 512
"""Tokens a row that one call forwards at most."""


def bucket(size: int, least: int = 8) -> int:
    """The power of two at or above `size`."""
    return max(least, 1 << (max(size, 1) - 1).bit_length())


def calls(tokens: int) -> int:
    """Model calls in which a prefill forwards so many tokens of a row; at least one."""
    return max(1, -(-tokens // CHUNK))


class PrefixCache:
    """A key/value cache that outlives a call, so that a prompt that extends an earlier one prefills only what is new.

    It holds one row. Nodes of a tree never stay in it: the tokens that were sampled do. Not thread-safe.
    """

    def __init__(self, lm: Any, length: int) -> None:
        """A cache of `length` slots. Raises InputError for another kind of model or of number."""
        check_members(lm)
        if isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 1:
            raise InputError(f"length={length!r}: expected a whole number of slots, 1 or more")
        self.lm, self.capacity = lm, bucket(int(length))
        self.ids = np.zeros(0, np.int32)
        self._cache: Any = None

    def take(self, trunk: Sequence[int]) -> tuple[Any, int]:
        """The cache rolled back to what it shares with `trunk`, its last id left out; and how many ids that are."""
        cache, self._cache = self._cache, None
        if cache is None:
            return self.lm.init_cache(1, self.capacity), 0
        new = np.asarray(trunk[: len(self.ids)], np.int32)
        differ = np.flatnonzero(self.ids[: len(new)] != new)
        shared = min(int(differ[0]) if len(differ) else len(new), len(trunk) - 1)
        return self._rolled_back(cache, shared), shared

    def _rolled_back(self, cache: Any, shared: int) -> Any:
        if hasattr(cache, "rolled_back"):  # models.Cache: without a copy
            return cache.rolled_back(shared)
        slots = np.arange(self.capacity, dtype=np.int32)
        return gatherer(self.lm)(cache, np.where(slots < shared, slots, -1)[None])

    def put(self, cache: Any, ids: Sequence[int] | np.ndarray) -> None:
        """What the cache holds after a call."""
        self._cache, self.ids = cache, np.asarray(ids, np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class Prefilled:
    """logits float32 [B, K, V] of the flat nodes of each row; the cache, trees included, and its slots a row; of each
    row the ids reused and the positions forwarded; positions a row with padding."""

    logits: Array
    cache: Any
    capacity: int
    reused: tuple[int, ...]
    forwarded: tuple[int, ...]
    padded: int


def slots_needed(trees: Sequence[Tree], room: int, reuse: PrefixCache | None) -> int:
    """Slots a row for the trees and `room` more. Raises CapacityError where the prefix cache has fewer."""
    need = max(len(tree.trunk) + tree.branches for tree in trees) + room
    if reuse is not None and need > reuse.capacity:
        raise CapacityError(f"the prefix cache has {reuse.capacity} slots and {need} are needed: make a longer one")
    return need


def prefill(lm: Any, trees: Sequence[Tree], room: int, reuse: PrefixCache | None = None) -> Prefilled:
    """Forwards the trunk and the branches of every row. `room` more slots a row stay free."""
    params = getattr(lm, "params", None)
    need = slots_needed(trees, room, reuse)
    if reuse is not None:
        cache, held = reuse.take(trees[0].trunk)
        capacity, start = reuse.capacity, [held]
    else:
        capacity = bucket(need, 64)
        cache, start = lm.init_cache(len(trees), capacity), [0] * len(trees)
    rows = [np.concatenate([np.array(t.trunk[s:], np.int32), t.tokens[1:]]) for t, s in zip(trees, start, strict=True)]
    trunks = [len(t.trunk) - s for t, s in zip(trees, start, strict=True)]
    nodes = bucket(max(len(t.tokens) for t in trees), 1)
    width = bucket(max(t.branches for t in trees)) if nodes > 1 else 1
    seen = np.zeros((len(trees), width, width), bool)
    wanted = np.zeros((len(trees), nodes), np.int64)  # place of each flat node in its row
    for row, tree in enumerate(trees):
        seen[row, : tree.branches, : tree.branches] = tree.ancestors()
        wanted[row] = trunks[row] - 1
        wanted[row, 1 : len(tree.tokens)] = trunks[row] + np.arange(tree.branches)
    longest, logits = max(map(len, rows)), None
    for begin in range(0, longest, CHUNK):
        size = bucket(min(longest - begin, CHUNK))
        tokens = np.zeros((len(trees), size), np.int32)
        positions = np.full((len(trees), size), -1, np.int32)
        branch = np.full((len(trees), size), -1, np.int32)
        for row, tree in enumerate(trees):
            part = rows[row][begin : begin + size]
            tokens[row, : len(part)] = part
            place = np.arange(begin, begin + len(part))
            flat = place - trunks[row]
            depths = tree.depths[np.clip(flat + 1, 0, tree.branches)]
            last = len(tree.trunk) - 1
            positions[row, : len(part)] = np.where(flat >= 0, last + depths, start[row] + place)
            branch[row, : len(part)] = np.maximum(flat, -1)
        inside = (wanted >= begin) & (wanted < begin + size)
        lengths = np.array([len(t.trunk) for t in trees], np.int32)
        select = np.where(inside, wanted - begin, 0).astype(np.int32)
        if inside.any():
            found, cache = _forward(lm, capacity)(params, cache, tokens, positions, branch, seen, lengths, select)
            logits = found if logits is None else _merged(logits, found, inside)
        else:
            cache = _fill(lm, capacity)(params, cache, tokens, positions, branch, seen, lengths)
    assert logits is not None
    padded = sum(bucket(min(longest - begin, CHUNK)) for begin in range(0, longest, CHUNK))
    return Prefilled(logits, cache, capacity, tuple(start), tuple(map(len, rows)), padded)


def visible(
    positions: Int32[Array, "batch new"],
    branch: Int32[Array, "batch new"],
    seen: Bool[Array, "batch m m"],
    trunk: Int32[Array, " batch"],
    capacity: int,
) -> Bool[Array, "batch new slots"]:
    """The mask of a trunk and its branches: slots of the trunk up to a token's own, and a branch token's ancestors.

    `branch` is the number of a branch token, which is in slot trunk + branch, and -1 for those of the trunk.
    """
    slots = jnp.arange(capacity, dtype=jnp.int32)[None, None, :]
    own = branch < 0
    last = jnp.where(own, positions, trunk[:, None] - 1)
    mask = (slots <= last[:, :, None]) & (slots < trunk[:, None, None])
    rows = jnp.take_along_axis(seen, jnp.maximum(branch, 0)[:, :, None], axis=1)
    number = jnp.arange(capacity, dtype=jnp.int32)[None, :] - trunk[:, None]
    inside = (number >= 0) & (number < seen.shape[2])
    index = jnp.broadcast_to(jnp.clip(number, 0, seen.shape[2] - 1)[:, None, :], mask.shape)
    related = jnp.take_along_axis(rows, index, axis=2) & inside[:, None, :] & ~own[:, :, None]
    return mask | related


@per_model
def _forward(lm: Any, capacity: int) -> Callable[..., tuple[Array, Any]]:
    def run(params, cache, tokens, positions, branch, seen, trunk, at):
        mask = visible(positions, branch, seen, trunk, capacity)
        if getattr(lm, "selects", False):
            return lm.apply(params, tokens, positions, cache, mask, at)
        logits, cache = lm.apply(params, tokens, positions, cache, mask)
        return jnp.take_along_axis(logits, at[:, :, None], axis=1).astype(jnp.float32), cache

    return jax.jit(run, donate_argnums=1)


@per_model
def gatherer(lm: Any) -> Callable[..., Any]:
    """`lm.gather`, jitted, with the cache donated."""
    return jax.jit(lambda cache, rows: lm.gather(cache, rows), donate_argnums=0)


@per_model
def _fill(lm: Any, capacity: int) -> Callable[..., Any]:
    def run(params, cache, tokens, positions, branch, seen, trunk):
        return lm.apply(params, tokens, positions, cache, visible(positions, branch, seen, trunk, capacity))[1]

    return jax.jit(run, donate_argnums=1)


@jax.jit
def _merged(old: Array, new: Array, inside: Array) -> Array:
    return jnp.where(inside[:, :, None], new, old)
