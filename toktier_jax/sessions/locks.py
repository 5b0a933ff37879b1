"""A lock that is taken only where it is free, with no moment at which an interrupt could leave it held."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

Busy = StopIteration
"""What entering IfFree raises where another thread has the lock."""


class IfFree:
    """`with IfFree(lock):` is `with lock:` that raises Busy instead of waiting.

    Python looks for signals after a call of `lock.acquire`, before a `try` behind it is entered, and inside a method
    written in Python. So entering and leaving are what a `with lock:` has: one call of C each.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock

    @property
    def __enter__(self) -> Callable[[], object]:
        return partial(next, filter(None, map(self._lock.acquire, (False,))))

    @property
    def __exit__(self) -> Callable[..., Any]:
        return self._lock.__exit__
