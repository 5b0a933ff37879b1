"""A round of BPE over all tokens of a window at once, in a few kernels: what is certain near each token merges.

Tokens stay at their places and are linked to their neighbours; of two that merge the left one stays. What a round finds
out of limits (ops/certain.py) stays true as long as the token is there, so each goes on from those of the one before.
The steps are kept apart by barriers: each is then one kernel, and no look-up is done twice.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt8, UInt32

from toktier_jax.ops.certain import UNSEEN
from toktier_jax.ops.places import take
from toktier_jax.ops.rules import bounds_of, rule_of
from toktier_jax.plan import BPEPlan
from toktier_jax.types import CASCADES, NEVER, MergeTables

REACH = 2
"""Tokens on either side of a pair that a round looks at."""

WORDS = 3
"""Words of 32 places in which a round looks for the begin of a run of ties."""

SENTINELS = 32
"""Places at the end of a window that hold no tokens; the last one stands for what is beside the ends of pieces."""

GONE = 0x7FFF
"""A link to what is not in sight, on the right alone; no token has as many symbols."""

IN_TURN = 0x8000
"""Flag of a link: its pair ties with the one before and merges when its turn comes, as was found from afar."""

MERGED = 8
"""Of a round's marks: a merge. Lower ones above 0 are pairs that wait."""


class Linked(NamedTuple):
    """Tokens at some of M places; at the others `id` is below 0.

    id           int32 [M]
    link         int32 [M]  how many places on the left its neighbour in its piece is, 0 where it has none, perhaps with
                            IN_TURN; in the upper half the same on the right, or GONE
    made         int32 [M]  the level at which it was made
    left, right  int32 [M]  it is not merged to the left, to the right, below these levels, as far as is known
    """

    id: Int32[Array, " M"]
    link: Int32[Array, " M"]
    made: Int32[Array, " M"]
    left: Int32[Array, " M"]
    right: Int32[Array, " M"]


class Seen(NamedTuple):
    """A row of what tokens tell their neighbours: eight columns, so that a look at one moves one sector of memory.

    link, left, right        as in Linked
    pair                     the level of its merge with the next one; NEVER without a rule, UNSEEN where that is unseen
    least_left, least_right  no rule of lower rank merges it with anything on that side
    rank                     of the rule; with CALM where its token has no rules of lower rank, LATE where the rank is
                             below the level and the next token was made at that
    new                      the id that the rule makes
    """

    link: Int32[Array, " M"]
    pair: Int32[Array, " M"]
    least_left: Int32[Array, " M"]
    least_right: Int32[Array, " M"]
    left: Int32[Array, " M"]
    right: Int32[Array, " M"]
    rank: Int32[Array, " M"]
    new: Int32[Array, " M"]


Rows = Int32[Array, "M 8"]
CALM, LATE = 1 << 30, -(1 << 31)
_RANK = CALM - 1


def columns(rows: Rows) -> Seen:
    """The columns of rows."""
    return Seen(*(rows[:, column] for column in range(8)))


def left_of(place: Int32[Array, " M"], link: Int32[Array, " M"]) -> Int32[Array, " M"]:
    """The place of the neighbour on the left."""
    by = link & GONE
    return jnp.where(by == 0, place.shape[0] - 1, place - by)


def right_of(place: Int32[Array, " M"], link: Int32[Array, " M"]) -> Int32[Array, " M"]:
    """The place of the neighbour on the right; what is not in sight looks like none."""
    by = lax.shift_right_logical(link, 16)
    return jnp.where((by == 0) | (by == GONE), place.shape[0] - 1, place + by)


def places(size: int) -> Int32[Array, " M"]:
    return jnp.arange(size, dtype=jnp.int32)


def merge_once(plan: BPEPlan, merges: MergeTables, s: Linked) -> tuple[Linked, Int32[Array, " W"]]:
    """Merges what is certain. Returns a mark for every 32 places, too: 0 where no pair has a rule or is unseen."""
    size = s.id.shape[0]
    rows = look(plan, merges, s)
    found = decide(plan, rows, s.id >= 0)
    merging = (found.code == SURE) | ((found.code == TURN) & ((s.link & IN_TURN != 0) | turns(found)))
    marks = jnp.max((found.code.astype(jnp.int32) + MERGED * merging.astype(jnp.int32)).reshape(-1, 32), axis=1)
    merging, marks = lax.optimization_barrier((merging, marks))
    seen, place = columns(rows), places(size)
    dead, passed = take(merging, left_of(place, seen.link)), take(merging, left_of(place, found.link))
    left_by = jnp.where(passed, found.link, seen.link) & GONE
    right_by = jnp.where(merging, found.link, seen.link) & (GONE << 16)
    return Linked(
        id=jnp.where(dead, -1, jnp.where(merging, seen.new & (CASCADES - 1), s.id)),
        link=left_by | right_by,
        made=jnp.where(merging, seen.pair, s.made) if plan.cascades else s.made,
        left=jnp.where(merging, UNSEEN, found.left),
        right=jnp.where(merging, UNSEEN, found.right),
    ), marks


def look(plan: BPEPlan, merges: MergeTables, s: Linked) -> Rows:
    """What tables say of each token and its neighbours."""
    size = s.id.shape[0]
    place = places(size)
    before, after = left_of(place, s.link), right_of(place, s.link)
    first, last = s.link & GONE == 0, lax.shift_right_logical(s.link, 16)
    unseen = last == GONE
    rank, new = rule_of(merges, s.id, take(s.id, after))
    known = (s.id >= 0) & (last > 0) & ~unseen & (rank < NEVER)
    pair = rank = jnp.where(known, rank, NEVER)
    if plan.cascades:
        made = take(s.made, after)
        pair = jnp.where(known, jnp.maximum(rank, jnp.maximum(s.made, made)), NEVER)
        rank = jnp.where((rank < pair) & (made == pair), rank | LATE, rank)
        rank = jnp.where((new & CASCADES) == 0, rank | CALM, rank)
    symbols = [take(merges.symbols, jnp.maximum(take(s.id, at), 0)) for at in (before, after)]
    least_left, least_right = bounds_of(merges, s.id, *symbols)
    edge = place == size - 1
    seen = Seen(
        link=jnp.where(edge, 0, s.link),
        pair=jnp.where(unseen, UNSEEN, pair),
        least_left=jnp.where(edge | first, NEVER, least_left),
        least_right=jnp.where(edge | (last == 0), NEVER, jnp.where(unseen, UNSEEN, least_right)),
        left=jnp.where(edge, NEVER, s.left),
        right=jnp.where(edge, NEVER, s.right),
        rank=rank,
        new=new,
    )
    return lax.optimization_barrier(jnp.stack(seen, axis=1))


WAITS, TIES, TURN, UNSURE, SURE = 1, 2, 3, 4, 5
"""Codes of pairs: the next token is unseen; it ties with the one before, and merges in its turn if that comes; it does
not tie, and merges."""


class Found(NamedTuple):
    """What looking around told of each token.

    left, right  int32 [M]   its limits
    link         int32 [M]   the left half is that of its left neighbour, the right one that of its right neighbour, as
                             seen from here
    code         uint8 [M]   what its pair with the next token does, 0 without a rule
    tokens       uint32 [W]  bit set of the places with tokens
    firsts       uint32 [W]  of those whose pairs do not tie with the one before
    begins       uint32 [W]  of those of the latter that merge with the next one, if it is not merged away before
    """

    left: Int32[Array, " M"]
    right: Int32[Array, " M"]
    link: Int32[Array, " M"]
    code: UInt8[Array, " M"]
    tokens: UInt32[Array, " W"]
    firsts: UInt32[Array, " W"]
    begins: UInt32[Array, " W"]


def decide(plan: BPEPlan, rows: Rows, tokens: Bool[Array, " M"]) -> Found:
    """`ops.certain.certain`, for tokens that are linked; limits are followed REACH tokens far, and then as known."""
    at, place = {0: columns(rows)}, {0: places(rows.shape[0])}
    for k in range(1, REACH + 1):
        place[-k], place[k] = left_of(place[1 - k], at[1 - k].link), right_of(place[k - 1], at[k - 1].link)
        at[-k], at[k] = columns(take(rows, place[-k])), columns(take(rows, place[k]))
    here, left, right = at[0], {-REACH: at[-REACH].left}, {REACH: at[REACH].right}
    for k in range(1 - REACH, 1):
        limit = jnp.minimum(at[k - 1].pair, jnp.maximum(left[k - 1], at[k].least_left))
        left[k] = jnp.maximum(at[k].left, limit)
    for k in range(REACH - 1, -1, -1):
        limit = jnp.minimum(at[k].pair, jnp.maximum(right[k + 1], at[k].least_right))
        right[k] = jnp.maximum(at[k].right, limit)
    pair, rank = here.pair, {k: at[k].rank & _RANK for k in (-1, 0, 1)}
    proper = {k: (at[k].pair >= 0) & (at[k].pair == rank[k]) for k in (-1, 0)}
    calm = (here.rank & CALM) != 0 if plan.cascades else jnp.ones_like(tokens)
    right_sure = pair <= right[1]
    begin = right_sure & ((pair < left[0]) | ((pair == left[0]) & calm & (here.least_left < pair)))
    tie = proper[0] & proper[-1] & (pair == at[-1].pair)
    turn = right_sure & (pair <= left[0]) & (calm | (pair <= here.least_left))
    sure = begin
    if plan.cascades:
        late, pairs = here.rank < 0, (at[-1].pair, at[1].pair)
        from_left = jnp.maximum(left[-1], here.least_left)
        from_right = jnp.maximum(right[2], at[1].least_right)
        first_left, first_right = ~late & (rank[0] < rank[-1]), ~late | (rank[0] < rank[1])
        left_sure = (pair < from_left) & ((pair < pairs[0]) | ((pair == pairs[0]) & first_left))
        right_sure = (pair <= from_right) & ((pair < pairs[1]) | ((pair == pairs[1]) & first_right))
        sure = jnp.where(proper[0], begin, left_sure & right_sure)
    code = jnp.where(tie, jnp.where(turn, TURN, TIES), jnp.where(sure, SURE, UNSURE))
    code = jnp.where(rank[0] < NEVER, code, jnp.where(tokens & (pair == UNSEEN), WAITS, 0)).astype(jnp.uint8)
    words = [_words(mask) for mask in (tokens, tokens & ~tie, tokens & begin & ~tie)]
    link = _beyond(here.link & GONE, at[-1].link & GONE)
    far = [lax.shift_right_logical(of.link, 16) for of in (here, at[1])]
    link = link | jnp.where(far[0] == GONE, GONE, _beyond(*far)) << 16
    return lax.optimization_barrier(Found(left[0], right[0], link, code, *words))


def _beyond(by: Int32[Array, " M"], further: Int32[Array, " M"]) -> Int32[Array, " M"]:
    return jnp.where((by == 0) | (further == 0), 0, jnp.where(further == GONE, GONE, by + further))


def _words(mask: Bool[Array, " M"]) -> UInt32[Array, " W"]:
    """`members.pack` as a sum of bits, which is fused with others into what makes the masks."""
    bits = mask.reshape(-1, 32).astype(jnp.uint32) << jnp.arange(32, dtype=jnp.uint32)[None, :]
    return jnp.sum(bits, axis=1, dtype=jnp.uint32)


def turns(found: Found) -> Bool[Array, " M"]:
    """Whether each token is the 2nd, 4th, ... after one of `begins`, with no one of `firsts` between them.

    The begin of a longer run than WORDS hold is not seen.
    """
    place = places(found.code.shape[0])
    sets = [jnp.pad(words, (WORDS - 1, 0)) for words in found[-3:]]
    upto = (np.uint32(2) << (place & 31).astype(jnp.uint32)) - np.uint32(1)
    seen = turn = jnp.zeros(place.shape, bool)
    between = jnp.zeros(place.shape, jnp.int32)
    for back in range(WORDS):
        tokens, firsts, begins = (take(words, (place >> 5) + (WORDS - 1 - back)) for words in sets)
        if not back:
            tokens, firsts = tokens & upto, firsts & upto
        last = np.uint32(31) - lax.clz(firsts | np.uint32(1))
        behind = jnp.where(firsts != 0, tokens & ~((np.uint32(2) << last) - np.uint32(1)), tokens)
        between = between + lax.population_count(behind).astype(jnp.int32)
        begin = ((begins >> last) & np.uint32(1)) != 0
        turn = jnp.where(seen | (firsts == 0), turn, begin & (between & 1 == 0))
        seen = seen | (firsts != 0)
    return turn
