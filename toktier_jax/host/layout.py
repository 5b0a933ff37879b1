"""Lays rows of ids out in arrays: padded batches, and documents packed end to end. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toktier_jax.host.postprocess import padded_length
from toktier_jax.spec import types


class Batch(NamedTuple):
    """See results.TokenBatch."""

    ids: np.ndarray
    lengths: np.ndarray
    status: np.ndarray


def batch(
    rows: Sequence[np.ndarray],
    padding: types.Padding | None,
    *,
    length: int | None,
    pad_id: int | None,
    side: str | None,
) -> Batch:
    """Rows int32 [n] each in one array. What is None is the file's `padding`, else the longest row, 0 and right."""
    if pad_id is None:
        pad_id = 0 if padding is None else padding.pad_id
    if side is None:
        side = "right" if padding is None else padding.direction.lower()
    lengths = np.array([len(row) for row in rows], np.int32)
    if length is None:
        longest = int(lengths.max(initial=0))
        length = longest if padding is None else padded_length(padding, longest)
    status = (lengths > length).astype(np.int32)
    ids = np.full((len(rows), length), pad_id, np.int32)
    ids[status == 1] = -1
    for i in np.flatnonzero(status == 0).tolist():
        if size := len(rows[i]):
            ids[i, slice(length - size, None) if side == "left" else slice(size)] = rows[i]
    return Batch(ids, lengths, status)


def pack(rows: Sequence[np.ndarray], length: int, pad_id: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ids, segment_ids and positions, int32 [R, length] each, of rows int32 [n] each. See results.Packed."""
    sizes = np.array([len(row) for row in rows], np.int64)
    total = int(sizes.sum())
    shape = (-(-total // length), length)
    ids = np.full(shape, pad_id, np.int32)
    segments, positions = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    if total:
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        documents = np.repeat(np.arange(len(rows)), sizes)
        first = documents[np.arange(total) // length * length]  # the document with which the row begins
        present = np.cumsum(np.diff(documents, prepend=-1) != 0)  # documents without ids have no number
        ids.flat[:total] = np.concatenate(rows)
        segments.flat[:total] = present - present[np.searchsorted(documents, first)] + 1
        positions.flat[:total] = np.arange(total) - starts
    return ids, segments, positions
