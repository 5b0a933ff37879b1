"""Buffers of given pieces, and the tokens that come of them: what the tests of models share."""

from __future__ import annotations

from typing import Any

import numpy as np

from toktier_jax.types import FROZEN, TEXT, Buffer


def buffer_of_pieces(pieces: list[bytes], size: int, kinds: list[int] | None = None) -> Buffer:
    """Pieces one after another, in `size` bytes; piece k is of kind `kinds[k]`, an added token k where it is FROZEN."""
    text = b"".join(pieces)
    data, starts, kind = np.zeros(size, np.uint8), np.zeros(size, bool), np.full(size, TEXT, np.uint8)
    token = np.full(size, -1, np.int32)
    data[: len(text)] = np.frombuffer(text, np.uint8)
    at = 0
    for number, piece in enumerate(pieces):
        starts[at] = True
        if kinds is not None:
            kind[at : at + len(piece)] = kinds[number]
            token[at] = number if kinds[number] == FROZEN else -1
        at += len(piece)
    length = np.int32(len(text))
    return Buffer(data, length, starts, starts, kind, token, None, length)  # type: ignore[arg-type]  # numpy for jax


def rows_of(out: Any, capacity: int) -> tuple[list[list[int]], int, bool]:
    """Id, start and end of each token, their true number, and whether some of it is unresolved."""
    count = min(int(out.count), capacity)
    return np.stack([out.ids, out.starts, out.ends], 1)[:count].tolist(), int(out.count), bool(out.unresolved)
