"""Matches of a literal, a class or a pattern: replaced by other bytes, or cut apart from what is round them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool

from toktier_jax.ops.added import match_added
from toktier_jax.ops.move import move, origins, shift
from toktier_jax.ops.places import after, before, nearest
from toktier_jax.ops.rewrite.parts import members, pool_of, with_data
from toktier_jax.ops.scan import Lowering, some
from toktier_jax.ops.split_arrays import split_arrays
from toktier_jax.ops.walk import split_walk
from toktier_jax.plan import LiteralPlan, MatchPlan, RunPlan
from toktier_jax.types import CONT, FROZEN, TEXT, Buffer, RewriteTables


def replace_literal(
    plan: LiteralPlan, tables: RewriteTables, buffer: Buffer, symbols: jax.Array, at_end: bool, lowering: Lowering
) -> Buffer:
    size = buffer.data.shape[0] + plan.extra(buffer.data.shape[0])
    assert tables.find is not None, "tables of a literal"
    bare = buffer._replace(token=None)
    found = match_added(plan.find, tables.find, bare, symbols, at_end=at_end, lowering=lowering)
    assert found.token is not None, "match_added gives tokens"
    begins = found.token >= 0
    inside = (found.kind == np.uint8(FROZEN)) & (buffer.kind == np.uint8(TEXT))
    buffer = buffer._replace(decided=found.decided)

    def many() -> Buffer:
        widths = jnp.where(begins, plan.content, jnp.where(inside, 0, 1))
        moved = move(buffer, widths, size, lowering=lowering)
        new, old = begins[moved.source], origins(buffer)
        first, last = (moved.source + plan.bytes - back for back in (plan.last, 1))
        out = with_data(moved, new, nearest(pool_of(tables), moved.offset), old[1, last], old[0, first])
        if at_end:
            return out
        resume = ~new if out.resume is None else out.resume & ~new  # its origin is the end of the match
        return out._replace(resume=resume)

    def none() -> Buffer:
        out = shift(buffer, 0, size)
        return out if at_end or out.resume is not None else out._replace(resume=jnp.ones(size, bool))

    return lax.cond(some(begins), many, none)


def replace_runs(
    plan: RunPlan,
    tables: RewriteTables,
    buffer: Buffer,
    symbols: jax.Array,
    open_: jax.Array,
    at_end: bool,
    lowering: Lowering,
) -> Buffer:
    size = buffer.data.shape[0] + plan.extra(buffer.data.shape[0])
    index = jnp.arange(buffer.data.shape[0], dtype=jnp.int32)
    pool = pool_of(tables)
    member = members(tables, symbols) & open_
    joined = member & after(member & ~buffer.starts, 1)
    if not at_end:
        first = jnp.max(jnp.where(member & ~before(joined), index, 0))
        reaches = member[jnp.maximum(buffer.length - 1, 0)]
        buffer = buffer._replace(decided=jnp.where(reaches, jnp.minimum(buffer.decided, first), buffer.decided))

    def many() -> Buffer:
        return _replaced(buffer, symbols, member, joined, plan.content, pool, size, lowering)

    differs = member & (joined | (buffer.data != pool[0])) if plan.content == 1 else member
    return lax.cond(some(differs), many, lambda: shift(buffer, 0, size))


def replace_matches(
    plan: MatchPlan,
    tables: RewriteTables,
    buffer: Buffer,
    symbols: jax.Array,
    open_: jax.Array,
    at_end: bool,
    lowering: Lowering,
) -> Buffer:
    size = buffer.data.shape[0] + plan.extra(buffer.data.shape[0])
    index = jnp.arange(buffer.data.shape[0], dtype=jnp.int32)
    pool = pool_of(tables)
    assert tables.split is not None, "tables of a pattern"
    cut = (symbols, buffer.starts, buffer.kind != np.uint8(TEXT), buffer.length, buffer.decided)
    if lowering == "walk":
        starts, match, known = split_walk(tables.split.walk, *cut, at_end=at_end)
    else:
        starts, match, known = split_arrays(tables.split.functions, *cut, at_end=at_end)
    member = match & open_
    joined = member & after(member & ~starts, 1)
    if not at_end:  # where no match is in progress, a search may begin
        free = ~member & ((symbols != np.uint8(CONT)) | ~open_) & (index < buffer.length)
        resume = ~member if buffer.resume is None else buffer.resume & ~member
        buffer = buffer._replace(decided=jnp.max(jnp.where(free & (index <= known), index, 0)), resume=resume)

    def many() -> Buffer:
        return _replaced(buffer, symbols, member, joined, plan.content, pool, size, lowering)

    return lax.cond(some(member), many, lambda: shift(buffer, 0, size))


def _replaced(
    buffer: Buffer,
    symbols: jax.Array,
    member: Bool[Array, " N"],
    joined: Bool[Array, " N"],
    content: int,
    pool: jax.Array,
    size: int,
    lowering: Lowering,
) -> Buffer:
    """Each run of `member` bytes, in which all but the last are `joined`, replaced by `content` bytes of `pool`."""
    last = member & ~joined
    widths = jnp.where(last, content, jnp.where(joined, 0, 1))
    moved = move(buffer, widths, size, lowering=lowering)
    new = last[moved.source]
    lead = moved.source
    for _ in range(3):
        lead = jnp.where(symbols[lead] == np.uint8(CONT), lead - 1, lead)
    old = origins(buffer)
    return with_data(moved, new, nearest(pool, moved.offset), old[1, moved.source], old[0, lead])


def isolate(tables: RewriteTables, buffer: Buffer, symbols: jax.Array, open_: jax.Array) -> Buffer:
    member = members(tables, symbols) & open_
    begins = open_ & (symbols != np.uint8(CONT))
    return buffer._replace(starts=buffer.starts | (begins & (member | before(member))))
