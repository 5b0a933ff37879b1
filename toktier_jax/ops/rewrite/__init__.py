"""Normalizers and prefixes that work character by character, on the TEXT segments of a buffer, with their origin.

Where a new byte came from (`Buffer.origin`) is what the reference's alignments say: bytes of a replaced character come
from all of it, what replaces a longer match from the match's last character, and an inserted prefix from nothing: the
empty range before the character that follows (the reference gives it that character).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, UInt8

from toktier_jax.ops.rewrite.characters import map_characters
from toktier_jax.ops.rewrite.edges import prefix, strip
from toktier_jax.ops.rewrite.matches import isolate, replace_literal, replace_matches, replace_runs
from toktier_jax.ops.scan import Lowering
from toktier_jax.plan import IsolatePlan, LiteralPlan, MapPlan, MatchPlan, PrefixPlan, RewritePlan, RunPlan, StripPlan
from toktier_jax.types import TEXT, Buffer, RewriteTables


def rewrite(
    plan: RewritePlan,
    tables: RewriteTables,
    buffer: Buffer,
    symbols: UInt8[Array, " N"],
    *,
    at_start: Bool[Array, ""] | bool = True,
    at_end: bool = True,
    lowering: Lowering,
) -> Buffer:
    """One rewrite of every open segment, in a buffer that is `plan.extra(N)` bytes longer.

    If the text does not fit, `length` comes out larger than the buffer. Unless `at_start`, the first segment began
    before this text and gets nothing that only the start of a segment gets. With `at_end=False` more text may follow.
    `symbols` mean nothing afterwards.
    """
    tables = jax.tree.map(jnp.asarray, tables)
    index = jnp.arange(buffer.data.shape[0], dtype=jnp.int32)
    open_ = (buffer.kind == np.uint8(TEXT)) & (index < buffer.length)
    started = (index > 0) | at_start
    match plan:
        case MapPlan():
            return map_characters(plan, tables, buffer, symbols, open_, lowering)
        case PrefixPlan():
            return prefix(plan, tables, buffer, open_, started, at_end, lowering)
        case StripPlan():
            return strip(plan, tables, buffer, symbols, open_, started, at_end, lowering)
        case LiteralPlan():
            return replace_literal(plan, tables, buffer, symbols, at_end, lowering)
        case RunPlan():
            return replace_runs(plan, tables, buffer, symbols, open_, at_end, lowering)
        case MatchPlan():
            return replace_matches(plan, tables, buffer, symbols, open_, at_end, lowering)
        case IsolatePlan():
            return isolate(tables, buffer, symbols, open_)
    raise TypeError(type(plan).__name__)
