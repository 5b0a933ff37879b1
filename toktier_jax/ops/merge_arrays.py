"""BPE of any number of pieces of any length for accelerators: rounds over as many tokens as a window holds.

Where a piece is longer than a window, what may still be merged with what is not in sight begins the next one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32

from toktier_jax.ops.certain import UNSEEN
from toktier_jax.ops.chunks import part
from toktier_jax.ops.members import pack, ranked, ranks, total
from toktier_jax.ops.merge import Flat
from toktier_jax.ops.merge_far import follow_limits, follow_turns
from toktier_jax.ops.merge_rounds import GONE, MERGED, SENTINELS, Linked, left_of, merge_once, places
from toktier_jax.ops.places import take
from toktier_jax.plan import BPEPlan
from toktier_jax.types import NEVER, MergeTables

ROUNDS = 16
"""Rounds before limits are followed over all tokens."""


_NEW, _WAITS, _DONE, _STUCK = range(4)
"""Pairs before the first round; some wait for more to be known of their neighbours; none does; no more can be known."""


class _Batch(NamedTuple):
    """Where the window is, and what is done before it: `rows` as in Flat, `tokens` as they are returned."""

    rows: Int32[Array, "F k"]
    start: Int32[Array, ""]
    tokens: Int32[Array, " N"]
    stuck: Bool[Array, ""]
    going: Bool[Array, ""]


def merge_arrays(
    plan: BPEPlan, merges: MergeTables, flat: Flat, tokens: Int32[Array, " N"], *, window: int
) -> tuple[Int32[Array, " N"], Bool[Array, ""]]:
    """Writes each final token's id to `tokens` at its first byte. Also whether some pair could not be decided.

    window: tokens worked on at a time, a multiple of 32; `flat` has as many rows behind its tokens.
    """
    state = _Batch(flat.rows, jnp.int32(0), tokens, jnp.bool_(False), flat.count > 0)
    state = lax.while_loop(lambda s: s.going, lambda s: _batch(plan, merges, s, flat.count, window), state)
    return state.tokens, state.stuck


def _batch(plan: BPEPlan, merges: MergeTables, s: _Batch, count: jax.Array, window: int) -> _Batch:
    rows, room, place = part(s.rows, s.start, window), window - SENTINELS, places(window)
    here = place < jnp.minimum(count - s.start, room)
    more = s.start + room < count
    head = (rows[:, 1] & 1) == 1
    joined = ~jnp.concatenate([head[1:], jnp.ones(1, bool)])
    behind = jnp.where(joined, jnp.where(place == room - 1, GONE, 1), 0)
    behind = jnp.where(s.start + place + 1 < count, behind, 0)
    link = jnp.where(head | (place == 0), 0, 1) | behind << 16
    unknown = jnp.full(window, UNSEEN, jnp.int32)
    made = jnp.where(here, rows[:, -1], -1) if plan.cascades else unknown
    state = Linked(jnp.where(here, rows[:, 0], -1), jnp.where(here, link, 0), made, unknown, unknown)
    state, waits = _rounds(plan, merges, state)
    # the last piece goes on: of it only what is never merged is done
    last = jnp.max(jnp.where(here & head, place, 0))
    final = (state.left == NEVER) & (state.right == NEVER)
    done = (state.id >= 0) & (~more | (place < last) | final)
    stay = (state.id >= 0) & ~done
    head = head | take(done, left_of(place, state.link))
    left = ranked(pack(stay))
    start = s.start + room - total(left)
    values = [state.id, rows[:, 1] | head.astype(jnp.int32)] + ([state.made] if plan.cascades else [])
    slot = jnp.where(stay, start + ranks(left), s.rows.shape[0])
    tokens = s.tokens.at[jnp.where(done, rows[:, 1] >> 1, s.tokens.shape[0])].set(state.id, mode="drop")
    stuck = jnp.where(more, total(left) > room // 2, waits)
    return _Batch(
        s.rows.at[slot].set(jnp.stack(values, axis=1), mode="drop"), start, tokens, s.stuck | stuck, more & ~stuck
    )


def _rounds(plan: BPEPlan, merges: MergeTables, s: Linked) -> tuple[Linked, Bool[Array, ""]]:
    """Merges until nothing more merges. Returns whether some pair waits."""

    def near(carry: tuple[Linked, jax.Array, jax.Array]) -> tuple[Linked, jax.Array, jax.Array]:
        return *merge_once(plan, merges, carry[0]), carry[2] + 1

    def both(carry: tuple[Linked, jax.Array]) -> tuple[Linked, jax.Array]:
        s, state = carry
        again = state == _WAITS
        for follow in (follow_limits, follow_turns):
            s, _ = _where(again, functools.partial(follow, plan, merges), s)
        marks = jnp.full(s.id.shape[0] // 32, MERGED, jnp.int32)
        s, marks, count = lax.while_loop(
            lambda carry: jnp.any((carry[1] >= MERGED) & (carry[2] < ROUNDS)), near, (s, marks, jnp.int32(0))
        )
        return s, jnp.where(jnp.any(marks > 0), jnp.where(again & (count == 1), _STUCK, _WAITS), _DONE)

    s, state = lax.while_loop(lambda carry: carry[1] < _DONE, both, (s, jnp.int32(_NEW)))
    return s, state == _STUCK


def _where(condition: jax.Array, function: Callable[[Linked], Linked], s: Linked) -> tuple[Linked, jax.Array]:
    """`function(s)` where the condition holds, else `s`: as a loop of at most one round."""
    return lax.while_loop(lambda carry: carry[1], lambda carry: (function(carry[0]), jnp.bool_(False)), (s, condition))
