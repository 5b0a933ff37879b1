"""The whole encode of one buffer as one pure function: the steps of a program in order, then the model, then emit."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt8

from toktier_jax.errors import InputError
from toktier_jax.ops.added import match_added
from toktier_jax.ops.classify import classify
from toktier_jax.ops.emit import Tokens
from toktier_jax.ops.places import nearest
from toktier_jax.ops.quickcheck import quick_check
from toktier_jax.ops.rewrite import rewrite
from toktier_jax.ops.scan import Lowering, running_max
from toktier_jax.ops.settle import cuts_of, settle
from toktier_jax.ops.split import split
from toktier_jax.ops.tokenize import tokenize
from toktier_jax.ops.utf8 import valid_utf8
from toktier_jax.ops.wordpiece import tokenize_words
from toktier_jax.plan import AddedPlan, ModelPlan, QuickCheckPlan, RewritePlan, SplitPlan, WordPiecePlan
from toktier_jax.types import TEXT, BPETables, Buffer, EncodeProgram, ModelTables, WordPieceTables

OK, OVERFLOW, HOST_NEEDED, INVALID = 0, 1, 2, 3
"""`Encoded.status`."""


class Encoded(NamedTuple):
    """Tokens of one buffer; positions are bytes of the caller's data.

    ids             int32 [capacity], -1 past `count`
    byte_starts     int32 [capacity], first byte of each token
    byte_ends       int32 [capacity], the byte after its last; never decreasing
    count           int32 []   number of tokens
    segment_counts  int32 [S]  number of tokens of each document; [1] where no segment starts were given
    status          int32 []   0 ok, 1 more tokens than `capacity`, 2 host needed (the text failed the normalizer's
                               quick check), 3 invalid UTF-8; unless 0, `count` is 0 and `ids` are -1
    decided         int32 []   with at_end=False: tokens that end at or before this byte stay, whatever text follows
    """

    ids: Int32[Array, " capacity"]
    byte_starts: Int32[Array, " capacity"]
    byte_ends: Int32[Array, " capacity"]
    count: Int32[Array, ""]
    segment_counts: Int32[Array, " documents"]
    status: Int32[Array, ""]
    decided: Int32[Array, ""]


def default_lowering() -> Lowering:
    """ "walk" on a CPU, "arrays" elsewhere."""
    return "walk" if jax.default_backend() == "cpu" else "arrays"


def open_buffer(
    program: EncodeProgram,
    data: UInt8[Array, " N"],
    length: Int32[Array, ""],
    segment_starts: Int32[Array, " S"] | None,
) -> Buffer:
    """`data` as it is before the first step: one open segment a document."""
    size = data.shape[0]
    texts = lax.iota(jnp.int32, size) == 0
    if segment_starts is not None:
        texts = texts.at[segment_starts].set(True, mode="drop")
    has_added = any(isinstance(step, AddedPlan) for step in program.plan.steps)
    return Buffer(
        data=data,
        length=length,
        starts=texts,
        texts=texts,
        kind=jnp.full((size,), TEXT, jnp.uint8),
        token=jnp.full((size,), -1, jnp.int32) if has_added else None,
        origin=None,
        decided=length,
    )


def cut(
    program: EncodeProgram,
    buffer: Buffer,
    *,
    at_start: Bool[Array, ""] | bool = True,
    checked: Bool[Array, ""] | bool = False,
    at_end: bool,
    lowering: Lowering,
) -> tuple[Buffer, Bool[Array, ""]]:
    """All steps before the model: pieces, and whether the host is needed (the quick check failed, the text grew).

    Unless `at_start`, the first segment began before this text. Where `checked`, the quick check is not asked.
    """
    buffer, failed, _ = apply_steps(
        program, buffer, at_start=at_start, checked=checked, at_end=at_end, lowering=lowering
    )
    if not at_end:
        cuts = cuts_of(program.plan.steps, program.plan.model, program.tables.model)
        buffer = buffer._replace(decided=settle(buffer, cuts, lowering=lowering))
    return buffer, failed


def apply_steps(
    program: EncodeProgram,
    buffer: Buffer,
    *,
    at_start: Bool[Array, ""] | bool,
    checked: Bool[Array, ""] | bool,
    at_end: bool,
    lowering: Lowering,
) -> tuple[Buffer, Bool[Array, ""], Bool[Array, " M"] | None]:
    """`cut`, whose `decided` is that of the last step; and the starts of the first split's pieces.

    These are all false where a later step has moved bytes, and None where there is no split.
    """
    failed = jnp.bool_(False)
    first: jax.Array | None = None
    moved = False
    symbols = _symbols(program, buffer, lowering)
    for plan, part in zip(program.plan.steps, program.tables.steps, strict=True):
        match plan:
            case AddedPlan():
                buffer = match_added(plan, part, buffer, symbols, at_end=at_end, lowering=lowering)
            case QuickCheckPlan():
                buffer, suspect = quick_check(part, buffer, symbols, at_end=at_end)
                failed = failed | (suspect & ~jnp.asarray(checked))
            case RewritePlan():
                moved = moved or first is not None
                buffer = rewrite(plan, part, buffer, symbols, at_start=at_start, at_end=at_end, lowering=lowering)
                overflows = buffer.length > buffer.data.shape[0]
                failed = failed | overflows
                buffer = buffer._replace(length=jnp.where(overflows, 0, buffer.length))
                symbols = _symbols(program, buffer, lowering)
            case SplitPlan():
                buffer = split(plan, part, buffer, symbols, at_end=at_end, lowering=lowering)
                first = buffer.starts if first is None else first
    return buffer, failed, jnp.zeros_like(buffer.starts) if moved else first


def _symbols(program: EncodeProgram, buffer: Buffer, lowering: Lowering) -> Any:
    """What `classify` makes of a buffer; None in a program that asks for no character's class."""
    pages, table, codes = program.tables[:3]
    if pages is None or table is None or codes is None:
        return None
    return classify(buffer.data, buffer.length, pages, table, codes, lowering=lowering)


class Pieces(NamedTuple):
    """What is known of a buffer before the model.

    buffer   its pieces; positions are bytes of the text as the steps have rewritten it
    decided  int32 []  `Encoded.decided`
    status   int32 []  `Encoded.status`, as far as it is known
    """

    buffer: Buffer
    decided: Int32[Array, ""]
    status: Int32[Array, ""]


def encode_bytes(
    program: EncodeProgram,
    data: UInt8[Array, " N"],
    length: Int32[Array, ""],
    *,
    segment_starts: Int32[Array, " S"] | None = None,
    at_end: bool = True,
    capacity: int | None = None,
    lowering: Lowering | None = None,
) -> Encoded:
    """Tokens of the UTF-8 text `data[:length]`, without the ids of a template. Pure; traced once a shape and plan.

    Works under `jit`, `vmap` and `shard_map` (with `check_vma=False`: its loops begin with constants) and exports.
    `segment_starts`, padded with N, are the first bytes of packed documents, in order: what holds at the start of a
    text holds at each, and no token crosses one. With `at_end=False` more text may follow: see `Encoded.decided`.
    `capacity` is by default the largest possible count. `lowering` is by default that of the platform.
    Where `length` is not in 0 to N, `status` is 1. Raises InputError, while tracing, where an argument's type, shape or
    dtype is wrong.
    """
    _check(program, data, length, segment_starts, capacity)
    data = jnp.asarray(data)
    segment_starts = None if segment_starts is None else jnp.asarray(segment_starts)
    lowering = lowering or default_lowering()
    pieces = cut_pieces(program, data, length, segment_starts=segment_starts, at_end=at_end, lowering=lowering)
    model, tables = program.plan.model, program.tables.model
    if model is None:
        raise InputError("this program only cuts pieces: it has no model")
    return encode_pieces(model, tables, pieces, segment_starts=segment_starts, capacity=capacity, lowering=lowering)


def cut_pieces(
    program: EncodeProgram,
    data: UInt8[Array, " N"],
    length: Int32[Array, ""],
    *,
    at_start: Bool[Array, ""] | bool = True,
    checked: Bool[Array, ""] | bool = False,
    segment_starts: Int32[Array, " S"] | None = None,
    at_end: bool,
    lowering: Lowering,
) -> Pieces:
    """The first part of `encode_bytes`: all steps before the model, which may be absent.

    Unless `at_start`, the text begins where `decided` said of the text before that work may be resumed. Where
    `checked`, the text is known to be in the normal form, and the quick check is not asked.
    """
    length = jnp.asarray(length, jnp.int32)
    fits = (length >= 0) & (length <= data.shape[0])
    length = jnp.where(fits, length, 0)
    valid = valid_utf8(data, length)
    buffer = open_buffer(program, data, length, segment_starts)
    buffer, failed = cut(program, buffer, at_start=at_start, checked=checked, at_end=at_end, lowering=lowering)
    decided = buffer.decided
    if buffer.origin is not None:
        decided = jnp.where(decided < buffer.length, nearest(buffer.origin[0], decided), length)
        decided = jnp.where(buffer.decided > 0, decided, 0)
    status = jnp.where(failed, HOST_NEEDED, OK)
    status = jnp.where(valid, status, INVALID)
    status = jnp.where(fits, status, OVERFLOW).astype(jnp.int32)
    return Pieces(buffer, jnp.where(status == OK, decided, 0), status)


def encode_pieces(
    plan: ModelPlan,
    tables: ModelTables,
    pieces: Pieces,
    *,
    segment_starts: Int32[Array, " S"] | None = None,
    capacity: int | None = None,
    lowering: Lowering,
) -> Encoded:
    """The second part: the model, and spans of the caller's data."""
    buffer = pieces.buffer
    size = buffer.data.shape[0]
    capacity = size if capacity is None else capacity
    tokens = _tokens(plan, tables, buffer, capacity, lowering)
    starts, ends = tokens.starts, tokens.ends
    if buffer.origin is not None:
        ends = nearest(buffer.origin[1], ends - 1)
        starts = nearest(buffer.origin[0], starts)
        # a prefix before what one character was rewritten to is empty, and can come after other letters of it
        ends = running_max(ends, lowering=lowering)
    status = jnp.where(tokens.count > capacity, OVERFLOW, OK)
    status = jnp.where(tokens.unresolved, HOST_NEEDED, status)
    status = jnp.where(pieces.status == OK, status, pieces.status).astype(jnp.int32)
    fine = status == OK
    count = jnp.where(fine, tokens.count, 0)
    if segment_starts is None:
        counts = count[None]
    else:
        used = lax.iota(jnp.int32, capacity) < count
        firsts = jnp.searchsorted(jnp.where(used, starts, size), segment_starts, side="left").astype(jnp.int32)
        counts = jnp.diff(jnp.minimum(firsts, count), append=count)
    return Encoded(
        ids=jnp.where(fine, tokens.ids, -1),
        byte_starts=starts,
        byte_ends=ends,
        count=count,
        segment_counts=counts,
        status=status,
        decided=jnp.where(fine, pieces.decided, 0),
    )


def _tokens(plan: ModelPlan, tables: ModelTables, buffer: Buffer, capacity: int, lowering: Lowering) -> Tokens:
    if isinstance(plan, WordPiecePlan):
        assert isinstance(tables, WordPieceTables)
        return tokenize_words(plan, tables, buffer, capacity, lowering=lowering)
    assert isinstance(tables, BPETables)
    return tokenize(plan, tables, buffer, capacity, lowering=lowering)


def _check(program: Any, data: Any, length: Any, segment_starts: Any, capacity: int | None) -> None:
    if not isinstance(program, EncodeProgram):
        raise InputError(f"program must be an EncodeProgram, not {type(program).__name__}: pass tok.program")
    if isinstance(length, int | np.integer) and not -(1 << 31) <= length < 1 << 31:
        raise InputError(f"length must be an int32, not {length}")
    for name, value in (("data", data), ("segment_starts", segment_starts)):
        if value is not None and not hasattr(value, "dtype"):
            raise InputError(f"{name} must be an array, not {type(value).__name__}; np.frombuffer makes one of bytes")
    if data.ndim != 1 or data.dtype != jnp.uint8:
        raise InputError(f"data must be uint8 [N], not {data.dtype} {list(data.shape)}; use vmap for a batch")
    if not data.shape[0]:
        raise InputError("data must have room for at least one byte")
    if segment_starts is not None and (segment_starts.ndim != 1 or segment_starts.dtype != jnp.int32):
        raise InputError(f"segment_starts must be int32 [S], not {segment_starts.dtype} {list(segment_starts.shape)}")
    if capacity is not None and capacity < 1:
        raise InputError(f"capacity must be at least 1, not {capacity}")
