"""Which neighbours among tokens merge for certain, whatever happens elsewhere: what makes BPE parallel.

Definition: of all neighbours that a rule joins, the pair of lowest rank merges first, the leftmost of those, and again.
Call *level* of a merge the highest rank that was reached before or with it. Two neighbours merge at the level max(rank
of their rule, levels at which they were made) if neither was merged away before. So a pair is *certain* where its level
is below any at which its left token could be merged to the left, and below any at which its right token could be merged
to the right. Such limits come from the text nearby: a token is merged with its neighbour as it is now, at that pair's
level; or with what its neighbour has become, not before that becomes something, and at no rank below the least one of
any rule that joins the token with a longer token than the neighbour that ends (or begins) with the symbol beside it.
Symbols never change, so this holds whatever the neighbour becomes.

Berglund and van der Merwe (arXiv 2309.08715) define BPE formally; that neighbours decide everything is the observation
behind the `bpe` crate and Hayase et al. (arXiv 2506.14123).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32

from toktier_jax.ops.runs import alternate
from toktier_jax.types import NEVER

UNSEEN = -1
"""A level below all: nothing is known of what is not in sight."""


class Limits(NamedTuple):
    """Levels, int32 [W] each, in a window of tokens.

    pair         of the merge of each token with the next; NEVER where there is none, UNSEEN where the next is unseen
    least_left   no rule of lower rank merges the token with anything on its left
    least_right  and on its right
    left, right  the token is not merged to the left, to the right, below these levels
    """

    pair: Int32[Array, " W"]
    least_left: Int32[Array, " W"]
    least_right: Int32[Array, " W"]
    left: Int32[Array, " W"]
    right: Int32[Array, " W"]


class Earlier(NamedTuple):
    """What is known of a window's left edge from the window before it.

    left   int32 []   the limit to the left of the first token: NEVER where a piece begins
    pair   int32 []   the level of the pair of the token before it with the first one
    ties   bool [2]   whether the two pairs before the first token's tie with the ones before them and merge after these
    turn   bool [2]   whether they merge, if nothing merges their right token away first
    """

    left: Int32[Array, ""]
    pair: Int32[Array, ""]
    ties: Bool[Array, 2]
    turn: Bool[Array, 2]


class Cascade(NamedTuple):
    """What is to be known of merges where tokens can be merged on at a lower rank than they were made at.

    rank      int32 [W]  of the rule that joins each token and the next
    late      bool [W]   it is below the pair's level, and the right token was made at that level
    cascades  bool [W]   the rule's token has rules of lower rank
    """

    rank: Int32[Array, " W"]
    late: Bool[Array, " W"]
    cascades: Bool[Array, " W"]


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


def certain(
    at: Limits, cascade: Cascade | None, earlier: Earlier
) -> tuple[Bool[Array, " W"], Bool[Array, " W"], Bool[Array, " W"]]:
    """Which tokens merge with the next one now; where there is no such pair the answer means nothing.

    Merges of one level come from left to right, so what ties on the right comes later. What ties on the left comes
    earlier, but does not matter where it is not next to the pair (that is, no rule of the pair's own rank joins
    something with its left token) and what it makes merges on with nothing at once. Of a run of ties (`aaaa`) every
    second pair merges. Returns also, for each token, what `Earlier` says of a pair: ties, turn.
    """
    right = after(at.right, NEVER)
    proper = at.pair >= 0 if cascade is None else cascade.rank == at.pair
    calm = jnp.ones_like(proper) if cascade is None else ~cascade.cascades
    left_sure = (at.pair < at.left) | ((at.pair == at.left) & calm & (at.least_left < at.pair))
    right_sure = at.pair <= right
    tie = proper & before(proper, earlier.pair >= 0) & (at.pair == before(at.pair, earlier.pair))
    begin = left_sure & right_sure
    turn = alternate(tie, begin, (earlier.ties, earlier.turn))
    here = turn & (at.left >= at.pair) & (calm | (at.least_left >= at.pair))
    sure = right_sure & jnp.where(tie, here, left_sure)
    turn = jnp.where(tie, turn, begin)
    if cascade is not None:
        sure = jnp.where(proper, sure, _at_once(at, cascade))
    return sure, tie & ~turn, turn


def _at_once(at: Limits, of: Cascade) -> Bool[Array, " W"]:
    """`certain` for pairs whose rule has a lower rank than their level: they merge as soon as both tokens are there.

    That is when one of them was made, the right one if both were at this level. All else of this level to the right of
    that token comes later, all to the left came earlier. With a pair on that token's other side the rank decides.
    """
    edge = at.least_left[:1]
    from_left = jnp.maximum(before(at.left, edge), at.least_left)  # by what the left neighbour becomes
    from_right = after(jnp.maximum(after(at.right, NEVER), at.least_right), NEVER)
    pair_left, pair_right = before(at.pair, edge), after(at.pair, NEVER)
    first_left = ~of.late & (of.rank < before(of.rank, UNSEEN))
    first_right = ~of.late | (of.rank < after(of.rank, UNSEEN))
    left_sure = (at.pair < from_left) & ((at.pair < pair_left) | ((at.pair == pair_left) & first_left))
    right_sure = (at.pair <= from_right) & ((at.pair < pair_right) | ((at.pair == pair_right) & first_right))
    return left_sure & right_sure


def before(values: jax.Array, edge: jax.Array | int | bool) -> jax.Array:
    """The value one place to the left; `edge` at the first place."""
    first = jnp.broadcast_to(jnp.asarray(edge, values.dtype), (1,))
    return jnp.concatenate([first, values[:-1]])


def after(values: jax.Array, edge: int | bool) -> jax.Array:
    """The value one place to the right; `edge` at the last place."""
    return jnp.concatenate([values[1:], jnp.full(1, edge, values.dtype)])
