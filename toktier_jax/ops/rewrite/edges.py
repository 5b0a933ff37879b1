"""The ends of segments: prefixes before them, and white space that is stripped from them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool

from toktier_jax.ops.move import move, origins, shift
from toktier_jax.ops.places import after, nearest
from toktier_jax.ops.rewrite.parts import members, pool_of, with_data
from toktier_jax.ops.scan import Lowering, running_max, running_min, some
from toktier_jax.plan import PrefixPlan, StripPlan
from toktier_jax.types import CONT, FROZEN, REMOVED, Buffer, RewriteTables


def prefix(
    plan: PrefixPlan,
    tables: RewriteTables,
    buffer: Buffer,
    open_: jax.Array,
    started: jax.Array,
    at_end: bool,
    lowering: Lowering,
) -> Buffer:
    size, width = buffer.data.shape[0] + plan.extra(buffer.data.shape[0]), plan.bytes
    pool = pool_of(tables)
    begins = buffer.starts & open_
    wanted = begins & (buffer.texts if plan.first else True)
    if plan.first or not plan.pieces:
        wanted = wanted & started
    if plan.unless:
        same = buffer.data == pool[0]
        for k in range(1, width):
            same = same & (after(buffer.data, k) == pool[k]) & ~after(buffer.starts, k) & after(open_, k)
        wanted = wanted & ~same
    if not at_end and not plan.pieces and not plan.first:
        buffer = _no_new_segments(buffer, begins)

    def many() -> Buffer:
        widths = jnp.where(buffer.kind == np.uint8(REMOVED), 0, 1) + jnp.where(wanted, width, 0)
        moved = move(buffer, widths, size, lowering=lowering)
        added = wanted[moved.source] & (moved.offset < width)
        start = moved.buffer.origin[0] if moved.buffer.origin is not None else moved.source
        return with_data(moved, added, nearest(pool, moved.offset), start)

    def one() -> Buffer:
        moved = shift(buffer, width, size)
        front = jnp.arange(size, dtype=jnp.int32) < width
        data = jnp.where(front, nearest(pool, jnp.minimum(jnp.arange(size, dtype=jnp.int32), width - 1)), moved.data)
        start = origins(buffer)[0, 0]
        origin = origins(moved)
        return moved._replace(data=data, origin=jnp.where(front[None, :], start, origin))

    count = jnp.sum(wanted, dtype=jnp.int32)
    only_first = wanted[0] & (count == 1)
    which = jnp.where(count == 0, 0, jnp.where(only_first, 1, 2))
    return lax.switch(which, [lambda: shift(buffer, 0, size), one, many])


def _no_new_segments(buffer: Buffer, begins: Bool[Array, " N"]) -> Buffer:
    """Work is resumed where an added token begins, not where the segment after it does: what begins a window gets no
    prefix, and is not stripped on the left."""
    size = buffer.data.shape[0]
    index = jnp.arange(size, dtype=jnp.int32)
    resume = ~(begins & (index > 0))
    at, before = jnp.minimum(buffer.decided, size - 1), jnp.maximum(buffer.decided - 1, 0)
    new = jnp.where(buffer.decided < buffer.length, begins[at], buffer.kind[before] == np.uint8(FROZEN))
    back = jnp.max(jnp.where(buffer.starts & (index < buffer.decided), index, 0))
    return buffer._replace(
        decided=jnp.where(new & (buffer.decided > 0), back, buffer.decided),
        resume=resume if buffer.resume is None else buffer.resume & resume,
    )


def strip(
    plan: StripPlan,
    tables: RewriteTables,
    buffer: Buffer,
    symbols: jax.Array,
    open_: jax.Array,
    started: jax.Array,
    at_end: bool,
    lowering: Lowering,
) -> Buffer:
    size = buffer.data.shape[0]
    index = jnp.arange(size, dtype=jnp.int32)
    space = members(tables, symbols) & open_
    begins = buffer.starts & open_
    ends = open_ & (after(buffer.starts, 1) | (index + 1 >= buffer.length))
    if plan.left and not at_end:
        buffer = _no_new_segments(buffer, begins)

    def strip() -> tuple[jax.Array, jax.Array]:
        drop = jnp.zeros(size, bool)
        decided = buffer.decided
        if plan.left:  # an even number: since the start of the segment nothing but white space
            events = jnp.where(space, jnp.where(begins & started, 2 * index, -1), 2 * index + 1)
            drop = drop | (space & (running_max(events, lowering=lowering) & 1 == 0))
        if plan.right:
            events = jnp.where(space, jnp.where(ends, 2 * index + 1, 2 * size), 2 * index)
            trailing = space & (running_min(events, lowering=lowering, reverse=True) & 1 == 1)
            drop = drop | trailing
            if not at_end:  # before the last character that is kept: what is dropped now may be kept later
                kept = ~trailing & (index < buffer.length) & (symbols != np.uint8(CONT))
                last = jnp.maximum(jnp.max(jnp.where(kept, index, 0)), 0)
                decided = jnp.where(space[jnp.maximum(buffer.length - 1, 0)], jnp.minimum(decided, last), decided)
        return drop, decided

    edge = space & ((begins if plan.left else False) | (ends if plan.right else False))

    def moved() -> Buffer:
        drop, decided = strip()
        stripped = buffer._replace(decided=decided)
        return move(stripped, jnp.where(drop, 0, 1), size, lowering=lowering).buffer

    return lax.cond(some(edge), moved, lambda: shift(buffer, 0, size))
