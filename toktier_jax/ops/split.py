"""One split step: cuts open segments by the plan's pattern and applies its rule. The lowerings are elsewhere."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, UInt8

from toktier_jax.ops.classify import classify_bytes
from toktier_jax.ops.scan import Lowering
from toktier_jax.ops.split_arrays import split_arrays
from toktier_jax.ops.split_rule import apply_rule
from toktier_jax.ops.walk import split_walk
from toktier_jax.plan import SplitPlan
from toktier_jax.types import REMOVED, TEXT, Buffer, SplitTables


def split(
    plan: SplitPlan,
    tables: SplitTables,
    buffer: Buffer,
    symbols: UInt8[Array, " n"],
    *,
    at_end: bool,
    lowering: Lowering,
) -> Buffer:
    """The buffer with its open segments cut into pieces, and removed pieces marked.

    `symbols` are those of `classify`; a plan whose unit is "byte" makes its own. Without `at_end` more text may follow,
    and `decided` becomes the last piece start that it cannot change; work may be resumed at the starts of pieces alone.
    """
    if plan.unit == "byte":
        symbols = classify_bytes(buffer.data, buffer.length, tables.symbols)
    frozen = buffer.kind != np.uint8(TEXT)
    cut = (symbols, buffer.starts, frozen, buffer.length, buffer.decided)
    if lowering == "walk":
        starts, match, known = split_walk(tables.walk, *cut, at_end=at_end)
    else:
        starts, match, known = split_arrays(tables.functions, *cut, at_end=at_end)
    starts, removed = apply_rule(plan, buffer.starts, starts, match & ~frozen)
    kind = buffer.kind if removed is None else jnp.where(removed & ~frozen, np.uint8(REMOVED), buffer.kind)
    if at_end:
        return buffer._replace(starts=starts, kind=kind)
    position = lax.iota(jnp.int32, starts.shape[0])
    resume = starts if buffer.resume is None else starts & buffer.resume
    decided = jnp.max(jnp.where(resume & (position <= known), position, 0))
    return buffer._replace(starts=starts, kind=kind, decided=decided, resume=resume)
