"""Windows of any program in XLA: on the host the steps before the model, then pieces are looked up; or all on a device.

Exact for every program. On the host a few times slower than host/window.py, which cannot rewrite text; on an
accelerator the way for large texts. Compiled for each plan and capacity.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.executables import TRACES, encoder, options
from toktier_jax.host.refusals import QuickCheckFailed, beyond_program
from toktier_jax.host.utf8 import character_start
from toktier_jax.host.window import HostWindow, cut, joined, moved
from toktier_jax.host.word_merge import WordMerger
from toktier_jax.ops.anchors import Anchored, cut_with_anchors
from toktier_jax.ops.encode import OK, Pieces, default_lowering
from toktier_jax.ops.scan import Lowering
from toktier_jax.plan import BPEPlan
from toktier_jax.types import FROZEN, TEXT, EncodeProgram
from toktier_jax.variants import for_lowering

CAPACITIES = (1 << 12, 1 << 16, 1 << 20, 1 << 22)
"""Bytes of a window; a longer text is cut where it is decided."""


class RewrittenEncoder:
    """Windows of any program. Thread-safe."""

    def __init__(self, program: EncodeProgram, *, on_device: bool = False) -> None:
        self._host = program
        model = program.plan.model
        assert model is not None
        self._model = model
        self._merger = None
        if isinstance(model, BPEPlan) and not on_device:
            self._merger = WordMerger(model, program.tables.model)
        self._on_device = on_device
        self._lock = threading.Lock()
        self._placed: EncodeProgram | None = None

    def encode(self, data: bytes, *, at_start: bool = True, checked: bool = False) -> HostWindow:
        """As WindowEncoder.encode."""
        if self._merger is not None:
            self._merger.load()
        parts: list[HostWindow] = []
        begin, most = 0, CAPACITIES[1]
        while True:
            end = character_start(data, min(begin + most, len(data)))
            part = self._encode(data[begin:end], at_start and begin == 0, checked)
            if end == len(data):
                return joined([*parts, moved(part, begin)])
            if part.decided:
                parts.append(moved(cut(part, part.decided), begin))
                begin += part.decided
                most = CAPACITIES[1]
            elif most < CAPACITIES[-1]:
                most = CAPACITIES[CAPACITIES.index(most) + 1]
            else:
                raise UnsupportedError(
                    f"a piece of the text, at byte {begin}, is longer than {most} bytes",
                    f"a piece of the text is longer than {most} bytes",
                )

    def _encode(self, data: bytes, at_start: bool, checked: bool) -> HostWindow:
        size = len(data)
        if not size:
            none = np.zeros(0, np.int32)
            return HostWindow(none, none, none, none, 0)
        capacity = next(each for each in CAPACITIES if each >= size)
        block = np.zeros(capacity, np.uint8)
        block[:size] = np.frombuffer(data, np.uint8)
        program, lowering = self._place()
        found: Anchored = _cutter(lowering)(program, block, np.int32(size), np.bool_(at_start), np.bool_(checked))
        if bool(found.failed):
            raise QuickCheckFailed
        buffer = found.buffer
        length, limit = int(buffer.length), int(found.limit)
        anchors = np.flatnonzero(np.asarray(found.anchors)[:length]).astype(np.int32)
        decided = anchors[np.searchsorted(anchors, limit, side="right") - 1] if len(anchors) and limit else 0
        if self._merger is None:
            ids, starts, ends = self._by_xla(program, found, lowering)
        else:
            ids, starts, ends = self._by_piece(np.asarray(buffer.data)[:length], found, length)
        if buffer.origin is not None:
            origin = np.asarray(buffer.origin)
            anchors, decided = origin[0][anchors], origin[0][decided] if decided else 0
        return HostWindow(ids, starts, ends, anchors, int(decided))

    def _by_piece(self, data: np.ndarray, found: Anchored, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        assert self._merger is not None
        buffer = found.buffer
        text = data.tobytes()
        kind = np.asarray(buffer.kind)[:length]
        token = None if buffer.token is None else np.asarray(buffer.token)
        bounds = np.flatnonzero(np.asarray(buffer.starts)[:length]).tolist()
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        for start, stop in zip(bounds, [*bounds[1:], length], strict=True):
            if kind[start] == FROZEN and token is not None:
                ids.append(int(token[start]))
                starts.append(start)
                ends.append(stop)
            elif kind[start] == TEXT:
                (tokens,) = self._merger.find([text[start:stop]])
                ids += tokens[0]
                inner = [start + end for end in tokens[1]]
                starts += [start, *inner[:-1]]
                ends += inner
        first, last = np.array(starts, np.int32), np.array(ends, np.int32)
        if buffer.origin is not None:
            origin = np.asarray(buffer.origin)
            first, last = origin[0][first], np.maximum.accumulate(origin[1][last - 1])  # as in ops/encode.py
        return np.array(ids, np.int32), first, last

    def _by_xla(
        self, program: EncodeProgram, found: Anchored, lowering: Lowering
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        pieces = Pieces(found.buffer, found.limit, jax.numpy.int32(OK))
        out = encoder(lowering, self._model)(program.tables.model, pieces)
        if int(out.status) != OK:
            raise beyond_program()
        count = int(out.count)
        ids, starts, ends = (np.asarray(each)[:count] for each in (out.ids, out.byte_starts, out.byte_ends))
        return ids, starts, ends

    def _place(self) -> tuple[EncodeProgram, Lowering]:
        with self._lock:
            placed = self._placed
            if placed is None:
                device = jax.local_devices(backend=None if self._on_device else "cpu")[0]
                placed = self._placed = jax.device_put(for_lowering(self._host, self._lowering), device)
            return placed, self._lowering

    @property
    def _lowering(self) -> Lowering:
        return default_lowering() if self._on_device else "walk"


@functools.cache
def _cutter(lowering: Lowering) -> Callable[..., Anchored]:
    def run(program: EncodeProgram, data: Any, length: Any, at_start: Any, checked: Any) -> Anchored:
        TRACES[f"window of {data.shape[0]} bytes"] += 1
        return cut_with_anchors(program, data, length, at_start, checked, lowering=lowering)

    return jax.jit(run, compiler_options=options())
