"""BPE of any number of pieces of any length in a few rounds: all merges that are certain, in all of them at once.

After each round the neighbours of what has merged see further (ops/certain.py). A border that nothing will ever be
merged across ends a piece, and a token between two such borders is done. The first merge of all is certain once limits
have been followed as far as they go.

A round is a pass over all tokens in windows, each of which begins with the last few tokens of the one before: these
are left as they were, so that each pair is seen with what is beside it. Where a pass merges nothing, a run is longer
than a window: passes then are preceded by one from the right, which tells each window what limits come from there.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32

from toktier_jax.ops.certain import UNSEEN, Cascade, Earlier, Limits, after, before, certain, limit
from toktier_jax.ops.chunks import Stage, for_chunks, part, write
from toktier_jax.ops.members import pack, ranked, ranks, total
from toktier_jax.ops.rules import Rule, find_rules
from toktier_jax.ops.scan import some
from toktier_jax.plan import BPEPlan
from toktier_jax.types import CASCADES, NEVER, MergeTables

OVERLAP = 16
"""Tokens at the end of a window that the next one begins with."""


class Flat(NamedTuple):
    """Tokens of pieces, one after another. F + W rows, so that a window of W from any of the F is inside.

    rows   int32 [F + W, 2 or 3]  id, 2 * first byte + (a piece begins here), the level at which it was made (only
                                  where levels can be above ranks)
    count  int32 []
    """

    rows: Int32[Array, "F k"]
    count: Int32[Array, ""]


class _Pass(NamedTuple):
    """A pass over all tokens; what a window leaves is written back behind what the ones before it left.

    read, kept       where the window begins, where what it leaves goes
    fresh            all tokens are symbols, which only the first pass can see
    earlier          what the window before this one knows of its left edge
    merged, waiting  whether this pass merged anything, saw a pair that has a rule
    far              limits are followed as far as there is text: a pass before merged nothing
    back             this pass goes from the right and only fills `edges`
    edges            of each window its last token's limit to the right, UNSEEN where that is not known
    stuck            a pass that is far merged nothing either, with pairs left
    """

    flat: Flat
    tokens: Int32[Array, " N"]
    read: jax.Array
    kept: jax.Array
    fresh: jax.Array
    earlier: Earlier
    merged: jax.Array
    waiting: jax.Array
    far: jax.Array
    back: jax.Array
    edges: Int32[Array, " K"]
    stuck: jax.Array
    going: jax.Array


def merge(
    plan: BPEPlan,
    merges: MergeTables,
    flat: Flat,
    plain: Bool[Array, ""],
    tokens: Int32[Array, " N"],
    *,
    window: int,
    steps: int,
    run: Stage,
) -> tuple[Int32[Array, " N"], Bool[Array, ""]]:
    """Writes each final token's id to `tokens` at its first byte. Also whether some pair could not be decided.

    plain: all tokens are symbols. window: tokens looked at at a time, a multiple of 32. 2 ** steps - 1 tokens away is
    looked in every round; over all the window after one that was idle.
    """
    zero, no = jnp.int32(0), jnp.bool_(False)
    edges = jnp.full(flat.rows.shape[0] // (window - OVERLAP) + 1, UNSEEN, jnp.int32)
    state = _Pass(flat, tokens, zero, zero, plain, _nothing(), no, no, no, no, edges, no, flat.count > 0)
    state = lax.while_loop(lambda s: s.going, lambda s: _window(plan, merges, s, window, steps, run), state)

    def rest(start: jax.Array, tokens: jax.Array) -> jax.Array:
        rows = part(state.flat.rows, start, window)
        valid = start + jnp.arange(window, dtype=jnp.int32) < state.flat.count
        return tokens.at[jnp.where(valid, rows[:, 1] >> 1, tokens.shape[0])].set(rows[:, 0], mode="drop")

    capacity = flat.rows.shape[0] - window
    return for_chunks(state.flat.count, capacity, window, rest, state.tokens), state.stuck


def _nothing() -> Earlier:
    """The left edge of all: a piece begins there."""
    return Earlier(jnp.int32(NEVER), jnp.int32(NEVER), jnp.zeros(2, bool), jnp.zeros(2, bool))


class _View(NamedTuple):
    """The tokens of a window.

    id, place, made  int32 [W]  the columns of Flat; place is -1 past the last token
    head             bool [W]   begins a piece
    joint            bool [W]   has a next token in its piece, which is in sight
    unseen           bool [W]   its next token is in the next window
    held             bool [W]   the next window begins with it, or with the next token
    """

    id: Int32[Array, " W"]
    place: Int32[Array, " W"]
    made: Int32[Array, " W"]
    head: Bool[Array, " W"]
    joint: Bool[Array, " W"]
    unseen: Bool[Array, " W"]
    held: Bool[Array, " W"]


def _view(flat: Flat, read: jax.Array, *, size: int) -> _View:
    rows = part(flat.rows, read, size)
    index = jnp.arange(size, dtype=jnp.int32)
    last = jnp.minimum(flat.count - read, size) - 1
    head = (rows[:, 1] & 1) == 1
    more = read + size < flat.count
    joint = ~after(head, True) & (index < last)
    place = jnp.where(index <= last, rows[:, 1], -1)
    held = more & (index >= size - OVERLAP - 1)
    return _View(rows[:, 0], place, rows[:, -1], head, joint, more & (index == last), held)


class _Levels(NamedTuple):
    """What `certain` and `limit` take, and whether a rule joins each token and the next."""

    pair: Int32[Array, " W"]
    least_left: Int32[Array, " W"]
    least_right: Int32[Array, " W"]
    known: Bool[Array, " W"]


def _levels(plan: BPEPlan, view: _View, rule: Rule, edge: Int32[Array, ""], end: Int32[Array, ""]) -> _Levels:
    """`edge`: the first token's limit to the left; `end`: the last one's to the right, where more tokens follow."""
    known = view.joint & (rule.rank < NEVER)
    level = jnp.where(known, rule.rank, NEVER)
    if plan.cascades:
        level = jnp.where(known, jnp.maximum(level, jnp.maximum(view.made, after(view.made, 0))), NEVER)
    first = jnp.arange(level.shape[0], dtype=jnp.int32) == 0
    left = jnp.where(view.head, NEVER, jnp.where(first, edge, rule.least_left))
    right = jnp.where(view.unseen, end, jnp.where(view.joint, rule.least_right, NEVER))
    return _Levels(jnp.where(view.unseen, end, level), left, right, known)


class _Left(NamedTuple):
    """What a window leaves.

    close   int32 [OVERLAP + W, k]  rows of the tokens that stay, from row OVERLAP on
    count   int32 []    how many they are
    done    int32 [W]   first bytes of tokens that are done, N elsewhere
    id      int32 [W]   ids after merging
    merged  bool []     whether anything merged
    edge    of the next window
    """

    close: Int32[Array, "V k"]
    count: Int32[Array, ""]
    done: Int32[Array, " W"]
    id: Int32[Array, " W"]
    merged: Bool[Array, ""]
    edge: Earlier


def _settle(
    plan: BPEPlan,
    view: _View,
    rule: Rule,
    levels: _Levels,
    sides: tuple[jax.Array, jax.Array],
    earlier: Earlier,
    none: jax.Array,
) -> _Left:
    """Merges what is certain, and parts what is done from the rest; `none` = N."""
    size = view.id.shape[0]
    at = Limits(levels.pair, levels.least_left, levels.least_right, *sides)
    cascade = None
    if plan.cascades:
        late = (rule.rank < at.pair) & (after(view.made, 0) == at.pair)
        cascade = Cascade(jnp.where(levels.known, rule.rank, NEVER), late, (rule.new & CASCADES) != 0)
    sure, ties, turn = certain(at, cascade, earlier)
    merging = levels.known & sure & ~view.held
    seam = slice(size - OVERLAP - 2, size - OVERLAP)
    edge = Earlier(at.left[size - OVERLAP], at.pair[size - OVERLAP - 1], ties[seam], turn[seam])
    never = (at.pair == NEVER) & (at.left == NEVER) & (after(at.right, NEVER) == NEVER)
    border = (view.joint & never) | ~(view.joint | view.unseen)  # nothing is ever merged across it
    begins = view.head | before(border, False)
    ends = jnp.where(merging, after(border, True), border)
    alive = ~before(merging, False) & (view.place >= 0)
    done = alive & begins & ends & ~view.held
    id = jnp.where(merging, rule.new & (CASCADES - 1), view.id)
    columns = [id, view.place | begins.astype(jnp.int32)]
    if plan.cascades:
        columns.append(jnp.where(merging, levels.pair, view.made))
    stay = ranked(pack(alive & ~done))
    slot = jnp.where(alive & ~done, OVERLAP + ranks(stay), OVERLAP + size)
    close = jnp.zeros((OVERLAP + size, len(columns)), jnp.int32)
    close = close.at[slot].set(jnp.stack(columns, axis=1), mode="drop")
    return _Left(close, total(stay), jnp.where(done, view.place >> 1, none), id, some(merging), edge)


def _window(plan: BPEPlan, merges: MergeTables, s: _Pass, size: int, steps: int, run: Stage) -> _Pass:
    """One window of a pass; the last one also begins the next pass, or ends the work."""
    stride, number = size - OVERLAP, lax.div(s.read, size - OVERLAP)
    view = run(lambda *a: _view(*a, size=size), s.flat, s.read)
    rule = find_rules(merges, view.id, s.fresh if merges.of_bytes.shape[0] > 1 else None, run)
    levels = run(lambda *a: _levels(plan, *a), view, rule, s.earlier.left, s.edges[number])
    reach = jnp.where(s.far, size.bit_length(), steps)
    edge = levels.least_left[0]
    sides = (
        limit(before(levels.pair, edge), levels.least_left, edge, reach, leftwards=True),
        limit(levels.pair, levels.least_right, jnp.int32(NEVER), reach, leftwards=False),
    )
    left = run(lambda *a: _settle(plan, *a), view, rule, levels, sides, s.earlier, jnp.int32(s.tokens.shape[0]))
    forward = _forward(s, left, some(levels.known), size)
    # where the pass goes from the right, all of that was in vain, but for the limit at this window's first tokens
    edges = s.edges.at[jnp.where(s.back, number - 1, s.edges.shape[0])].set(sides[1][OVERLAP - 1], mode="drop")
    forward = forward._replace(edges=edges)
    back = s._replace(
        flat=forward.flat._replace(count=s.flat.count),
        tokens=forward.tokens,
        edges=edges,
        read=s.read - stride,
        back=s.read > stride,
    )
    return jax.tree.map(lambda one, other: one if one is other else jnp.where(s.back, one, other), back, forward)


def _forward(s: _Pass, left: _Left, waits: Bool[Array, ""], size: int) -> _Pass:
    """What a window leaves is written, and the next one's state made. A pass from the right writes to no place."""
    capacity = s.flat.rows.shape[0] - size
    tokens = s.tokens.at[jnp.where(s.back, s.tokens.shape[0], left.done)].set(left.id, mode="drop")
    merged, waiting = s.merged | left.merged, s.waiting | waits
    more = s.read + size < s.flat.count
    rows = write(s.flat.rows, left.close[OVERLAP:], jnp.where(s.back, capacity, s.kept))
    # the next window begins with the last tokens: they move before it
    seam = s.read + size - OVERLAP
    moves = more & ~s.back
    rows = write(rows, jnp.where(moves, part(left.close, left.count, OVERLAP), part(rows, seam, OVERLAP)), seam)
    kept = s.kept + left.count - jnp.where(more, OVERLAP, 0)
    idle = ~merged & waiting
    count, far = jnp.where(more, s.flat.count, kept), s.far | (idle & ~more)
    last = lax.div(jnp.maximum(count - OVERLAP - 1, 0), size - OVERLAP) * (size - OVERLAP)
    back = far & ~more & (last > 0)
    return _Pass(
        flat=Flat(rows, count),
        tokens=tokens,
        read=jnp.where(more, s.read + size - OVERLAP, jnp.where(back, last, 0)),
        kept=jnp.where(more, kept, 0),
        fresh=s.fresh & more,
        earlier=jax.tree.map(lambda here, new: jnp.where(more, here, new), left.edge, _nothing()),
        merged=merged & more,
        waiting=waiting & more,
        far=far,
        back=back,
        edges=s.edges,
        stuck=idle & s.far & ~more,
        going=more | (waiting & ~(idle & s.far)),
    )
