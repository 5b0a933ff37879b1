"""Padded batches and packed documents."""

from __future__ import annotations

import numpy as np

from toktier_jax.host import layout
from toktier_jax.spec.types import Padding


def rows(*sizes: int) -> list[np.ndarray]:
    return [np.arange(1, size + 1, dtype=np.int32) for size in sizes]


def test_batch_defaults_to_right_and_zero() -> None:
    found = layout.batch(rows(2, 0, 3), None, length=None, pad_id=None, side=None)
    assert found.ids.tolist() == [[1, 2, 0], [0, 0, 0], [1, 2, 3]]
    assert found.lengths.tolist() == [2, 0, 3]
    assert found.status.tolist() == [0, 0, 0]
    assert {part.dtype for part in found} == {np.dtype(np.int32)}


def test_batch_by_the_file_and_against_it() -> None:
    padding = Padding(None, "Left", 4, pad_id=9, pad_type_id=0, pad_token="x")
    assert layout.batch(rows(1, 3), padding, length=None, pad_id=None, side=None).ids.tolist() == [
        [9, 9, 9, 1],
        [9, 1, 2, 3],
    ]
    assert layout.batch(rows(1), padding, length=2, pad_id=-5, side="right").ids.tolist() == [[1, -5]]
    fixed = Padding(3, "Right", None, 0, 0, "x")
    assert layout.batch(rows(1), fixed, length=None, pad_id=None, side=None).ids.shape == (1, 3)
    assert layout.batch(rows(5), fixed, length=None, pad_id=None, side=None).ids.shape == (1, 5)


def test_rows_that_do_not_fit_are_marked() -> None:
    found = layout.batch(rows(2, 3), None, length=2, pad_id=None, side="left")
    assert found.ids.tolist() == [[1, 2], [-1, -1]]
    assert found.lengths.tolist() == [2, 3]
    assert found.status.tolist() == [0, 1]


def test_no_rows() -> None:
    assert layout.batch([], None, length=None, pad_id=None, side=None).ids.shape == (0, 0)
    assert layout.batch([], None, length=4, pad_id=None, side=None).ids.shape == (0, 4)
    assert layout.pack([], 4, 0)[0].shape == (0, 4)


def test_pack() -> None:
    ids, segments, positions = layout.pack(rows(3, 0, 2, 6), 4, 7)
    assert ids.tolist() == [[1, 2, 3, 1], [2, 1, 2, 3], [4, 5, 6, 7]]
    assert segments.tolist() == [[1, 1, 1, 2], [1, 2, 2, 2], [1, 1, 1, 0]]
    assert positions.tolist() == [[0, 1, 2, 0], [1, 0, 1, 2], [3, 4, 5, 0]]


def test_pack_keeps_every_document_in_order() -> None:
    rng = np.random.default_rng(0)
    docs = [rng.integers(1, 100, rng.integers(0, 9)).astype(np.int32) for _ in range(60)]
    ids, segments, positions = layout.pack(docs, 7, 0)
    inside = segments > 0
    assert ids[inside].tolist() == np.concatenate(docs).tolist()
    assert positions[inside].tolist() == [i for doc in docs for i in range(len(doc))]
    starts = (positions == 0) & inside
    new = np.diff(segments, axis=1, prepend=0) > 0
    assert (starts <= new).all()
    assert (new[:, 1:] == starts[:, 1:]).all()
