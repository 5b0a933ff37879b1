"""Pieces to tokens: look up every string, merge those that are no token, put all in order."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from ..plan import BPEPlan
from ..types import FROZEN, SHORT, TEXT, BPETables, Buffer
from .chunks import Stage, for_chunks, part, stage, write
from .emit import Strings, Tokens, emit_arrays, emit_walk
from .lookup import as_words, find_long, find_short, load, take
from .members import contains, insides, pack, toggle
from .merge import merge
from .pieces import Edges, find_edges, in_order
from .repeats import models
from .scan import Lowering
from .symbols import Text, flatten, place_of


class _Sizes(NamedTuple):
    """How much is worked on at a time: bytes, strings, tokens of a merge round; and how far a round looks."""

    data: int
    strings: int
    window: int
    steps: int


def _sizes(size: int, lowering: Lowering) -> _Sizes:
    if lowering == "arrays":
        whole = -(-size // 4096) * 4096
        return _Sizes(whole, whole // 4, whole // 4, 3)
    whole = max(1024, 1 << (size - 1).bit_length())
    return _Sizes(min(whole, 1 << 15), min(whole, 1 << 13), min(whole, 1 << 13), 2)


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
    buffer = _pad(buffer, sizes.data)
    edges = find_edges(tables.cuts, buffer, sizes.data, dense=plan.unit == "char", lowering=lowering)
    text = _text(tables, buffer, edges, inner)
    run = stage(lowering, buffer.length)
    strings = _look_up(plan, tables, buffer, text, edges, sizes, lowering, run)
    missed = _missed(plan, tables, buffer, text, strings, sizes, lowering, run)
    positions = insides(missed.heads ^ missed.tails)
    if plan.unit == "char" and plan.unknown != "bytes":
        positions = positions & edges.leads
    at, count = in_order(positions, jnp.int32(0), lowering=lowering)
    flat, lost = flatten(
        plan, tables, text, missed.heads, at, count, chunk=sizes.strings, window=sizes.window, run=run
    )
    tokens, stuck = merge(
        plan, tables.merges, flat, missed.tokens, window=sizes.window, steps=sizes.steps, run=run
    )
    if lowering == "walk":
        out = emit_walk(strings, take(missed.starts, missed.models) - missed.starts, tokens, capacity)
    else:
        out = emit_arrays(strings, missed.edges, tokens, capacity, sizes.strings)
    return out._replace(unresolved=lost | stuck)


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


def _look_up(
    plan: BPEPlan,
    tables: BPETables,
    buffer: Buffer,
    text: Text,
    edges: Edges,
    sizes: _Sizes,
    lowering: Lowering,
    run: Stage,
) -> Strings:
    """Looks up all strings of up to SHORT bytes."""
    size, chunk = buffer.data.shape[0], sizes.strings
    begins, count = in_order(edges.strings, buffer.length, extra=1, lowering=lowering)

    def body(start: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        first, last = part(begins, start, chunk), part(begins, start + 1, chunk)
        place = place_of(plan, text, first, last)
        mark = ((last - first) << 2 | place).astype(jnp.uint32)
        strings = run(functools.partial(load, width=SHORT // 4), text.words, first, last - first)
        found = find_short(tables.lexicon, strings, mark, run)
        usable = found.hit & (found.own | _whole(text, first, last)) if plan.wholes else found.hit
        kind = take(buffer.kind, first)
        id = jnp.where(usable & (kind == TEXT), found.id, -1)
        if buffer.token is not None:
            id = jnp.where(kind == FROZEN, take(buffer.token, first), id)
        missed = (id < 0) & (start + jnp.arange(chunk, dtype=jnp.int32) < count)
        return write(state[0], id, start), write(state[1], pack(missed), start // 32)

    state = (jnp.zeros(size, jnp.int32), jnp.zeros(size // 32, jnp.uint32))
    ids, missed = for_chunks(count, size, chunk, body, state)
    numbers, misses = in_order(missed, jnp.int32(size - 1), lowering=lowering)
    return Strings(begins, count, ids, edges.strings, numbers, misses)


def _whole(text: Text, first: Int32[Array, " C"], last: Int32[Array, " C"]) -> Bool[Array, " C"]:
    return contains(text.starts, first) & contains(text.ends, last)


class _Missed(NamedTuple):
    """Strings that are not one short token. U of them at most, N bytes, W words.

    starts  int32 [U]   first byte
    marks   int32 [U]   4 * bytes + place of those that have to be merged, 0 for the others
    models  int32 [U]   number of an equal one whose tokens it has
    tokens  int32 [N]   id of the token that begins at a byte, as far as known, -1 elsewhere
    edges   uint32 [W]  bit set of where all begin
    heads, tails  uint32 [W]  where those that are models begin and end
    """

    starts: Int32[Array, " U"]
    marks: Int32[Array, " U"]
    models: Int32[Array, " U"]
    tokens: Int32[Array, " N"]
    edges: UInt32[Array, " W"]
    heads: UInt32[Array, " W"]
    tails: UInt32[Array, " W"]


def _missed(
    plan: BPEPlan,
    tables: BPETables,
    buffer: Buffer,
    text: Text,
    strings: Strings,
    sizes: _Sizes,
    lowering: Lowering,
    run: Stage,
) -> _Missed:
    size, chunk = buffer.data.shape[0], sizes.strings

    def describe(start: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        starts, marks, tokens, edges = state
        number = part(strings.missed, start, chunk)
        real = start + jnp.arange(chunk, dtype=jnp.int32) < strings.misses
        first, last = take(strings.begins, number), take(strings.begins, number + 1)
        mark = jnp.where(real & (take(buffer.kind, first) == TEXT), (last - first) << 2, 0)
        if plan.places:
            mark = mark | jnp.where(mark > 0, place_of(plan, text, first, last), 0)
        if plan.long_wholes:
            tokens, mark = _long(plan, tables, text, first, last, mark, tokens)
        return (
            write(starts, first, start),
            write(marks, mark, start),
            tokens,
            toggle(edges, first, real),
        )

    none = jnp.zeros(size // 32, jnp.uint32)
    zeros = jnp.zeros(size, jnp.int32)
    state = (zeros, zeros, jnp.full(size, -1, jnp.int32), none)
    starts, marks, tokens, edges = for_chunks(strings.misses, size, chunk, describe, state)
    same = jnp.arange(size, dtype=jnp.int32)
    if lowering == "walk":
        same = models(text.words, starts, marks, strings.misses, chunk, run)

    def mark_models(start: jax.Array, sets: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        first, mark = part(starts, start, chunk), part(marks, start, chunk)
        own = part(same, start, chunk) == start + jnp.arange(chunk, dtype=jnp.int32)
        return toggle(sets[0], first, own & (mark > 0)), toggle(sets[1], first + (mark >> 2), own & (mark > 0))

    heads, tails = for_chunks(strings.misses, size, chunk, mark_models, (none, none))
    return _Missed(starts, marks, same, tokens, edges, heads, tails)


def _long(
    plan: BPEPlan,
    tables: BPETables,
    text: Text,
    first: Int32[Array, " C"],
    last: Int32[Array, " C"],
    mark: Int32[Array, " C"],
    tokens: Int32[Array, " N"],
) -> tuple[Int32[Array, " N"], Int32[Array, " C"]]:
    """Looks up strings of more than SHORT bytes among the tokens: what is found needs no merging, its mark is 0."""
    width = tables.lexicon.strings.shape[1] - 2
    long = (mark >> 2 > SHORT) & (mark >> 2 <= 4 * width)

    def search() -> tuple[jax.Array, jax.Array]:
        found = find_long(tables.lexicon, load(text.words, first, last - first, width), mark.astype(jnp.uint32))
        usable = long & found.hit & (found.own | _whole(text, first, last) if plan.wholes else found.own)
        return jnp.where(usable, first, tokens.shape[0]), found.id

    def nothing() -> tuple[jax.Array, jax.Array]:
        return jnp.full(first.shape, tokens.shape[0], jnp.int32), jnp.zeros_like(first)

    where, id = lax.cond(jnp.any(long), search, nothing)
    return tokens.at[where].set(id, mode="drop"), jnp.where(where < tokens.shape[0], 0, mark)
