"""BPE of any number of pieces of any length in a few rounds: every merge that is certain, in all of them at once.

Definition: of all neighbours that a rule joins, the pair of lowest rank merges first, the leftmost of those, and again.
Call *level* of a merge the highest rank that was reached before or with it. Two tokens that are neighbours and will be
tokens at the same time merge at the level max(rank of their rule, levels at which they were made) if neither was
merged away before. So a pair is *certain* where its level is below a level at which its left token could be merged to
the left, and below one at which its right token could be merged to the right. Such limits come from the text nearby:
a token is merged with its neighbour as it is now, at that pair's level; or with what its neighbour has become, not
before that becomes something, and at no rank below the least one of any rule that joins the token with a token which
ends (or begins) with the symbol beside it. Symbols never change, so this holds for whatever the neighbour becomes.

All certain pairs merge in a round, and then the neighbours see further. A pair that ties with the one before it
(`aaa`) waits for that one: of a run, every second pair merges. A border that can never be merged across ends a piece,
and tokens between two such borders are done. A pair of least level is always certain once limits have been followed
far enough, except where two merges of one level touch that a merge of that level made possible (see `stuck`).

Berglund and van der Merwe (arXiv 2309.08715) define BPE formally; that neighbours decide everything is the
observation behind the `bpe` crate and Hayase et al. (arXiv 2506.14123).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32

from ..plan import BPEPlan
from ..types import CASCADES, NEVER, MergeTables
from .chunks import for_chunks, part, write
from .members import pack, ranked, ranks, total
from .rules import bounds, find_rules
from .runs import alternate

OVERLAP = 8
"""Tokens that a window looks at again after the one before it: more than twice the depth to which limits are followed."""


class Flat(NamedTuple):
    """Tokens of pieces, one after another. F + W rows, so that a window of W from any of the F is inside.

    rows   int32 [F + W, 2 or 3]  id, 2 * first byte + (a piece begins here), the level at which it was made (only
                                  where levels can be above ranks)
    count  int32 []
    """

    rows: Int32[Array, "F k"]
    count: Int32[Array, ""]


class Limits(NamedTuple):
    """Levels, int32 [W] each, in a window of tokens.

    pair         of the merge of each token with the next; NEVER where there is none, 0 where the next is not in sight
    least_left   no rule of lower rank merges the token with anything on its left
    left, right  the token is not merged to the left, to the right, below these levels
    """

    pair: Int32[Array, " W"]
    least_left: Int32[Array, " W"]
    left: Int32[Array, " W"]
    right: Int32[Array, " W"]


def limit(
    pair: Int32[Array, " W"], least: Int32[Array, " W"], edge: jax.Array, steps: jax.Array, *, leftwards: bool
) -> Int32[Array, " W"]:
    """The limit of each token on one side, from what is seen up to 2 ** steps - 1 tokens away.

    pair: the level of its pair with the neighbour on that side; edge: int32 [], the limit beyond the last token.
    A token's limit is min(pair, max(the neighbour's limit, least)). Such functions of the neighbour's limit make one of
    their kind when one is applied after the other, so the distance doubles with each step.
    """

    def double(step: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        high, low = carry
        far_high, far_low = (_moved(values, jnp.int32(1) << step, edge, leftwards) for values in carry)
        return jnp.minimum(high, jnp.maximum(far_high, low)), jnp.maximum(low, far_low)

    high, low = lax.fori_loop(0, steps, double, (pair, least))
    return jnp.minimum(high, low)


def _moved(values: Int32[Array, " W"], by: jax.Array, edge: jax.Array, leftwards: bool) -> Int32[Array, " W"]:
    """For each place the value `by` places before it (after it: not `leftwards`); `edge` where there is none."""
    size = values.shape[0]
    beyond = jnp.broadcast_to(edge, (size,))
    if leftwards:
        return lax.dynamic_slice(jnp.concatenate([beyond, values]), (size - by,), (size,))
    return lax.dynamic_slice(jnp.concatenate([values, beyond]), (by,), (size,))


def certain(at: Limits, proper: Bool[Array, " W"], cascades: Bool[Array, " W"]) -> Bool[Array, " W"]:
    """Which tokens merge with the next one now.

    `proper`: the pair's level is its own rank. Then another merge of the same level to its right comes later (leftmost
    first), and so does one to its left unless that one's token `cascades`: merges again at once.
    """
    right = _after(at.right, NEVER)
    right_sure = (at.pair < right) | ((at.pair == right) & proper)
    left_sure = (at.pair < at.left) | ((at.pair == at.left) & proper & ~cascades)
    tie = proper & _before(proper, False) & (at.pair == _before(at.pair, NEVER))
    turn = alternate(tie, left_sure & right_sure)
    turn = turn & (at.left >= at.pair) & (~cascades | (at.least_left >= at.pair))
    return right_sure & jnp.where(tie, turn, left_sure)


def _before(values: jax.Array, edge: jax.Array | int | bool) -> jax.Array:
    """The value one place to the left; `edge` at the first place."""
    first = jnp.broadcast_to(jnp.asarray(edge, values.dtype), (1,))
    return jnp.concatenate([first, values[:-1]])


def _after(values: jax.Array, edge: int | bool) -> jax.Array:
    """The value one place to the right; `edge` at the last place."""
    return jnp.concatenate([values[1:], jnp.full(1, edge, values.dtype)])


class _Pass(NamedTuple):
    """A pass over all tokens, in windows; they are written back closer together as they merge and are done.

    read, kept  where the window begins, where what it leaves goes
    merged, waiting  whether this pass merged anything, saw a pair that has a rule
    far         limits are followed as far as it goes: the pass before merged nothing
    stuck       so did this, with pairs left
    """

    flat: Flat
    tokens: Int32[Array, " N"]
    read: jax.Array
    kept: jax.Array
    merged: jax.Array
    waiting: jax.Array
    far: jax.Array
    stuck: jax.Array
    going: jax.Array


def merge(
    plan: BPEPlan, merges: MergeTables, flat: Flat, tokens: Int32[Array, " N"], *, window: int, steps: int
) -> tuple[Int32[Array, " N"], Bool[Array, ""]]:
    """Writes each final token's id to `tokens` at its first byte. Also whether some pair could not be decided.

    `window` is a multiple of 32. 2 ** steps - 1 tokens away is looked in every round; over all the window after one
    that was idle.
    """
    no = jnp.bool_(False)
    state = _Pass(flat, tokens, jnp.int32(0), jnp.int32(0), no, no, no, no, flat.count > 0)
    state = lax.while_loop(
        lambda s: s.going, lambda s: _window(plan, merges, s, window, steps), state
    )

    def rest(start: jax.Array, tokens: jax.Array) -> jax.Array:
        rows = part(state.flat.rows, start, window)
        valid = start + jnp.arange(window, dtype=jnp.int32) < state.flat.count
        return tokens.at[jnp.where(valid, rows[:, 1] >> 1, tokens.shape[0])].set(rows[:, 0], mode="drop")

    capacity = flat.rows.shape[0] - window
    return for_chunks(state.flat.count, capacity, window, rest, state.tokens), state.stuck


def _window(plan: BPEPlan, merges: MergeTables, s: _Pass, size: int, steps: int) -> _Pass:
    """One window of a pass; the last one also begins the next pass, or ends the work."""
    rows = part(s.flat.rows, s.read, size)
    index = jnp.arange(size, dtype=jnp.int32)
    count = jnp.minimum(s.flat.count - s.read, size)
    open_left, open_right = s.read > 0, s.read + size < s.flat.count
    id, place = rows[:, 0], rows[:, 1]
    head = (place & 1) == 1
    unseen = open_right & (index == count - 1)
    joint = ~_after(head, True) & (index < count - 1)  # there is a next token in the piece, and it is in sight
    tail = ~joint & ~unseen
    rule = find_rules(merges, id, _after(id, 0))
    rank = jnp.where(joint, rule.rank, NEVER)
    level = rank
    if plan.cascades:
        made = rows[:, 2]
        level = jnp.where(rank < NEVER, jnp.maximum(rank, jnp.maximum(made, _after(made, 0))), NEVER)
    least_left, least_right = bounds(merges, _before(id, 0), id, _after(id, 0))
    least_left = jnp.where(head, NEVER, jnp.where(open_left & (index == 0), 0, least_left))
    least_right = jnp.where(tail, NEVER, jnp.where(unseen, 0, least_right))
    pair = jnp.where(unseen, 0, level)
    reach = jnp.where(s.far, size.bit_length(), steps)
    left = limit(_before(pair, least_left[0]), least_left, least_left[0], reach, leftwards=True)
    right = limit(pair, least_right, jnp.int32(NEVER), reach, leftwards=False)
    at = Limits(pair, least_left, left, right)
    known = joint & (rank < NEVER)
    mergeable = certain(at, known & (level == rank), (rule.new & CASCADES) != 0 if plan.cascades else jnp.zeros_like(head))
    merging = known & mergeable
    # a border that nothing will be merged across ends a piece
    never = jnp.int32(NEVER)
    border = (joint & (at.pair == never) & (at.left == never) & (_after(at.right, NEVER) == never)) | tail
    begins = head | _before(border, False)
    ends = jnp.where(merging, _after(border, True), border)
    alive = (index < count) & ~_before(merging, False)
    done = alive & begins & ends
    id = jnp.where(merging, rule.new & (CASCADES - 1), id)
    tokens = s.tokens.at[jnp.where(done, place >> 1, s.tokens.shape[0])].set(id, mode="drop")
    columns = [id, place | begins.astype(jnp.int32)]
    if plan.cascades:
        columns.append(jnp.where(merging, level, rows[:, 2]))
    stay = ranked(pack(alive & ~done))
    left_over = total(stay)
    slot = jnp.where(alive & ~done, OVERLAP + ranks(stay), OVERLAP + size)
    close = jnp.zeros((OVERLAP + size, len(columns)), jnp.int32)
    close = close.at[slot].set(jnp.stack(columns, axis=1), mode="drop")
    merged, waiting = s.merged | jnp.any(merging), s.waiting | jnp.any(known)
    # Written in place only if all that reads the rows is done: so the place depends on it (and is `kept`).
    used = jnp.minimum(tokens[0] + 1 + merged.astype(jnp.int32) + waiting.astype(jnp.int32), 0)
    kept_rows = write(s.flat.rows, close[OVERLAP:], s.kept + used)
    # the last ones are looked at again with the next window: they move before it
    again = jnp.where(open_right, jnp.minimum(left_over, OVERLAP), 0)
    last = jnp.where(open_right, part(close, left_over, OVERLAP), part(kept_rows, s.read + size - OVERLAP, OVERLAP))
    new_rows = write(kept_rows, last, s.read + size - OVERLAP)
    kept = s.kept + left_over - again
    idle = ~merged & waiting
    over = ~open_right
    return _Pass(
        flat=Flat(new_rows, jnp.where(over, kept, s.flat.count)),
        tokens=tokens,
        read=jnp.where(over, 0, s.read + size - again),
        kept=jnp.where(over, 0, kept),
        merged=merged & ~over,
        waiting=waiting & ~over,
        far=s.far | (over & idle),
        stuck=over & idle & s.far,
        going=~over | (waiting & ~(idle & s.far)),
    )
