"""What a round of merges cannot see: limits and turns in ties, followed over all tokens of a window by doubling.

Each token is a function of what its neighbour tells it, and places without a token are the identity, so that functions
of 1, 2, 4, ... places are made of two each. A step costs one kernel and a copy.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int32

from toktier_jax.ops.certain import UNSEEN
from toktier_jax.ops.members import unpack
from toktier_jax.ops.merge_rounds import IN_TURN, Linked, columns, decide, left_of, look, places
from toktier_jax.ops.places import take
from toktier_jax.plan import BPEPlan
from toktier_jax.types import MergeTables

_LEAST, _MOST = jnp.iinfo(jnp.int32).min, jnp.iinfo(jnp.int32).max


def follow_limits(plan: BPEPlan, merges: MergeTables, s: Linked) -> Linked:
    """The same tokens with the limits that all tokens to the left and to the right set.

    A token's limit is min(pair, max(the neighbour's limit, least)), and never below what is known of it. Such functions
    are min(high, max(limit, low)), and make one of their kind when one is applied after the other.
    """
    size = s.id.shape[0]
    place = places(size)
    seen = columns(look(plan, merges, s))
    before = left_of(place, seen.link)
    high = jnp.stack([take(seen.pair, before), seen.pair[::-1]])
    low = jnp.stack([seen.least_left, seen.least_right[::-1]])
    known = jnp.stack([seen.left, seen.right[::-1]])
    real = jnp.stack([s.id >= 0, s.id[::-1] >= 0])
    high = jnp.where(real, jnp.maximum(high, known), _MOST)
    low = jnp.where(real, jnp.maximum(low, known), _LEAST)

    def double(step: Array, both: Int32[Array, "2 2 M"]) -> Int32[Array, "2 2 M"]:
        high, low = both
        further_high, further_low = _moved(both, jnp.int32(1) << step, UNSEEN)
        return jnp.stack([jnp.minimum(high, jnp.maximum(further_high, low)), jnp.maximum(low, further_low)])

    high, low = lax.fori_loop(0, (size - 1).bit_length(), double, jnp.stack([high, low]))
    limits = jnp.minimum(high, jnp.maximum(low, UNSEEN))
    return s._replace(left=limits[0], right=limits[1, ::-1])


_FLIP, _YES, _NOT_KNOWN = 1, 2, 4
"""Functions of whether the pair before merges: the opposite, always (3: never), not known; 0 is the identity."""


def follow_turns(plan: BPEPlan, merges: MergeTables, s: Linked) -> Linked:
    """The same tokens, those that merge in their turn with IN_TURN, whatever the length of a run of ties."""
    found = decide(plan, look(plan, merges, s), s.id >= 0)
    tokens, firsts, begins = (unpack(words) for words in found[-3:])
    code = jnp.where(firsts, jnp.where(begins, _YES, _NOT_KNOWN), jnp.where(tokens, _FLIP, 0)).astype(jnp.int32)

    def double(step: Array, code: Int32[Array, " M"]) -> Int32[Array, " M"]:
        before = _moved(code, jnp.int32(1) << step, _NOT_KNOWN)
        return jnp.where(code >= _YES, code, jnp.where(before == _NOT_KNOWN, before, before ^ code))

    code = lax.fori_loop(0, (code.shape[0] - 1).bit_length(), double, code)
    turn = tokens & ~firsts & (code == _YES)
    return s._replace(link=s.link | jnp.where(turn, IN_TURN, 0))


def _moved(values: Int32[Array, "*k M"], by: Array, beyond: int) -> Int32[Array, "*k M"]:
    """For each place the value `by` places before it; `beyond` where there is none."""
    size = values.shape[-1]
    source = places(size) - by
    moved = values.at[..., jnp.maximum(source, 0)].get(mode="promise_in_bounds")
    return jnp.where(source >= 0, moved, beyond)
