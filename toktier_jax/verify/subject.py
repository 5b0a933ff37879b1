"""What a campaign checks: the device path of a tokenizer, and the pieces that its program cuts before the model."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from toktier_jax.executables import cutter
from toktier_jax.host.align import Form, align
from toktier_jax.ops.encode import HOST_NEEDED, default_lowering
from toktier_jax.ops.scan import Lowering
from toktier_jax.plan import RewritePlan
from toktier_jax.results import Encoding
from toktier_jax.spec.types import Unicode
from toktier_jax.types import FROZEN, REMOVED
from toktier_jax.variants import for_lowering, without_model

if TYPE_CHECKING:
    from toktier_jax.tokenizer import Tokenizer

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
        self._lowering: Lowering = lowering or default_lowering()
        self._rewrites = any(isinstance(step, RewritePlan) for step in tokenizer.program.plan.steps)
        self._forms = [step.form for step in tokenizer.spec.normalizers if isinstance(step, Unicode)]

    def encode(self, text: str) -> Encoding:
        return self._tokenizer.encode(text, route="xla")

    def pieces(self, text: str) -> np.ndarray | None:
        """None where only the reference can normalize the text."""
        buffer, failed = self._cut(text.encode())
        if failed:
            if not self._forms or self._rewrites:
                return None
            form: Any = self._forms[0]
            buffer, _ = self._cut(_normalized(buffer, form))
        units = np.ones(len(buffer.data), bool) if self._tokenizer.spec.byte_level else (buffer.data & 0xC0) != 0x80
        at = np.flatnonzero(buffer.starts)
        lengths = np.add.reduceat(units, at, dtype=np.int64) if len(at) else np.zeros(0, np.int64)
        if buffer.token is not None:
            lengths = np.where(buffer.kind[at] == FROZEN, -1 - buffer.token[at].astype(np.int64), lengths)
        return lengths[buffer.kind[at] != REMOVED]

    def _cut(self, data: bytes) -> tuple[Cut, bool]:
        capacity = next(size for size in _CAPACITIES if size >= len(data))
        padded = np.pad(np.frombuffer(data, np.uint8), (0, capacity - len(data)))
        program = without_model(for_lowering(self._tokenizer.program, self._lowering))
        whole, unchecked = np.bool_(True), np.bool_(False)
        pieces = cutter(self._lowering)(program, padded, np.int32(len(data)), whole, unchecked)
        buffer = pieces.buffer
        data_, starts, kind = (
            np.asarray(part)[: int(buffer.length)] for part in (buffer.data, buffer.starts, buffer.kind)
        )
        token = None if buffer.token is None else np.asarray(buffer.token)[: int(buffer.length)]
        return Cut(data_, starts, kind, token), int(pieces.status) == HOST_NEEDED


class Cut(NamedTuple):
    """The parts of a Buffer that show its pieces, up to its length."""

    data: np.ndarray
    starts: np.ndarray
    kind: np.ndarray
    token: np.ndarray | None


def _normalized(buffer: Cut, form: Form) -> bytes:
    """The text with the host's part of the normalization done between the added tokens."""
    frozen = buffer.kind == FROZEN
    edges = [0, *np.flatnonzero(np.diff(frozen)) + 1, len(frozen)]
    parts = ((buffer.data[start:stop].tobytes(), frozen[start]) for start, stop in itertools.pairwise(edges))
    return b"".join(part if whole else align(form, part.decode()).data for part, whole in parts)
