"""Entry: a record in memory, with what the store knows of it and who holds it. No logic."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toktier_jax.sessions.record import Record


class Pin:
    """Keeps an entry in memory for as long as someone holds it: a handle does."""

    __slots__ = ("__weakref__",)


class Family:
    """Entries that began as copies of one another, while they are in memory: what is wrong in one can be wrong in all.
    Thread-safe.

    sharing  those that the memory counts as shared; with its lock held
    longest  characters of the longest of their texts, or more
    """

    def __init__(self) -> None:
        self.sharing: set[Entry] = set()
        self.longest = 0
        self._lock = threading.Lock()
        self._members: weakref.WeakSet[Entry] = weakref.WeakSet()

    def add(self, entry: Entry) -> None:
        with self._lock:
            self._members.add(entry)

    def members(self) -> list[Entry]:
        with self._lock:
            return list(self._members)


@dataclass(eq=False)
class Entry:
    """A record in memory, and what the store knows of it. `lock` guards everything but `pins` and `used`."""

    key: str | int
    """The name, or the number of a text without one."""
    record: Record
    lock: threading.RLock = field(default_factory=threading.RLock)
    counts: Counter[str] = field(default_factory=Counter)
    pins: weakref.WeakSet[Pin] = field(default_factory=weakref.WeakSet)
    family: Family = field(default_factory=Family)
    used: float = field(default_factory=time.monotonic)
    deleted: bool = False
    stale: bool = False
    """Another process has changed the stored record: it is to be read again."""
    stored: Any = None
    """What the disk holds of it."""
    size: int = 0
    """Bytes that it counts in memory."""
    shared: bool = False
    """It is unchanged since it began as a copy, and counts only what it holds beside what both share."""
    opened: str = "from the disk"
    """How the record was made: by which encode, from the disk, or as a fork of another."""
    ids: Callable[[], np.ndarray | None] = lambda: None
    """The ids that were last given out, while someone holds them."""

    def __post_init__(self) -> None:
        self.family.add(self)

    @property
    def name(self) -> str:
        return str(self.key)

    @property
    def held(self) -> bool:
        """Whether a pin is left, with the memory's lock held. (An interrupt can leave a dead one in a weak set.)"""
        return any(True for _ in self.pins)
