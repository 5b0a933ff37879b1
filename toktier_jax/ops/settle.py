"""Where a text may be cut in two and each part be encoded alone, when more text follows. Finds the last such place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32

from toktier_jax.ops.chunks import part
from toktier_jax.ops.cuts import cut_mask
from toktier_jax.ops.scan import Lowering
from toktier_jax.plan import BPEPlan, ModelPlan, SplitPlan, Step
from toktier_jax.types import TEXT, BPETables, Buffer, CutTables, ModelTables

_WINDOW = 4096  # bytes looked at at a time, from the end


def cuts_of(steps: tuple[Step, ...], plan: ModelPlan | None, tables: ModelTables | None) -> CutTables | None:
    """The cuts that may end a part, where there are no pieces that could: in text that no split has seen."""
    if any(isinstance(step, SplitPlan) for step in steps) or not isinstance(plan, BPEPlan):
        return None
    if plan.wholes or plan.places:  # what a token is depends on where its piece begins and ends
        return None
    assert isinstance(tables, BPETables)
    return tables.cuts


def settle(buffer: Buffer, cuts: CutTables | None, *, lowering: Lowering) -> Int32[Array, ""]:
    """The last place, up to `buffer.decided`, at which a segment starts or a cut is, and work may be resumed: int32 [].

    It is also the start of a character of the original: of what one character was rewritten to, nothing is parted. 0
    where there is no such place.
    """
    size = buffer.data.shape[0]
    window = min(size, _WINDOW)
    data = jnp.pad(buffer.data, 3)

    def look(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        upper, _ = state
        low = jnp.maximum(upper - window, 0)
        position = low + jnp.arange(window, dtype=jnp.int32)
        good = part(buffer.starts, low, window)
        if cuts is not None:
            cut = cut_mask(cuts, part(data, low, window + 6), dense=True, lowering=lowering)
            good = good | (cut & (part(buffer.kind, low, window) == np.uint8(TEXT)))
        if buffer.resume is not None:
            good = good & part(buffer.resume, low, window)
        if buffer.origin is not None:
            begins, ends = buffer.origin[0], lax.pad(buffer.origin[1], jnp.int32(0), ((1, -1, 0),))
            good = good & (part(begins, low, window) >= part(ends, low, window))
        good = good & (position < upper) & (position > 0)
        return low, jnp.max(jnp.where(good, position, 0))

    start = (jnp.minimum(buffer.decided + 1, buffer.length), jnp.int32(0))
    return lax.while_loop(lambda state: (state[0] > 1) & (state[1] == 0), look, start)[1]
