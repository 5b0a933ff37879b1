"""Blocks of tokens as bytes for the disk: 6 to 8 bytes a token where tokens are short, 13 where they are not."""

from __future__ import annotations

import struct

import numpy as np

from toktier_jax.sessions.blocks import Tokens

_HEAD = struct.Struct("<BI")
_SHORT, _GAPS, _WIDE = 0, 1, 2
"""Lengths alone, as tokens touch; gaps and lengths; positions as they are."""


def pack_tokens(block: Tokens) -> bytes:
    """A block with positions relative to its first token."""
    count = len(block.ids)
    lengths = block.ends - block.starts
    gaps = block.starts - np.concatenate([np.zeros(1, np.int32), block.ends[:-1]])
    flags = np.packbits(np.stack([block.flags & 1, block.flags >> 1 & 1]).astype(bool)).tobytes()
    ids = block.ids.astype("<i4").tobytes()
    if count and lengths.min() >= 0 and lengths.max() < 1 << 16:
        if not gaps.any():
            return _HEAD.pack(_SHORT, count) + ids + lengths.astype("<u2").tobytes() + flags
        if gaps.min() >= -(1 << 15) and gaps.max() < 1 << 15:
            places = gaps.astype("<i2").tobytes() + lengths.astype("<u2").tobytes()
            return _HEAD.pack(_GAPS, count) + ids + places + flags
    places = block.starts.astype("<i4").tobytes() + block.ends.astype("<i4").tobytes()
    return _HEAD.pack(_WIDE, count) + ids + places + flags


def unpack_tokens(data: bytes) -> Tokens:
    """The same again. Raises ValueError where the lengths do not fit."""
    try:
        form, count = _HEAD.unpack_from(data)
    except struct.error as error:
        raise ValueError(str(error)) from error
    places = {_SHORT: 2, _GAPS: 4, _WIDE: 8}.get(form)
    if places is None or len(data) != _HEAD.size + count * (4 + places) + (2 * count + 7) // 8:
        raise ValueError("a block of tokens has another length")
    at = _HEAD.size
    ids = np.frombuffer(data, "<i4", count, at).astype(np.int32)
    at += 4 * count
    if form == _WIDE:
        starts, ends = (np.frombuffer(data, "<i4", count, at + k * 4 * count).astype(np.int32) for k in (0, 1))
    else:
        gaps = np.zeros(count, np.int64)
        if form == _GAPS:
            gaps = np.frombuffer(data, "<i2", count, at).astype(np.int64)
        lengths = np.frombuffer(data, "<u2", count, at + (places - 2) * count).astype(np.int64)
        ends = np.cumsum(gaps + lengths)
        starts, ends = (ends - lengths).astype(np.int32), ends.astype(np.int32)
    bits = np.unpackbits(np.frombuffer(data, np.uint8, offset=at + places * count), count=2 * count)
    return Tokens(ids, starts, ends, bits[:count] | bits[count:] << 1)
