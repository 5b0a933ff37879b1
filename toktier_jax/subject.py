"""What a campaign checks: the device path of a tokenizer, and the pieces that its program cuts before the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from .ops.encode import cut, default_lowering, open_buffer
from .ops.scan import Lowering
from .results import Encoding
from .types import FROZEN, REMOVED, Buffer, EncodeProgram

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

_CAPACITIES = tuple(1 << bits for bits in range(10, 31, 2))
"""Bytes of a buffer."""


class Subject(Protocol):
    """What is checked."""

    def encode(self, text: str) -> Any:
        """`ids`, `char_spans` and `byte_spans` of a text, on the device path. Raises UnsupportedError."""
        ...

    def pieces(self, text: str) -> np.ndarray | None:
        """The text's pieces as oracle.py counts them, int64 [m]; None where the subject shows none."""
        ...


class DeviceSubject:
    """The device path of a tokenizer, and the pieces that its program cuts."""

    def __init__(self, tokenizer: Tokenizer, lowering: Lowering | None = None) -> None:
        self._tokenizer = tokenizer
        self._lowering = lowering or default_lowering()
        self._cut = jax.jit(_cut, static_argnames="lowering")

    def encode(self, text: str) -> Encoding:
        return self._tokenizer.encode(text, route="xla")

    def pieces(self, text: str) -> np.ndarray | None:
        """None where the quick check of a normalizer sends the text to the host."""
        data = np.frombuffer(text.encode(), np.uint8)
        capacity = next(size for size in _CAPACITIES if size >= len(data))
        padded = np.pad(data, (0, capacity - len(data)))
        buffer, failed = self._cut(self._tokenizer.program, padded, np.int32(len(data)), lowering=self._lowering)
        if failed:
            return None
        length = int(buffer.length)
        data, kind, starts = (np.asarray(part)[:length] for part in (buffer.data, buffer.kind, buffer.starts))
        units = np.ones(length, bool) if self._tokenizer.spec.byte_level else (data & 0xC0) != 0x80
        at = np.flatnonzero(starts)
        lengths = np.add.reduceat(units, at, dtype=np.int64) if length else np.zeros(0, np.int64)
        if buffer.token is not None:
            lengths = np.where(kind[at] == FROZEN, -1 - np.asarray(buffer.token)[at].astype(np.int64), lengths)
        return lengths[kind[at] != REMOVED]


def _cut(program: EncodeProgram, data: jax.Array, length: jax.Array, lowering: Lowering) -> tuple[Buffer, jax.Array]:
    buffer = open_buffer(program, data, length, None)
    return cut(program, buffer, at_end=True, lowering=lowering)
