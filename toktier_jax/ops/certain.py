"""Which neighbours among tokens merge for certain, whatever happens elsewhere: what makes BPE parallel.

Definition: of all neighbours that a rule joins, the pair of lowest rank merges first, the leftmost of those, and again.
Call *level* of a merge the highest rank that was reached before or with it. Two neighbours merge at the level max(rank
of their rule, levels at which they were made) if neither was merged away before. So a pair is *certain* where its level
is below any at which its left token could be merged to the left, and below any at which its right token could be merged
to the right. Such limits come from the text nearby: a token is merged with its neighbour as it is now, at that pair's
level; or with what its neighbour has become, not before that becomes something, and at no rank below the least one of
any rule that joins the token with some token which ends (or begins) with the symbol beside it. Symbols never change, so
this holds whatever the neighbour becomes.

Berglund and van der Merwe (arXiv 2309.08715) define BPE formally; that neighbours decide everything is the observation
behind the `bpe` crate and Hayase et al. (arXiv 2506.14123).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32

from ..types import NEVER
from .runs import alternate


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
    right = after(at.right, NEVER)
    right_sure = (at.pair < right) | ((at.pair == right) & proper)
    left_sure = (at.pair < at.left) | ((at.pair == at.left) & proper & ~cascades)
    tie = proper & before(proper, False) & (at.pair == before(at.pair, NEVER))
    turn = alternate(tie, left_sure & right_sure)
    turn = turn & (at.left >= at.pair) & (~cascades | (at.least_left >= at.pair))
    return right_sure & jnp.where(tie, turn, left_sure)


def before(values: jax.Array, edge: jax.Array | int | bool) -> jax.Array:
    """The value one place to the left; `edge` at the first place."""
    first = jnp.broadcast_to(jnp.asarray(edge, values.dtype), (1,))
    return jnp.concatenate([first, values[:-1]])


def after(values: jax.Array, edge: int | bool) -> jax.Array:
    """The value one place to the right; `edge` at the last place."""
    return jnp.concatenate([values[1:], jnp.full(1, edge, values.dtype)])
