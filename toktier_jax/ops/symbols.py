"""What merging starts from: the symbols of strings that are no token, with what becomes of unknown ones."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt8, UInt32

from toktier_jax.ops.characters import made_at
from toktier_jax.ops.chunks import Stage, for_chunks, part, write
from toktier_jax.ops.lookup import find_short, load
from toktier_jax.ops.members import contains, pack, ranked, ranks, total
from toktier_jax.ops.merge import Flat
from toktier_jax.ops.places import take
from toktier_jax.ops.scan import some
from toktier_jax.plan import BPEPlan
from toktier_jax.types import FIRST_CODE, SHORT, BPETables


class Text(NamedTuple):
    """A buffer's text in the forms that look-ups read.

    data, words  uint8 [N], uint32 [N / 4 + some]  the bytes
    starts       uint32 [W]  bit set of where pieces begin; those that go on before the text do not
    ends         uint32 [W]  and of where they end
    """

    data: UInt8[Array, " N"]
    words: UInt32[Array, " M"]
    starts: UInt32[Array, " W"]
    ends: UInt32[Array, " W"]


def place_of(plan: BPEPlan, text: Text, start: Int32[Array, " C"], end: Int32[Array, " C"]) -> Int32[Array, " C"]:
    """The places of strings as marks have them: 1 begins its piece, 2 ends it; 0 where tokens do not depend on it."""
    if not plan.places:
        return jnp.zeros_like(start)
    return contains(text.starts, start).astype(jnp.int32) + 2 * contains(text.ends, end).astype(jnp.int32)


def flatten(
    plan: BPEPlan,
    tables: BPETables,
    text: Text,
    heads: UInt32[Array, " W"],
    positions: Int32[Array, " M"],
    count: jax.Array,
    *,
    characters: UInt32[Array, " W"] | None,
    chunk: int,
    window: int,
    run: Stage,
) -> tuple[Flat, Bool[Array, ""]]:
    """The symbols at `positions` (each byte, or each character's first) of strings that begin at `heads`, as tokens.

    Also whether there is an unknown symbol that only the host can deal with. `positions` is whole chunks.
    characters: where a whole character begins that is taken for its token.
    """
    capacity = positions.shape[0]
    columns = 3 if plan.cascades else 2
    rows = jnp.zeros((capacity + max(window, chunk), columns), jnp.int32)
    state = (rows, jnp.int32(0), jnp.bool_(False), jnp.bool_(False))

    def body(start: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        rows, kept, before, lost = state
        at = part(positions, start, chunk)
        valid = start + jnp.arange(chunk, dtype=jnp.int32) < count
        id, keep = _symbols(plan, tables, text, at, run)
        unknown = (id < 0) & valid
        head = contains(heads, at)
        if plan.unknown in ("token", "fuse"):
            id = jnp.where(unknown, tables.unknown[256], id)
        if plan.unknown == "fuse":
            keep = ~(unknown & ~head & jnp.concatenate([before[None], unknown[:-1]]))
            before = unknown[-1]
        level = jnp.full(chunk, -1, jnp.int32)
        if characters is not None:
            made = run(made_at, tables.characters, load(text.words, at, jnp.full_like(at, 4), 1)[:, 0])
            whole = contains(characters, at)
            id, level = jnp.where(whole, made[:, 0], id), jnp.where(whole, made[:, 1], level)
        values = [id, at << 1 | head.astype(jnp.int32)]
        if plan.cascades:
            values.append(level)
        new = jnp.stack(values, axis=1)
        if plan.unknown in ("fuse", "bytes"):
            stay = ranked(pack(keep & valid))
            rows = rows.at[jnp.where(keep & valid, kept + ranks(stay), rows.shape[0])].set(new, mode="drop")
            kept = kept + total(stay)
        else:
            rows = write(rows, new, start)
            kept = jnp.minimum(start + chunk, count)
        return rows, kept, before, lost | (some(unknown) if plan.unknown == "host" else lost)

    rows, kept, _, lost = for_chunks(count, capacity, chunk, body, state)
    return Flat(rows, kept), lost


def _symbols(
    plan: BPEPlan, tables: BPETables, text: Text, at: Int32[Array, " C"], run: Stage
) -> tuple[Int32[Array, " C"], Bool[Array, " C"]]:
    """The ids of the symbols at these bytes, -1 where unknown, and whether the byte is one."""
    byte = take(text.data, at).astype(jnp.int32)
    everywhere = jnp.ones(at.shape, bool)
    if plan.unit == "byte":
        place = place_of(plan, text, at, at + 1)
        return take(jnp.reshape(jnp.asarray(tables.base), -1), place << 8 | byte), everywhere
    lead = at
    if plan.unknown == "bytes":  # every byte is here: back to the character's first
        inside = (byte & 0xC0) == 0x80
        for _ in range(3):
            lead = jnp.where(inside, jnp.maximum(lead - 1, 0), lead)
            inside = inside & ((take(text.data, lead) & np.uint8(0xC0)) == np.uint8(0x80))
    first = take(text.data, lead).astype(jnp.int32)
    width = 1 + ((first >= 0xC0) & (first < FIRST_CODE)).astype(jnp.int32)
    width = width + ((first >= 0xE0) & (first < FIRST_CODE)).astype(jnp.int32)
    width = width + ((first >= 0xF0) & (first < FIRST_CODE)).astype(jnp.int32)
    place = place_of(plan, text, lead, lead + width)
    mark = (width << 2 | place).astype(jnp.uint32)
    found = find_short(tables.lexicon, load(text.words, lead, width, SHORT // 4), mark, run)
    id = jnp.where(found.hit, found.id, -1)
    if plan.unknown != "bytes":
        return id, everywhere
    bytes_ = take(jnp.asarray(tables.unknown), byte)
    return jnp.where(found.hit, id, bytes_), ~found.hit | (lead == at)
