"""A bimachine's two walks over a small text in one lane: plain loops, for windows not worth the lanes of ops/walk.py.

About 20 ns a byte for both walks on a CPU, dispatch included. XLA keeps such a loop's arrays in place only if no loop
reads what it writes, and reads fastest what is an argument: so the codes are made by the caller, and each walk fills an
array of its own.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int32, UInt8, UInt16

_GAP = 1  # state of program/automaton.py; any will do before a segment's first byte

Codes = UInt8[Array, " N"] | UInt16[Array, " N"]


def walk_one_lane(right: jax.Array, left: jax.Array, codes: Codes, past: Int32[Array, ""], length: Int32[Array, ""]):
    """Left states of the bytes in `codes[:length]`: uint8 or uint16 [N], as `right` is.

    right, left  tables of a WalkTables
    codes        the column of `right` at each byte; in its upper half where a segment starts, as at the first byte
    past         the right state of what is past the text
    """
    columns, rows = right.shape[1], left.shape[1]
    rightwards, leftwards = left.reshape(-1), right.reshape(-1)

    def leftward(count: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        state, states = carry
        at = length - 1 - count
        state = leftwards[state * columns + codes[at].astype(jnp.int32)].astype(jnp.int32)
        return state, states.at[at].set(state.astype(right.dtype))

    blank = jnp.zeros(codes.shape, right.dtype)
    _, seen = lax.fori_loop(0, length, leftward, (past, blank))

    def rightward(at: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        state, states = carry
        state = rightwards[state * rows + seen[at].astype(jnp.int32)].astype(jnp.int32)
        return state, states.at[at].set(state.astype(right.dtype))

    return lax.fori_loop(0, length, rightward, (jnp.int32(_GAP), blank))[1]
