"""Pieces to tokens by a vocabulary of words: whole ones are looked up, the rest is cut greedily, longest match first.

WordPiece: Schuster and Nakajima, Japanese and Korean Voice Search (ICASSP 2012); the matching is that of Song et al.,
Fast WordPiece Tokenization (arXiv 2012.15524), section 3, by a trie, for many words in step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from toktier_jax.ops.chunks import Stage, for_chunks, part, stage, write
from toktier_jax.ops.emit import ELSEWHERE, Strings, Tokens, emit
from toktier_jax.ops.lookup import as_words, find_long, find_short, load
from toktier_jax.ops.members import Ranked, insides, pack, rank_of, ranked, toggle
from toktier_jax.ops.pieces import Cursor, members_of, take_members
from toktier_jax.ops.places import take
from toktier_jax.ops.scan import Lowering, some
from toktier_jax.plan import WordPiecePlan
from toktier_jax.types import FROZEN, REMOVED, SHORT, TEXT, Buffer, WordPieceTables

_UNROLLED = 4  # bytes of a match that are walked at a time: their look-ups need no kernels of their own


class _Work(NamedTuple):
    """What every stage needs.

    chunk   words worked on at a time
    leads   bytes at which a character begins, counted
    """

    plan: WordPiecePlan
    tables: WordPieceTables
    buffer: Buffer
    words: UInt32[Array, " M"]
    leads: Ranked
    chunk: int
    lowering: Lowering
    run: Stage


class _State(NamedTuple):
    """How far the words are encoded.

    ids     int32 [N]   of each word its only token, or ELSEWHERE
    tokens  int32 [N]   ids at the first bytes of the tokens of words that have several
    firsts  uint32 [W]  bit set of the first bytes of all tokens
    failed  bool []     there is an unknown word, and no token for it
    """

    ids: Int32[Array, " N"]
    tokens: Int32[Array, " N"]
    firsts: UInt32[Array, " W"]
    failed: Bool[Array, ""]


def tokenize_words(
    plan: WordPiecePlan, tables: WordPieceTables, buffer: Buffer, capacity: int, *, lowering: Lowering
) -> Tokens:
    """Tokens of every piece of a buffer, in order.

    capacity: tokens to be returned at most; the true number is returned too.
    """
    tables = jax.tree.map(jnp.asarray, tables)
    length, chunk = buffer.length, 4096
    if lowering == "arrays":
        chunk = -(-buffer.data.shape[0] // 4096) * 1024
    step = 1 << 14 if lowering == "walk" else 4 * chunk
    step = min(step, -(-buffer.data.shape[0] // 4096) * 4096)
    buffer = _pad(buffer, step)
    size = buffer.data.shape[0]

    def sets(start: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        inside = start + jnp.arange(step, dtype=jnp.int32) < length
        begins = part(buffer.starts, start, step) & inside
        leads = inside & ((part(buffer.data, start, step) & np.uint8(0xC0)) != np.uint8(0x80))
        both = zip(state, (begins, leads), strict=True)
        edges, leads = (write(old, pack(new), start // 32) for old, new in both)
        return edges, leads

    none = jnp.zeros(size // 32, jnp.uint32)
    edges, leads = for_chunks(length, size, step, sets, (none, none))
    longest = 4 * (tables.lexicon.strings.shape[1] - 2)
    run = stage(lowering, length)
    words = as_words(buffer.data, longest)
    work = _Work(plan, tables, buffer, words, ranked(leads), min(chunk, size), lowering, run)
    members, cursor = members_of(edges)
    begins, _ = take_members(members, cursor, size + 1, length, lowering=lowering)
    state, missed = _look_up(work, begins, members.count, edges)
    state = _encode_missed(work, begins, missed, state)
    strings = Strings(begins, edges, members.count, state.ids)
    out = emit(strings, state.tokens, state.firsts, capacity, work.chunk, lowering=lowering, run=run)
    return out._replace(unresolved=state.failed)


def _pad(buffer: Buffer, step: int) -> Buffer:
    """The fields that are read, padded to whole steps."""
    extra = -buffer.data.shape[0] % step
    token = None if buffer.token is None else jnp.pad(buffer.token, (0, extra))
    fields = {name: jnp.pad(getattr(buffer, name), (0, extra)) for name in ("data", "starts", "kind")}
    return buffer._replace(token=token, **fields)


def _look_up(
    work: _Work, begins: Int32[Array, " N+1"], count: jax.Array, edges: UInt32[Array, " W"]
) -> tuple[_State, UInt32[Array, " S"]]:
    """Looks up all words of up to SHORT bytes. Returns also a bit set of the numbers of those not found."""
    buffer, chunk = work.buffer, work.chunk
    size = buffer.data.shape[0]

    def body(start: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        ids, missed, firsts = state
        first, last = part(begins, start, chunk), part(begins, start + 1, chunk)
        real = start + jnp.arange(chunk, dtype=jnp.int32) < count
        first = jnp.where(real, first, 0)
        strings = work.run(lambda *given: load(*given, width=SHORT // 4), work.words, first, last - first)
        found = find_short(work.tables.lexicon, strings, ((last - first) << 2).astype(jnp.uint32), work.run)
        kind = take(buffer.kind, first)
        text = real & (kind == np.uint8(TEXT))
        id = jnp.where(text & found.hit, found.id, ELSEWHERE)
        if buffer.token is not None:
            id = jnp.where(kind == np.uint8(FROZEN), take(buffer.token, first), id)
        removed = real & (kind == np.uint8(REMOVED))
        return write(ids, id, start), write(missed, pack(text & (id < 0)), start // 32), toggle(firsts, first, removed)

    blank = jnp.zeros(size, jnp.int32)
    ids, missed, removed = for_chunks(count, size, chunk, body, (blank, jnp.zeros_like(edges), jnp.zeros_like(edges)))
    return _State(ids, blank, edges & ~removed, jnp.bool_(False)), missed


def _encode_missed(work: _Work, begins: Int32[Array, " N+1"], missed: UInt32[Array, " S"], state: _State) -> _State:
    """Encodes the words that were not found, a chunk of them at a time."""
    members, none = members_of(missed)
    padding = jnp.int32(work.buffer.data.shape[0])

    def batch(carry: tuple[Cursor, _State]) -> tuple[Cursor, _State]:
        cursor, state = carry
        numbers, after = take_members(members, cursor, work.chunk, padding, lowering=work.lowering)
        real = jnp.arange(work.chunk, dtype=jnp.int32) < after.taken - cursor.taken
        return after, _encode_words(work, begins, numbers, real, state)

    return lax.while_loop(lambda carry: carry[0].taken < members.count, batch, (none, state))[1]


def _encode_words(
    work: _Work, begins: Int32[Array, " N+1"], numbers: Int32[Array, " C"], real: Bool[Array, " C"], state: _State
) -> _State:
    """Encodes the words of these numbers, where they are `real`."""
    plan, tables = work.plan, work.tables
    number = jnp.where(real, numbers, 0)
    first, last = take(begins, number), take(begins, number + 1)
    id = _long(work, first, last, real) if plan.long else jnp.full(first.shape, -1, jnp.int32)
    tokens, firsts = state.tokens, state.firsts
    whole = real & (id < 0)
    if plan.parts:
        characters = last - first
        if plan.unit == "char":
            characters = _rank(work.leads, last) - _rank(work.leads, first)
        cut = whole & (characters <= tables.most)
        tokens, reached, good = _cut(work, first, last, cut, tokens)
        lost = toggle(jnp.zeros_like(firsts), first, cut & ~good) ^ toggle(jnp.zeros_like(firsts), last, cut & ~good)
        firsts = firsts | (reached & ~insides(lost))
        whole = whole & ~good
    id = jnp.where(whole, tables.unknown, id)
    ids = state.ids.at[numbers].set(jnp.where(id >= 0, id, ELSEWHERE), mode="drop")
    failed = state.failed if plan.unknown else state.failed | some(whole)
    return _State(ids, tokens, firsts, failed)


def _rank(of: Ranked, position: Int32[Array, " C"]) -> Int32[Array, " C"]:
    """Members before each position, which can be the end."""
    inside = jnp.minimum(position, 32 * of.words.shape[0] - 1)
    return rank_of(of, inside) + jnp.where(
        position > inside, (of.words[-1] >> np.uint32(31)).astype(jnp.int32), jnp.int32(0)
    )


def _long(work: _Work, first: Int32[Array, " C"], last: Int32[Array, " C"], real: Bool[Array, " C"]) -> jax.Array:
    """Ids of the words of more than SHORT bytes that are tokens, else -1."""
    lexicon = work.tables.lexicon
    width = lexicon.strings.shape[1] - 2
    long = real & (last - first > SHORT) & (last - first <= 4 * width)

    def search() -> jax.Array:
        mark = ((last - first) << 2).astype(jnp.uint32)
        found = find_long(lexicon, load(work.words, first, last - first, width), mark)
        return jnp.where(long & found.hit, found.id, -1)

    return lax.cond(some(long), search, lambda: jnp.full(first.shape, -1, jnp.int32))


def _cut(
    work: _Work, first: Int32[Array, " C"], last: Int32[Array, " C"], wanted: Bool[Array, " C"], tokens: jax.Array
) -> tuple[Int32[Array, " N"], UInt32[Array, " W"], Bool[Array, " C"]]:
    """Cuts the wanted words, all in step: a round is a token of each.

    Returns the tokens at their first bytes, a bit set of these less the words' own, and which words it went well with.
    """
    tables, size = work.tables, tokens.shape[0]

    def token(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        at, good, tokens, reached = state
        live = good & (at < last)
        root = jnp.where(at == first, tables.roots[0], tables.roots[1])
        number = _longest(work, root, at, last, live)
        found = live & (number >= 0)
        id, width = (take(row, jnp.maximum(number, 0)) for row in tables.tokens)
        tokens = tokens.at[jnp.where(found, at, size)].set(id, mode="drop")
        at = jnp.where(found, at + width, at)
        return at, good & (found | ~live), tokens, toggle(reached, at, found & (at < last))

    def undone(state: tuple[jax.Array, ...]) -> jax.Array:
        return some(state[1] & (state[0] < last))

    start = (first, wanted, tokens, jnp.zeros(size // 32, jnp.uint32))
    _, good, tokens, reached = lax.while_loop(undone, token, start)
    return tokens, reached, good


def _longest(
    work: _Work, node: Int32[Array, " C"], at: Int32[Array, " C"], last: Int32[Array, " C"], live: Bool[Array, " C"]
) -> Int32[Array, " C"]:
    """The longest token that the text from `at`, up to `last`, begins with, by its number; -1 where there is none."""
    base, parent, longest, _ = work.tables.trie
    end = work.buffer.data.shape[0] - 1

    def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        node, at, live = state
        for _ in range(_UNROLLED):
            child = take(base, node) + take(work.buffer.data, jnp.minimum(at, end)).astype(jnp.int32)
            live = live & (at < last) & (take(parent, child) == node)
            node, at = jnp.where(live, child, node), at + 1
        return node, at, live

    node, _, _ = lax.while_loop(lambda state: some(state[2]), step, (node, at, live))
    return take(longest, node)
