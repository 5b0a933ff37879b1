"""All steps of a program before its model, with the places at which work may be resumed: for windows of any program.

As `ops.encode.cut`, which gives only the last of these places.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt8

from toktier_jax.ops.cuts import cut_mask
from toktier_jax.ops.encode import apply_steps, open_buffer
from toktier_jax.ops.scan import Lowering
from toktier_jax.ops.settle import cuts_of
from toktier_jax.types import TEXT, Buffer, EncodeProgram


class Anchored(NamedTuple):
    """A window before the model.

    buffer   its pieces
    anchors  bool [M]  bytes of the buffer at which work may be resumed
    limit    int32 []  up to here these stay whatever text follows
    failed   bool []   the host has to normalize first
    """

    buffer: Buffer
    anchors: Bool[Array, " M"]
    limit: Int32[Array, ""]
    failed: Bool[Array, ""]


def cut_with_anchors(
    program: EncodeProgram,
    data: UInt8[Array, " N"],
    length: Int32[Array, ""],
    at_start: Bool[Array, ""],
    checked: Bool[Array, ""],
    *,
    lowering: Lowering,
) -> Anchored:
    """Cuts `data[:length]`, which begins the text or where work may be resumed, as if the text ended with it.

    Anchors are starts of the first split's pieces (later splits may cut differently if they are resumed elsewhere);
    without a split, of segments, and cuts that no token lies across.
    """
    buffer = open_buffer(program, data, length, None)
    buffer, failed, first = apply_steps(
        program, buffer, at_start=at_start, checked=checked, at_end=False, lowering=lowering
    )
    good = buffer.starts if first is None else first
    cuts = cuts_of(program.plan.steps, program.plan.model, program.tables.model)
    if cuts is not None:
        across = cut_mask(cuts, jnp.pad(buffer.data, 3), dense=True, lowering=lowering)
        good = good | (across & (buffer.kind == np.uint8(TEXT)))
    if buffer.resume is not None:
        good = good & buffer.resume
    if buffer.origin is not None:  # of what one character was rewritten to, nothing is parted
        good = good & (buffer.origin[0] >= lax.pad(buffer.origin[1], jnp.int32(0), ((1, -1, 0),)))
    good = good & (lax.iota(jnp.int32, good.shape[0]) < buffer.length)
    return Anchored(buffer, good, buffer.decided, failed)
