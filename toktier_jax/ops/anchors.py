"""All steps of a program before its model, with the places at which work may be resumed: for windows of any program.

As `ops.encode.cut`, which gives only the last of these places.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt8

from toktier_jax.ops.added import match_added
from toktier_jax.ops.classify import classify
from toktier_jax.ops.cuts import cut_mask
from toktier_jax.ops.encode import open_buffer
from toktier_jax.ops.quickcheck import quick_check
from toktier_jax.ops.rewrite import rewrite
from toktier_jax.ops.scan import Lowering
from toktier_jax.ops.settle import cuts_of
from toktier_jax.ops.split import split
from toktier_jax.plan import AddedPlan, QuickCheckPlan, RewritePlan, SplitPlan
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
    failed = jnp.bool_(False)
    first: jax.Array | None = None
    moved = False
    symbols: Any = _symbols(program, buffer, lowering)
    for plan, part in zip(program.plan.steps, program.tables.steps, strict=True):
        match plan:
            case AddedPlan():
                buffer = match_added(plan, part, buffer, symbols, at_end=False, lowering=lowering)
            case QuickCheckPlan():
                buffer, suspect = quick_check(part, buffer, symbols, at_end=False)
                failed = failed | (suspect & ~checked)
            case RewritePlan():
                moved = moved or first is not None
                buffer = rewrite(plan, part, buffer, symbols, at_start=at_start, at_end=False, lowering=lowering)
                overflows = buffer.length > buffer.data.shape[0]
                failed = failed | overflows
                buffer = buffer._replace(length=jnp.where(overflows, 0, buffer.length))
                symbols = _symbols(program, buffer, lowering)
            case SplitPlan():
                buffer = split(plan, part, buffer, symbols, at_end=False, lowering=lowering)
                first = buffer.starts if first is None else first
    if moved:  # what was a start of the first split is elsewhere now
        first = jnp.zeros_like(buffer.starts)
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


def _symbols(program: EncodeProgram, buffer: Buffer, lowering: Lowering) -> Any:
    """None in a program that asks for no character's class."""
    pages, table, codes = program.tables[:3]
    if pages is None or table is None or codes is None:
        return None
    return classify(buffer.data, buffer.length, pages, table, codes, lowering=lowering)
