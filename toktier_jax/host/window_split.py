"""One split step of a small window: the walks run in XLA (ops/one_lane.py), everything round them is numpy."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from toktier_jax.executables import TRACES
from toktier_jax.ops.one_lane import walk_one_lane
from toktier_jax.ops.split_rule import joins
from toktier_jax.plan import SplitPlan
from toktier_jax.types import ANYTHING, COLLAPSED, CONT, GAP_START, MATCH_START, SplitTables

CAPACITIES = (512, 2048, 8192, 32768, 131072)
"""Bytes of the buffers that are walked; longer ones double."""


class Cut(NamedTuple):
    """A window of n bytes on its way through the splits.

    starts   bool [n]  a segment starts here
    frozen   bool [n] or None  in a segment that stays whole: an added token
    removed  bool [n] or None  an earlier split removed the byte
    """

    starts: np.ndarray
    frozen: np.ndarray | None
    removed: np.ndarray | None


class Splitter:
    """One SplitPlan. Calling it cuts a window's open segments."""

    def __init__(self, plan: SplitPlan, tables: SplitTables, plain: np.ndarray) -> None:
        """`plain` uint8 [256]: the symbols of bytes in a text of ASCII alone."""
        walk = tables.walk
        self.plan = plan
        self._right, self._left = np.asarray(walk.right), np.asarray(walk.left)
        self._begins = int(walk.begins)
        self._tail: list[list[int]] = np.asarray(walk.tail).tolist()
        codes = np.asarray(walk.codes)
        self._same = int(codes[CONT])
        self._half = self._right.shape[1] // 2
        self._past = np.int32(self._right[0, self._same])
        self.by_symbol = codes.tobytes()
        """The code of each symbol, and of each byte of a text of ASCII alone: tables of bytes.translate."""
        of_byte = np.asarray(tables.symbols) if plan.unit == "byte" else plain
        self.by_byte = codes[of_byte].tobytes()
        self._lock = threading.Lock()
        self._placed: tuple[Any, Any] | None = None

    def __call__(self, data: bytes, symbols: np.ndarray | None, cut: Cut, limit: int) -> tuple[Cut, int]:
        """The window after this split, and its last start that is decided, if starts before were up to `limit`.

        `symbols` uint8 [n]: the class of the character at each byte, or CONT; None where the text is ASCII.
        """
        size = len(data)
        if symbols is None or self.plan.unit == "byte":
            source = data.translate(self.by_byte)
        else:
            source = symbols.tobytes().translate(self.by_symbol)
        capacity = next((each for each in CAPACITIES if each >= size), 1 << (size - 1).bit_length())
        codes = np.zeros(capacity, np.uint8)
        codes[:size] = np.frombuffer(source, np.uint8)
        whole = cut.frozen if cut.removed is None else cut.removed if cut.frozen is None else cut.frozen | cut.removed
        if whole is not None:
            codes[:size][whole] = self._same
        known = limit
        if limit == size or not cut.starts[limit]:
            known = self.known(source, limit, limit - 1 - int(np.argmax(cut.starts[limit - 1 :: -1])))
        codes[:size][cut.starts] += np.uint8(self._half)
        right, left = self._on_device()
        states = np.asarray(_walk()(right, left, codes, self._past, np.int32(size)))[:size]
        starts = (states >= GAP_START) & (states < self._begins)
        removed = cut.removed
        if self.plan.behavior != "Isolated":
            match = states >= MATCH_START
            if whole is not None:
                match &= ~whole
            starts, dropped = _apply_rule(self.plan, cut.starts, starts, match)
            if dropped is not None:
                dropped = dropped if whole is None else dropped & ~whole
                removed = dropped if removed is None else removed | dropped
        decided = int(known - np.argmax(starts[known::-1])) if known < size else int(size - 1 - np.argmax(starts[::-1]))
        return Cut(starts, cut.frozen, removed), decided

    def known(self, codes: bytes, limit: int, floor: int) -> int:
        """From `limit` to the left, to where the right state is the same whatever follows (2-pass finality); at most
        to `floor`, the last start of a segment before `limit`. `codes`: the symbols of the text, translated."""
        state, tail = ANYTHING, self._tail
        for at in range(limit - 1, floor, -1):
            state = tail[state][codes[at]]
            if state == COLLAPSED:
                return at
        return floor

    def _on_device(self) -> tuple[Any, Any]:
        """The walks' tables on a CPU, whatever the default device is: a window is not worth a launch."""
        with self._lock:
            placed = self._placed
            if placed is None:
                placed = self._placed = jax.device_put((self._right, self._left), jax.local_devices(backend="cpu")[0])
            return placed


@functools.cache
def _walk() -> Callable[..., Any]:
    def walk(right: Any, left: Any, codes: Any, past: Any, length: Any) -> Any:
        TRACES[f"window of {codes.shape[0]} bytes"] += 1
        return walk_one_lane(right, left, codes, past, length)

    return jax.jit(walk)


def _apply_rule(
    plan: SplitPlan, segments: np.ndarray, starts: np.ndarray, match: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """As ops/split_rule.py: piece starts after the rule, and which bytes it removes (None: it never does)."""
    match = match ^ plan.invert
    if plan.behavior == "Removed":
        return starts, match
    before = np.concatenate([[False], match[:-1]])
    return starts & (segments | ~joins(plan, match, before)), None
