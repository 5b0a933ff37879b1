"""Routes: has a text encoded on the device path or by the reference, as asked, and counts what went where and why."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from toktier_jax.engine import DeviceEngine
from toktier_jax.errors import UnsupportedError
from toktier_jax.host import fork
from toktier_jax.host.inputs import check_choice
from toktier_jax.host.reference import Special
from toktier_jax.results import Route

TINY = 1 << 10
"""Bytes below which a text goes to the reference (reason "tiny"): it has the ids before a block is under way."""

T = TypeVar("T")


class Routes:
    """The routes of one tokenizer. Thread-safe.

    device   the device path, None where there is none
    refusal  why there is none
    """

    def __init__(self, name: str, device: DeviceEngine | None, refusal: str | None) -> None:
        """`name`: of the tokenizer, for messages."""
        self.device, self.refusal = device, refusal
        self._name = name
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._fallbacks: Counter[str] = Counter()

    def need_device(self) -> DeviceEngine:
        """Raises UnsupportedError where there is none."""
        if self.device is None:
            raise UnsupportedError(f"no device path for {self._name}: {self.refusal}")
        return self.device

    def run(
        self, route: str, size: int, on_device: Callable[[DeviceEngine], T], on_reference: Callable[[str], T]
    ) -> T:
        """Runs one of the two on a text of `size` bytes; `on_reference` is given the reason."""
        check_choice("route", route, ("auto", "xla", "reference"))
        if route == "reference":
            return self._counted("reference", lambda: on_reference("requested"))
        if self.device is None and route == "auto":
            assert self.refusal is not None
            reason = self.refusal
            return self._counted("reference", lambda: on_reference(reason))
        reason = counted = "tiny"
        if route == "xla" or size >= TINY:
            device = self.need_device()
            fork.check_fork()
            try:
                return self._counted("xla", lambda: on_device(device))
            except UnsupportedError as error:
                if route == "xla":
                    raise
                reason, counted = str(error), error.reason
        with self._lock:
            self._fallbacks[counted] += 1
        return self._counted("reference", lambda: on_reference(reason))

    def run_together(self, route: str, texts: Sequence[bytes], special: Special) -> list[np.ndarray | None]:
        """Ids of those of many texts that the device path encodes together, int32 [n] each; None for the others."""
        check_choice("route", route, ("auto", "xla", "reference"))
        tiny = route == "auto" and sum(map(len, texts)) < TINY
        if len(texts) < 2 or self.device is None or route == "reference" or tiny:
            return [None] * len(texts)
        found = self.device.encode_many(texts, special)
        with self._lock:
            self._calls["xla"] += sum(ids is not None for ids in found)
        return found

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Texts so far by route, and those that went to the reference although there is a device path by reason."""
        with self._lock:
            return dict(self._calls), dict(self._fallbacks)

    def _counted(self, route: Route, run: Callable[[], T]) -> T:
        result = run()
        with self._lock:
            self._calls[route] += 1
        return result
