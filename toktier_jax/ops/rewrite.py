"""Normalizers and prefixes that work character by character, on the TEXT segments of a buffer, with their origin.

Where a new byte came from (`Buffer.origin`) is what the reference's alignments say: bytes of a replaced character come
from all of it, what replaces a longer match from the match's last character, and an inserted prefix from nothing: the
empty range before the character that follows (the reference gives it that character).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt8

from toktier_jax.ops.added import match_added
from toktier_jax.ops.move import Moved, move, origins, shift
from toktier_jax.ops.scan import Lowering, running_max, running_min
from toktier_jax.ops.split_arrays import split_arrays
from toktier_jax.ops.walk import split_walk
from toktier_jax.plan import IsolatePlan, LiteralPlan, MapPlan, MatchPlan, PrefixPlan, RewritePlan, RunPlan, StripPlan
from toktier_jax.types import CONT, FIRST_CODE, FROZEN, REMOVED, TEXT, Buffer, RewriteTables


def rewrite(
    plan: RewritePlan,
    tables: RewriteTables,
    buffer: Buffer,
    symbols: UInt8[Array, " N"],
    *,
    at_start: Bool[Array, ""] | bool = True,
    at_end: bool = True,
    lowering: Lowering,
) -> Buffer:
    """One rewrite of every open segment, in a buffer that is `plan.extra(N)` bytes longer.

    If the text does not fit, `length` comes out larger than the buffer. Unless `at_start`, the first segment began
    before this text and gets nothing that only the start of a segment gets. With `at_end=False` more text may follow.
    `symbols` mean nothing afterwards.
    """
    tables = jax.tree.map(jnp.asarray, tables)
    index = jnp.arange(buffer.data.shape[0], dtype=jnp.int32)
    open_ = (buffer.kind == np.uint8(TEXT)) & (index < buffer.length)
    started = (index > 0) | at_start
    match plan:
        case MapPlan():
            return _map(plan, tables, buffer, symbols, open_, lowering)
        case PrefixPlan():
            return _prefix(plan, tables, buffer, open_, started, at_end, lowering)
        case StripPlan():
            return _strip(plan, tables, buffer, symbols, open_, started, at_end, lowering)
        case LiteralPlan():
            return _literal(plan, tables, buffer, symbols, at_end, lowering)
        case RunPlan():
            return _run(plan, tables, buffer, symbols, open_, at_end, lowering)
        case MatchPlan():
            return _matches(plan, tables, buffer, symbols, open_, at_end, lowering)
        case IsolatePlan():
            return _isolate(tables, buffer, symbols, open_)
    raise TypeError(type(plan).__name__)


# ---- characters ----


def _map(
    plan: MapPlan, tables: RewriteTables, buffer: Buffer, symbols: jax.Array, open_: jax.Array, lowering: Lowering
) -> Buffer:
    size = buffer.data.shape[0] + plan.extra(buffer.data.shape[0])
    raw = buffer.data
    if plan.narrow and tables.narrow is not None:
        buffer = buffer._replace(data=jnp.where(open_, _at(tables.narrow, raw), raw))
    if not plan.wide:
        return buffer
    changed = _begins_member(tables, symbols) & open_

    def wide() -> Buffer:
        packed = _packed(tables, raw)
        dropped, tail = jnp.zeros_like(changed), changed
        for _ in range(3):
            tail = _before(tail) & (symbols == np.uint8(CONT))
            dropped = dropped | tail
        widths = jnp.where(changed, packed & 255, jnp.where(dropped, 0, 1))
        moved = move(buffer, widths, size, lowering=lowering)
        new = changed[moved.source]
        place = (packed[moved.source] >> 8) + moved.offset
        last = moved.source + _length(raw)[moved.source] - 1
        return _with(moved, new, _at(_pool(tables), place), origins(buffer)[1, last])

    return lax.cond(_any(changed), wide, lambda: shift(buffer, 0, size))


def _packed(tables: RewriteTables, data: UInt8[Array, " N"]) -> Int32[Array, " N"]:
    """Where the new bytes of the character that begins at each byte are, as in `RewriteTables.pages`."""
    assert tables.index is not None, "tables of a wide map"
    assert tables.pages is not None, "tables of a wide map"
    first, one, two, three = (_after(data, k).astype(jnp.int32) for k in range(4))
    one, two, three = one & 0x3F, two & 0x3F, three & 0x3F
    code = jnp.where(first < 0xE0, (first & 0x1F) << 6 | one, (first & 0x0F) << 12 | one << 6 | two)
    code = jnp.where(first < 0xF0, code, (first & 0x07) << 18 | one << 12 | two << 6 | three)
    code = jnp.where(first < 0x80, first, code)
    code = jnp.where(first >= FIRST_CODE, 0x110000 + first - FIRST_CODE, code)
    page = _at(tables.index, code >> 8).astype(jnp.int32)
    return _at(tables.pages.reshape(-1), page << 8 | (code & 255))


# ---- prefixes ----


def _prefix(
    plan: PrefixPlan,
    tables: RewriteTables,
    buffer: Buffer,
    open_: jax.Array,
    started: jax.Array,
    at_end: bool,
    lowering: Lowering,
) -> Buffer:
    size, width = buffer.data.shape[0] + plan.extra(buffer.data.shape[0]), plan.bytes
    pool = _pool(tables)
    begins = buffer.starts & open_
    wanted = begins & (buffer.texts if plan.first else True)
    if plan.first or not plan.pieces:
        wanted = wanted & started
    if plan.unless:
        same = buffer.data == pool[0]
        for k in range(1, width):
            same = same & (_after(buffer.data, k) == pool[k]) & ~_after(buffer.starts, k) & _after(open_, k)
        wanted = wanted & ~same
    if not at_end and not plan.pieces and not plan.first:
        buffer = _no_new_segments(buffer, begins)

    def many() -> Buffer:
        widths = jnp.where(buffer.kind == np.uint8(REMOVED), 0, 1) + jnp.where(wanted, width, 0)
        moved = move(buffer, widths, size, lowering=lowering)
        added = wanted[moved.source] & (moved.offset < width)
        start = moved.buffer.origin[0] if moved.buffer.origin is not None else moved.source
        return _with(moved, added, _at(pool, moved.offset), start)

    def one() -> Buffer:
        moved = shift(buffer, width, size)
        front = jnp.arange(size, dtype=jnp.int32) < width
        data = jnp.where(front, _at(pool, jnp.minimum(jnp.arange(size, dtype=jnp.int32), width - 1)), moved.data)
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


# ---- white space at the ends ----


def _strip(
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
    space = _members(tables, symbols) & open_
    begins = buffer.starts & open_
    ends = open_ & (_after(buffer.starts, 1) | (index + 1 >= buffer.length))
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

    return lax.cond(_any(edge), moved, lambda: shift(buffer, 0, size))


# ---- strings ----


def _literal(
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
        out = _with(moved, new, _at(_pool(tables), moved.offset), old[1, last], old[0, first])
        if at_end:
            return out
        resume = ~new if out.resume is None else out.resume & ~new  # its origin is the end of the match
        return out._replace(resume=resume)

    def none() -> Buffer:
        out = shift(buffer, 0, size)
        return out if at_end or out.resume is not None else out._replace(resume=jnp.ones(size, bool))

    return lax.cond(_any(begins), many, none)


def _run(
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
    pool = _pool(tables)
    member = _members(tables, symbols) & open_
    joined = member & _after(member & ~buffer.starts, 1)
    if not at_end:
        first = jnp.max(jnp.where(member & ~_before(joined), index, 0))
        reaches = member[jnp.maximum(buffer.length - 1, 0)]
        buffer = buffer._replace(decided=jnp.where(reaches, jnp.minimum(buffer.decided, first), buffer.decided))

    def many() -> Buffer:
        return _replaced(buffer, symbols, member, joined, plan.content, pool, size, lowering)

    differs = member & (joined | (buffer.data != pool[0])) if plan.content == 1 else member
    return lax.cond(_any(differs), many, lambda: shift(buffer, 0, size))


def _matches(
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
    pool = _pool(tables)
    assert tables.split is not None, "tables of a pattern"
    cut = (symbols, buffer.starts, buffer.kind != np.uint8(TEXT), buffer.length, buffer.decided)
    if lowering == "walk":
        starts, match, known = split_walk(tables.split.walk, *cut, at_end=at_end)
    else:
        starts, match, known = split_arrays(tables.split.functions, *cut, at_end=at_end)
    member = match & open_
    joined = member & _after(member & ~starts, 1)
    if not at_end:  # where no match is in progress, a search may begin
        free = ~member & ((symbols != np.uint8(CONT)) | ~open_) & (index < buffer.length)
        resume = ~member if buffer.resume is None else buffer.resume & ~member
        buffer = buffer._replace(decided=jnp.max(jnp.where(free & (index <= known), index, 0)), resume=resume)

    def many() -> Buffer:
        return _replaced(buffer, symbols, member, joined, plan.content, pool, size, lowering)

    return lax.cond(_any(member), many, lambda: shift(buffer, 0, size))


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
    return _with(moved, new, _at(pool, moved.offset), old[1, moved.source], old[0, lead])


def _isolate(tables: RewriteTables, buffer: Buffer, symbols: jax.Array, open_: jax.Array) -> Buffer:
    member = _members(tables, symbols) & open_
    begins = open_ & (symbols != np.uint8(CONT))
    return buffer._replace(starts=buffer.starts | (begins & (member | _before(member))))


# ---- pieces of the above ----


def _with(
    moved: Moved,
    new: Bool[Array, " M"],
    data: UInt8[Array, " M"],
    ends: Int32[Array, " M"],
    starts: Int32[Array, " M"] | None = None,
) -> Buffer:
    """The moved buffer with other bytes where they are `new`, and another origin: by default with the same start."""
    buffer = moved.buffer
    start, end = origins(buffer)
    origin = jnp.stack([start if starts is None else jnp.where(new, starts, start), jnp.where(new, ends, end)])
    return buffer._replace(data=jnp.where(new, data, buffer.data), origin=origin)


def _pool(tables: RewriteTables) -> jax.Array:
    assert tables.pool is not None, "tables of a plan that makes bytes"
    return jnp.asarray(tables.pool)


def _begins_member(tables: RewriteTables, symbols: jax.Array) -> Bool[Array, " N"]:
    """Whether a character of the plan's class begins at each byte."""
    assert tables.members is not None, "tables of a plan with a class"
    return _at(jnp.asarray(tables.members), symbols)


def _members(tables: RewriteTables, symbols: jax.Array) -> Bool[Array, " N"]:
    """Whether each byte lies in a character of the plan's class."""
    member = _begins_member(tables, symbols)
    for _ in range(3):
        member = member | (_before(member) & (symbols == np.uint8(CONT)))
    return member


def _length(data: UInt8[Array, " N"]) -> Int32[Array, " N"]:
    """Bytes of the character that begins at each byte."""
    lead = (data >= np.uint8(0xC0)) & (data < np.uint8(FIRST_CODE))
    more = lead.astype(jnp.int32) + (lead & (data >= np.uint8(0xE0))).astype(jnp.int32)
    return 1 + more + (lead & (data >= np.uint8(0xF0))).astype(jnp.int32)


def _after(array: jax.Array, count: int) -> jax.Array:
    """Each byte sees what is `count` bytes after it; zero past the end."""
    return lax.pad(array, np.zeros((), array.dtype), ((-count, count, 0),)) if count else array


def _before(array: jax.Array) -> jax.Array:
    """Each byte sees what is before it; zero at the start."""
    return lax.pad(array, np.zeros((), array.dtype), ((1, -1, 0),))


def _at(table: jax.Array, index: jax.Array) -> jax.Array:
    return table.at[index.astype(jnp.int32)].get(mode="clip", wrap_negative_indices=False)


def _any(mask: jax.Array) -> jax.Array:
    return jnp.max(mask.astype(jnp.int32)) > 0
