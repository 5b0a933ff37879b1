"""Pieces to tokens: look up every string, merge those that are no token, put all in order."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from toktier_jax.ops.characters import find_characters
from toktier_jax.ops.chunks import Stage, for_chunks, part, stage, write
from toktier_jax.ops.emit import ELSEWHERE, Strings, Tokens, emit
from toktier_jax.ops.lookup import as_words, find_long, find_short, load
from toktier_jax.ops.members import contains, insides, pack, toggle
from toktier_jax.ops.merge import merge
from toktier_jax.ops.merge_arrays import merge_arrays
from toktier_jax.ops.merge_rounds import SENTINELS
from toktier_jax.ops.pieces import Cursor, Edges, find_edges, members_of, take_members
from toktier_jax.ops.places import take
from toktier_jax.ops.repeats import copy_bits, distances
from toktier_jax.ops.scan import Lowering, some
from toktier_jax.ops.symbols import Text, flatten, place_of
from toktier_jax.plan import BPEPlan
from toktier_jax.types import FROZEN, SHORT, TEXT, BPETables, Buffer


class _Sizes(NamedTuple):
    """How much is worked on at a time: bytes, strings, missed strings, tokens of a round; how far a round looks."""

    data: int
    strings: int
    room: int
    window: int
    steps: int


def _sizes(size: int, lowering: Lowering) -> _Sizes:
    if lowering == "arrays":
        whole = -(-size // 4096) * 4096
        window = max(whole // 8, min(whole, 1 << 16)) + SENTINELS
        return _Sizes(whole, whole // 4, whole // 4, window, 0)
    whole = max(1024, 1 << (size - 1).bit_length())
    return _Sizes(min(whole, 1 << 14), min(whole, 1 << 12), max(1024, whole // 8), min(whole, 1 << 11), 2)


def tokenize(
    plan: BPEPlan,
    tables: BPETables,
    buffer: Buffer,
    capacity: int,
    *,
    lowering: Lowering,
    inner: tuple[jax.Array, jax.Array] | None = None,
) -> Tokens:
    """Tokens of every piece of a buffer, in order.

    capacity: tokens to be returned at most; the true number is returned too. inner: bool [] each, whether the first
    piece goes on before the buffer, and the last one behind it: then neither is a whole piece.
    """
    sizes = _sizes(buffer.data.shape[0], lowering)
    run = stage(lowering, buffer.length)
    buffer = _pad(buffer, sizes.data)
    edges = find_edges(tables.cuts, buffer, sizes.data, dense=plan.unit == "char", lowering=lowering)
    text = _text(tables, buffer, edges, inner)
    work = _Work(plan, tables, buffer, text, sizes, lowering, run)
    strings, missed = _look_up(work, edges)
    strings, tokens, firsts, unresolved = _encode_missed(work, strings, missed)
    out = emit(strings, tokens, firsts, capacity, sizes.strings, lowering=lowering, run=run)
    return out._replace(unresolved=unresolved)


class _Work(NamedTuple):
    """What every stage needs."""

    plan: BPEPlan
    tables: BPETables
    buffer: Buffer
    text: Text
    sizes: _Sizes
    lowering: Lowering
    run: Stage


def _pad(buffer: Buffer, chunk: int) -> Buffer:
    """The fields that are read, padded to whole chunks."""
    extra = -buffer.data.shape[0] % chunk
    if not extra:
        return buffer
    token = None if buffer.token is None else jnp.pad(buffer.token, (0, extra))
    fields = {name: jnp.pad(getattr(buffer, name), (0, extra)) for name in ("data", "starts", "kind")}
    return buffer._replace(token=token, **fields)


def _text(tables: BPETables, buffer: Buffer, edges: Edges, inner: tuple[jax.Array, jax.Array] | None) -> Text:
    before, behind = inner or (jnp.bool_(False), jnp.bool_(False))
    length = buffer.length[None]
    ends = toggle(jnp.pad(edges.pieces, (0, 1)), length, ~contains(jnp.pad(edges.pieces, (0, 1)), length) & ~behind)
    first = jnp.where(before, ~np.uint32(1), ~np.uint32(0))
    starts = edges.pieces.at[0].set(edges.pieces[0] & first)
    longest = 4 * (tables.lexicon.strings.shape[1] - 2)
    return Text(buffer.data, as_words(buffer.data, longest), starts, ends)


def _look_up(work: _Work, edges: Edges) -> tuple[Strings, UInt32[Array, " S"]]:
    """Looks up all strings of up to SHORT bytes. Returns them, and a bit set of the numbers of those not found."""
    plan, tables, buffer, text, sizes, lowering, run = work
    size, chunk = buffer.data.shape[0], sizes.strings
    members, none = members_of(edges.strings)
    begins, _ = take_members(members, none, size + 1, buffer.length, lowering=lowering)

    def body(start: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        ids, missed = state
        first, last = part(begins, start, chunk), part(begins, start + 1, chunk)
        place = place_of(plan, text, first, last)
        mark = ((last - first) << 2 | place).astype(jnp.uint32)
        strings = run(functools.partial(load, width=SHORT // 4), text.words, first, last - first)
        found = find_short(tables.lexicon, strings, mark, run)
        usable = found.hit & (found.own | _whole(text, first, last)) if plan.wholes else found.hit
        kind = take(buffer.kind, first)
        id = jnp.where(usable & (kind == TEXT), found.id, ELSEWHERE)
        if buffer.token is not None:
            id = jnp.where(kind == FROZEN, take(buffer.token, first), id)
        real = start + jnp.arange(chunk, dtype=jnp.int32) < members.count
        return write(ids, id, start), write(missed, pack(real & (id < 0)), start // 32)

    state = (jnp.zeros(size, jnp.int32), jnp.zeros(size // 32, jnp.uint32))
    ids, missed = for_chunks(members.count, size, chunk, body, state)
    return Strings(begins, edges.strings, members.count, ids), missed


def _whole(text: Text, first: Int32[Array, " C"], last: Int32[Array, " C"]) -> Bool[Array, " C"]:
    return contains(text.starts, first) & contains(text.ends, last)


class _Missed(NamedTuple):
    """How far the strings that were not found are encoded.

    strings     with the distances of those that are
    tokens      int32 [N]   ids at the first bytes of their tokens, -1 elsewhere
    firsts      uint32 [W]  bit set of the first bytes of all tokens; until all are encoded, of those of single ones
    repeats     uint32 [W]  of those of strings whose tokens are elsewhere
    unresolved  bool []     some of them resist
    """

    strings: Strings
    tokens: Int32[Array, " N"]
    firsts: UInt32[Array, " W"]
    repeats: UInt32[Array, " W"]
    unresolved: Bool[Array, ""]


def _encode_missed(
    work: _Work, strings: Strings, missed: UInt32[Array, " S"]
) -> tuple[Strings, Int32[Array, " N"], UInt32[Array, " W"], Bool[Array, ""]]:
    """Merges the strings that were not found, as many at a time as there is room for."""
    members, none = members_of(missed)
    room = work.sizes.room
    size = strings.ids.shape[0]

    def batch(state: tuple[Cursor, _Missed]) -> tuple[Cursor, _Missed]:
        cursor, done = state
        numbers, next_ = take_members(members, cursor, room, jnp.int32(size), lowering=work.lowering)
        return next_, _merge_batch(work, done, numbers, next_.taken - cursor.taken)

    zeros = jnp.zeros_like(strings.edges)
    done = _Missed(strings, jnp.full(size, -1, jnp.int32), strings.edges, zeros, jnp.bool_(False))
    _, done = lax.while_loop(lambda state: state[0].taken < members.count, batch, (none, done))
    firsts = done.firsts | _firsts(work, done.tokens) | done.repeats
    return done.strings, done.tokens, firsts, done.unresolved


def _firsts(work: _Work, tokens: Int32[Array, " N"]) -> UInt32[Array, " W"]:
    """Bit set of the bytes where there is a token."""
    chunk = work.sizes.data

    def body(start: jax.Array, words: jax.Array) -> jax.Array:
        return write(words, pack(part(tokens, start, chunk) >= 0), start // 32)

    zeros = jnp.zeros(tokens.shape[0] // 32, jnp.uint32)
    return for_chunks(work.buffer.length, tokens.shape[0], chunk, body, zeros)


def _merge_batch(work: _Work, done: _Missed, numbers: Int32[Array, " U"], count: jax.Array) -> _Missed:
    """Encodes the `count` strings of these numbers; the rest of these is N."""
    plan, tables, buffer, text, sizes, lowering, run = work
    strings = done.strings
    size, room, chunk = buffer.data.shape[0], sizes.room, min(sizes.strings, sizes.room)

    def describe(start: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        starts, marks, tokens, found = state
        number = jnp.minimum(part(numbers, start, chunk), size - 1)
        first, last = take(strings.begins, number), take(strings.begins, number + 1)
        real = start + jnp.arange(chunk, dtype=jnp.int32) < count
        mark = jnp.where(real & (take(buffer.kind, first) == TEXT), (last - first) << 2, 0)
        mark = mark | jnp.where(mark > 0, place_of(plan, text, first, last), 0)
        if plan.long_wholes:
            tokens, mark = _long(work, first, last, mark, tokens)
        return write(starts, first, start), write(marks, mark, start), tokens, toggle(found, first, real)

    blank, none = jnp.zeros(room, jnp.int32), jnp.zeros_like(done.firsts)
    starts, marks, tokens, here = for_chunks(count, room, chunk, describe, (blank, blank, done.tokens, none))
    alone = marks > 0
    if lowering == "walk":
        moved = distances(text.words, starts, marks, count, chunk, run)
        alone = alone & (moved == 0)
    heads = toggle(none, starts, alone)
    positions = insides(heads ^ toggle(none, starts + (marks >> 2), alone))
    if plan.unit == "char" and plan.unknown != "bytes":
        positions = positions & pack((buffer.data & np.uint8(0xC0)) != np.uint8(0x80))
    plain, characters = jnp.bool_(True), None
    if tables.characters is not None:
        characters, inside = find_characters(
            tables.characters, buffer.data, buffer.length, positions, heads, sizes.data, run
        )
        plain, positions = ~some(characters != 0), positions & ~inside
    members, cursor = members_of(positions)
    at, _ = take_members(members, cursor, size, jnp.int32(0), lowering=lowering)
    how = {"chunk": sizes.strings, "window": sizes.window, "run": run}
    flat, lost = flatten(plan, tables, text, heads, at, members.count, characters=characters, **how)
    if lowering == "arrays":
        tokens, stuck = merge_arrays(plan, tables.merges, flat, tokens, window=sizes.window)
    else:
        how = {"window": sizes.window, "steps": sizes.steps, "run": run}
        tokens, stuck = merge(plan, tables.merges, flat, plain, tokens, **how)
    repeats, ids = done.repeats, strings.ids
    if lowering == "walk":
        repeats = copy_bits(_firsts(work, tokens), repeats, starts, moved, marks >> 2)
        ids = ids.at[numbers].set(ELSEWHERE + moved, mode="drop")
    return _Missed(strings._replace(ids=ids), tokens, done.firsts & ~here, repeats, done.unresolved | lost | stuck)


def _long(
    work: _Work,
    first: Int32[Array, " C"],
    last: Int32[Array, " C"],
    mark: Int32[Array, " C"],
    tokens: Int32[Array, " N"],
) -> tuple[Int32[Array, " N"], Int32[Array, " C"]]:
    """Looks up strings of more than SHORT bytes among the tokens: what is found needs no merging, its mark is 0."""
    lexicon, text = work.tables.lexicon, work.text
    width = lexicon.strings.shape[1] - 2
    long = (mark >> 2 > SHORT) & (mark >> 2 <= 4 * width)

    def search() -> tuple[jax.Array, jax.Array]:
        found = find_long(lexicon, load(text.words, first, last - first, width), mark.astype(jnp.uint32))
        usable = long & found.hit & (found.own | (_whole(text, first, last) if work.plan.wholes else found.own))
        return jnp.where(usable, first, tokens.shape[0]), found.id

    def nothing() -> tuple[jax.Array, jax.Array]:
        return jnp.full(first.shape, tokens.shape[0], jnp.int32), jnp.zeros_like(first)

    where, id = lax.cond(some(long), search, nothing)
    return tokens.at[where].set(id, mode="drop"), jnp.where(where < tokens.shape[0], 0, mark)
