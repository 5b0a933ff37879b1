"""Characters that are mapped to other characters, none or several."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32, UInt8

from toktier_jax.ops.move import move, origins, shift
from toktier_jax.ops.places import after, before, nearest
from toktier_jax.ops.rewrite.parts import begins_member, pool_of, with_data
from toktier_jax.ops.scan import Lowering, some
from toktier_jax.plan import MapPlan
from toktier_jax.types import CONT, FIRST_CODE, Buffer, RewriteTables


def map_characters(
    plan: MapPlan, tables: RewriteTables, buffer: Buffer, symbols: jax.Array, open_: jax.Array, lowering: Lowering
) -> Buffer:
    size = buffer.data.shape[0] + plan.extra(buffer.data.shape[0])
    raw = buffer.data
    if plan.narrow and tables.narrow is not None:
        buffer = buffer._replace(data=jnp.where(open_, nearest(tables.narrow, raw), raw))
    if not plan.wide:
        return buffer
    changed = begins_member(tables, symbols) & open_

    def wide() -> Buffer:
        packed = _packed(tables, raw)
        dropped, tail = jnp.zeros_like(changed), changed
        for _ in range(3):
            tail = before(tail) & (symbols == np.uint8(CONT))
            dropped = dropped | tail
        widths = jnp.where(changed, packed & 255, jnp.where(dropped, 0, 1))
        moved = move(buffer, widths, size, lowering=lowering)
        new = changed[moved.source]
        place = (packed[moved.source] >> 8) + moved.offset
        last = moved.source + _length(raw)[moved.source] - 1
        return with_data(moved, new, nearest(pool_of(tables), place), origins(buffer)[1, last])

    return lax.cond(some(changed), wide, lambda: shift(buffer, 0, size))


def _packed(tables: RewriteTables, data: UInt8[Array, " N"]) -> Int32[Array, " N"]:
    """Where the new bytes of the character that begins at each byte are, as in `RewriteTables.pages`."""
    assert tables.index is not None, "tables of a wide map"
    assert tables.pages is not None, "tables of a wide map"
    first, one, two, three = (after(data, k).astype(jnp.int32) for k in range(4))
    one, two, three = one & 0x3F, two & 0x3F, three & 0x3F
    code = jnp.where(first < 0xE0, (first & 0x1F) << 6 | one, (first & 0x0F) << 12 | one << 6 | two)
    code = jnp.where(first < 0xF0, code, (first & 0x07) << 18 | one << 12 | two << 6 | three)
    code = jnp.where(first < 0x80, first, code)
    code = jnp.where(first >= FIRST_CODE, 0x110000 + first - FIRST_CODE, code)
    page = nearest(tables.index, code >> 8).astype(jnp.int32)
    return nearest(tables.pages.reshape(-1), page << 8 | (code & 255))


def _length(data: UInt8[Array, " N"]) -> Int32[Array, " N"]:
    """Bytes of the character that begins at each byte."""
    lead = (data >= np.uint8(0xC0)) & (data < np.uint8(FIRST_CODE))
    more = lead.astype(jnp.int32) + (lead & (data >= np.uint8(0xE0))).astype(jnp.int32)
    return 1 + more + (lead & (data >= np.uint8(0xF0))).astype(jnp.int32)
