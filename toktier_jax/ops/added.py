"""Finds added tokens: marks their bytes FROZEN, cuts segments at both ends, writes the id at the first byte.

Candidates are what begins like a token, by its first two bytes. They are rare, so everything after that first look
costs in proportion to their number: they are taken in chunks, in order; in each the longest literal is found by
walking a trie, overlaps are resolved from the left, flags are honoured, and only the ends go into bit sets.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt8, UInt32

from toktier_jax.ops import bits
from toktier_jax.ops.materialize import materialize
from toktier_jax.ops.places import nearest
from toktier_jax.ops.scan import Lowering, some
from toktier_jax.plan import AddedPlan
from toktier_jax.types import CONT, FROZEN, LSTRIP, RSTRIP, SINGLE_WORD, TEXT, AddedTables, Buffer

_SPACE, _WORD = np.uint8(1), np.uint8(2)
_BARRIER = np.uint8(0xC0)  # occurs in no literal


class _Pass(NamedTuple):
    """What all chunks read.

    inner       uint8 [N]  the bytes as they may go on a match: a barrier where a segment starts and past the text
    candidates  where a literal may begin
    after, before  where white space ends to the right and to the left (None where no token strips it)
    frontier    int32 []  where the text that a later token may take begins, matches left aside
    """

    plan: AddedPlan
    tables: AddedTables
    buffer: Buffer
    symbols: jax.Array | None
    inner: jax.Array
    candidates: bits.Ranked
    after: bits.Neighbours | None
    before: bits.Neighbours | None
    frontier: jax.Array


class _Found(NamedTuple):
    """What is known after the chunks so far.

    rank      int32 []  candidates looked at
    used      int32 []  text up to here belongs to a match, accepted or not
    taken     int32 []  end of the last accepted match, white space included
    starts, stops     uint32 [W]  first bytes of accepted matches, and bytes after them
    watched, passed   uint32 [W]  ends of where work may not be resumed (None unless the plan has single_word)
    token     int32 [N]
    frontier  int32 []  a match that more text could change, or that lies across the frontier, begins here
    """

    rank: jax.Array
    used: jax.Array
    taken: jax.Array
    starts: jax.Array
    stops: jax.Array
    watched: jax.Array | None
    passed: jax.Array | None
    token: jax.Array
    frontier: jax.Array


def match_added(
    plan: AddedPlan,
    tables: AddedTables,
    buffer: Buffer,
    symbols: UInt8[Array, " N"] | None,
    *,
    at_end: bool = True,
    lowering: Lowering,
) -> Buffer:
    """One pass over the open TEXT segments, with the reference's leftmost-longest choice.

    `symbols` may be None where no token of the plan has a flag. A match never crosses a segment start. What
    `single_word` or `tables.rejected` rejects has used up its text all the same. With `at_end=False` more text may
    follow the last document: `decided` becomes at most the first byte that it could make part of a token.
    """
    size = buffer.data.shape[0]
    tables = jax.tree.map(jnp.asarray, tables)
    width = max(64, size // 64) if lowering == "arrays" else min(1024, max(64, size // 64))
    work = _prepare(plan, tables, buffer, symbols, at_end, lowering)
    found = lax.while_loop(
        lambda found: found.rank < work.candidates.count,
        lambda found: _chunk(work, found, width),
        _nothing(work),
    )

    def marked() -> tuple[jax.Array, jax.Array]:
        inside = materialize(bits.fill(found.starts ^ found.stops), buffer.length, lowering=lowering)
        ends = materialize(found.starts | found.stops, buffer.length, lowering=lowering)
        kind = jnp.where(bits.unpack(inside, size), np.uint8(FROZEN), buffer.kind)
        return buffer.starts | bits.unpack(ends, size), kind

    if lowering == "arrays":
        starts, kind = marked()
    else:
        starts, kind = lax.cond(found.taken > 0, marked, lambda: (buffer.starts, buffer.kind))
    resume = buffer.resume
    if found.watched is not None and found.passed is not None:
        free = ~bits.unpack(bits.fill(found.watched ^ found.passed), size)
        resume = free if resume is None else resume & free
    decided = buffer.decided if at_end else jnp.minimum(buffer.decided, found.frontier)
    return buffer._replace(starts=starts, kind=kind, token=found.token, decided=decided, resume=resume)


def _prepare(
    plan: AddedPlan,
    tables: AddedTables,
    buffer: Buffer,
    symbols: jax.Array | None,
    at_end: bool,
    lowering: Lowering,
) -> _Pass:
    data, length = buffer.data, buffer.length
    text = jnp.arange(data.shape[0], dtype=jnp.int32) < length
    inner = materialize(jnp.where(buffer.starts | ~text, _BARRIER, data), length, lowering=lowering)
    begins = materialize(_begins(plan, tables, data) & text, length, lowering=lowering)
    after = before = None
    if symbols is not None and (plan.lstrip or plan.rstrip):
        space = (nearest(tables.characters, symbols) & _SPACE) != 0
        for _ in range(2):  # no white space has more than three bytes
            space = space | ((symbols == np.uint8(CONT)) & lax.pad(space, False, ((1, -1, 0),)))
        if plan.rstrip:
            after = bits.forward(bits.pack(~space | buffer.starts | ~text))
        if plan.lstrip:
            begun = lax.pad(buffer.starts & text, False, ((0, 1, 0),))  # the end of the text is a place like any other
            before = bits.backward(bits.pack(lax.pad(~space, True, ((1, 0, 0),)) | begun))
    work = _Pass(plan, tables, buffer, symbols, inner, bits.ranked(bits.pack(begins)), after, before, length)
    return work if at_end else work._replace(frontier=_frontier(work))


def _begins(plan: AddedPlan, tables: AddedTables, data: UInt8[Array, " N"]) -> Bool[Array, " N"]:
    """Bytes at which a literal may begin, by the pair of bytes there."""
    second = lax.pad(data, np.uint8(0), ((-1, 1, 0),))
    if not plan.pairs:
        return nearest(tables.pairs, data.astype(jnp.int32) + 256 * second.astype(jnp.int32))
    begins = jnp.zeros(data.shape, bool)
    for k in range(plan.pairs):
        begins = begins | ((data == tables.pairs[0, k]) & (second == tables.pairs[1, k]))
    return begins


def _nothing(work: _Pass) -> _Found:
    zero, empty = jnp.int32(0), jnp.zeros_like(work.candidates.words)
    watched = empty if work.plan.single_word else None
    token = work.buffer.token
    token = jnp.full(work.inner.shape, -1, jnp.int32) if token is None else token
    return _Found(zero, zero, zero, empty, empty, watched, watched, token, work.frontier)


# ---- one chunk ----


def _chunk(work: _Pass, found: _Found, width: int) -> _Found:
    """The next `width` candidates."""
    tables, size = work.tables, work.inner.shape[0]
    start = bits.select(work.candidates, found.rank, width)
    open_ = (start < size) & (start >= found.used)
    node, _ = _walk(work, start, open_ & (nearest(work.buffer.kind, start) == np.uint8(TEXT)))
    index = nearest(tables.trie[2], node)
    stop = start + jnp.where(index >= 0, nearest(tables.tokens[1], index), 0)
    matched = _leftmost(work, found.rank, start, stop, open_) & (index >= 0)
    flags = jnp.where(matched, nearest(tables.tokens[2], index), 0)
    accepted = matched & ~nearest(tables.rejected, index)
    watched, passed = found.watched, found.passed
    if watched is not None and passed is not None:
        single = (flags & SINGLE_WORD) != 0
        accepted = accepted & ~(single & (_word_before(work, start) | _word_at(work, stop)))
        watched, passed = _insert(watched, jnp.where(single, start, start + 1), matched), _insert(passed, stop, matched)
    left, right = start, stop
    if work.after is not None:
        after = jnp.minimum(bits.next_member(work.after, jnp.minimum(stop, size)), work.buffer.length)
        right = jnp.where((flags & RSTRIP) != 0, after, right)
    ends = jnp.where(accepted, right, 0)
    if work.before is not None:
        before = bits.last_member(work.before, jnp.minimum(start, size))
        last = jnp.maximum(found.taken, lax.pad(lax.cummax(ends), jnp.int32(0), ((1, -1, 0),)))
        left = jnp.where((flags & LSTRIP) != 0, jnp.maximum(before, last), left)
    used = jnp.maximum(found.used, jnp.max(jnp.where(matched, stop, 0)))
    unsettled = matched & _unsettled(work, flags, accepted, left, jnp.where(accepted, right, stop))
    return _Found(
        rank=jnp.maximum(found.rank + width, bits.rank(work.candidates, used[None])[0]),
        used=used,
        taken=jnp.maximum(found.taken, jnp.max(ends)),
        starts=_insert(found.starts, left, accepted),
        stops=_insert(found.stops, right, accepted),
        watched=watched,
        passed=passed,
        token=found.token.at[jnp.where(accepted, left, size)].set(nearest(tables.tokens[0], index), mode="drop"),
        frontier=jnp.minimum(found.frontier, jnp.min(jnp.where(unsettled, left, size))),
    )


def _walk(
    work: _Pass, start: Int32[Array, " C"], live: Bool[Array, " C"]
) -> tuple[Int32[Array, " C"], Bool[Array, " C"]]:
    """The trie node that the text of a segment from each `start` leads to, and whether the text ended on the way."""
    slots = work.tables.trie.shape[1]
    trie = work.tables.trie.reshape(-1)

    def step(byte: jax.Array, node: jax.Array, alive: jax.Array) -> tuple[jax.Array, jax.Array]:
        child = nearest(trie, node) + byte.astype(jnp.int32)
        alive = alive & (nearest(trie, slots + child) == node)
        return jnp.where(alive, child, node), alive

    def go_on(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        node, alive, cut, at = state
        byte = work.inner.at[at].get(mode="fill", fill_value=_BARRIER)
        cut = cut | (alive & (at >= work.buffer.length))
        return *step(byte, node, alive), cut, at + 1

    first = step(nearest(work.buffer.data, start), jnp.zeros_like(start), live)
    node, _, cut, _ = lax.while_loop(lambda state: some(state[1]), go_on, (*first, jnp.zeros_like(live), start + 1))
    return node, cut


def _leftmost(
    work: _Pass, rank: jax.Array, start: Int32[Array, " C"], stop: Int32[Array, " C"], open_: Bool[Array, " C"]
) -> Bool[Array, " C"]:
    """Which of the candidates [start, stop) a search from the left meets: bool [C].

    From each it goes on with the first that begins at or after its end, or after its first byte where it is none. Where
    any two overlap, by pointer doubling.
    """
    count = start.shape[0]

    def double(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        met, jump = state
        met = met.at[jnp.where(met, jump, count)].set(True, mode="drop")
        return met, jnp.where(jump < count, nearest(jump, jump), count)

    def chase() -> jax.Array:
        after = jnp.minimum(jnp.maximum(stop, start + 1), 32 * work.candidates.words.shape[0])
        jump = jnp.minimum(bits.rank(work.candidates, after) - rank, count)
        first = jnp.arange(count, dtype=jnp.int32) == jnp.argmax(open_).astype(jnp.int32)
        met, _ = lax.fori_loop(0, count.bit_length(), double, (first, jump))
        return met & open_

    overlap = (stop[:-1] > start[1:]) & open_[:-1]
    return lax.cond(some(overlap), chase, lambda: open_)


def _insert(words: UInt32[Array, " W"], positions: Int32[Array, " C"], wanted: Bool[Array, " C"]) -> jax.Array:
    """Adds distinct positions to a bit set that has none of them."""
    word = jnp.where(wanted, positions >> 5, words.shape[0])
    return words.at[word].add(np.uint32(1) << (positions & 31).astype(jnp.uint32), mode="drop")


# ---- characters around a match ----


def _word_at(work: _Pass, position: jax.Array) -> jax.Array:
    """Whether a word character of the same segment begins here."""
    assert work.symbols is not None, "single_word needs symbols"
    more = (position < work.buffer.length) & ~nearest(work.buffer.starts, position)
    return more & ((nearest(work.tables.characters, nearest(work.symbols, position)) & _WORD) != 0)


def _word_before(work: _Pass, position: jax.Array) -> jax.Array:
    """Whether a word character of the same segment ends here."""
    assert work.symbols is not None, "single_word needs symbols"
    symbol = nearest(work.symbols, position - 1)
    for back in (2, 3, 4):
        symbol = jnp.where(symbol == np.uint8(CONT), nearest(work.symbols, position - back), symbol)
    word = (nearest(work.tables.characters, symbol) & _WORD) != 0
    return word & ~nearest(work.buffer.starts, position)


# ---- finality ----


def _frontier(work: _Pass) -> Int32[Array, ""]:
    """Where the text that a later token may yet take begins, matches left aside.

    The longest suffix that is a proper prefix of a literal; the white space before it, for `lstrip`; the character
    before it, for `single_word`.
    """
    buffer, longest = work.buffer, work.plan.longest
    start = buffer.length - longest + jnp.arange(longest, dtype=jnp.int32)
    live = (start >= 0) & (nearest(buffer.kind, start) == np.uint8(TEXT))
    node, cut = _walk(work, jnp.maximum(start, 0), live)
    grows = live & cut & (nearest(work.tables.trie[3], node) != 0)
    frontier = jnp.min(jnp.where(grows, start, buffer.length))
    if work.before is not None:
        frontier = bits.last_member(work.before, frontier[None])[0]
    if work.plan.single_word:
        back = frontier - jnp.arange(1, 5, dtype=jnp.int32)
        lead = (back >= 0) & ((nearest(buffer.data, back) & np.uint8(0xC0)) != np.uint8(0x80))
        frontier = jnp.max(jnp.where(lead, back, 0))
    return frontier


def _unsettled(
    work: _Pass, flags: jax.Array, accepted: jax.Array, left: jax.Array, right: jax.Array
) -> Bool[Array, " C"]:
    """Matches that more text could change (they strip or judge what follows), or that the frontier cuts in two."""
    open_end = right >= work.buffer.length
    strips = accepted & ((flags & RSTRIP) != 0)
    judges = (flags & SINGLE_WORD) != 0
    return (open_end & (strips | judges)) | ((left < work.frontier) & (work.frontier < right))
