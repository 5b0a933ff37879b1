"""The sessions that are in memory: by name or number, counted in bytes. Those that nobody uses leave.

Who has an open handle never leaves. Knows nothing of disks and of encodes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from toktier_jax.sessions.content import ContentIndex
from toktier_jax.sessions.entry import Entry, Pin


class Memory:
    """Entries with their sizes. Thread-safe; no method waits for an entry's lock.

    entries  by name, or by number where a text has no name; read it with `lock` held
    bytes    of all entries, about
    """

    def __init__(self, ttl: float, max_bytes: int, count: Callable[[str], object]) -> None:
        """`count` is told "expired" or "evicted" with each entry that leaves; with the lock held."""
        self._ttl, self._max_bytes, self._count = ttl, max_bytes, count
        self.lock = threading.Lock()
        self.entries: dict[str | int, Entry] = {}
        self.bytes = 0
        self.content = ContentIndex()
        self._swept = time.monotonic()

    def find(self, name: str | int, pin: Pin | None = None) -> Entry | None:
        """The entry, used now, and held by `pin`."""
        self._sweep()
        with self.lock:
            entry = self._present(name)
            if entry is not None:
                _hold(entry, pin)
                entry.used = time.monotonic()
            return entry

    def put(self, entry: Entry, pin: Pin | None = None, source: Entry | None = None) -> Entry:
        """Takes in an entry, unless one of its name is there: returns what is there, held by `pin`. `source`, whose
        lock is held: what the entry is a copy of; where it has left meanwhile, there is nothing left to share with."""
        self._sweep()
        with self.lock:
            self._present(entry.key)
            found = self.entries.setdefault(entry.key, entry)
            _hold(found, pin)
            if found is entry:
                entry.shared = source is not None and self.entries.get(source.key) is source
                self._count_in(entry)
            return found

    def resize(self, entry: Entry, kept: int) -> None:
        """After a change of the record, which left the first `kept` characters: its size, and what `index` does."""
        with self.lock:
            if self.entries.get(entry.key) is not entry:
                return
            if entry.shared:
                entry.shared = False
            else:
                self._unshare(entry, kept)
            self._count_in(entry)
        self.index(entry, kept)

    def index(self, entry: Entry, kept: int = 1 << 62) -> None:
        """Has the content look-up know the beginnings of an entry's text, which has its first `kept` characters yet;
        one that has left meanwhile stays unknown."""
        self.content.add(entry, kept)
        with self.lock:
            if self.entries.get(entry.key) is entry:
                return
        self.content.remove(entry)

    def forget_idle(self, entry: Entry) -> None:
        """Forgets an entry, unless somebody holds it."""
        with self.lock:
            if entry.held or self.entries.get(entry.key) is not entry:
                return
            self._take_out(entry)
        self.content.remove(entry)

    def forget(self, entry: Entry) -> None:
        with self.lock:
            if self.entries.get(entry.key) is entry:
                self._take_out(entry)
        self.content.remove(entry)

    def make_room(self) -> None:
        """Where it is above the cap, least recently used sessions without handles leave until a tenth of it is free:
        looking for them again for each change would cost as many looks as there are sessions."""
        if self.bytes <= self._max_bytes:
            return
        aim = self._max_bytes * 9 // 10
        with self.lock:
            idle = sorted((each for each in self.entries.values() if not each.held), key=lambda each: each.used)
            for entry in idle:
                if self.bytes <= aim:
                    break
                self._drop(entry, "evicted")

    def _present(self, name: str | int) -> Entry | None:
        """The entry of that name; one that was deleted, and is here because that was interrupted, leaves."""
        entry = self.entries.get(name)
        if entry is not None and entry.deleted:
            self._take_out(entry)
            self.content.remove(entry)
            return None
        return entry

    def _sweep(self) -> None:
        """Sessions that nobody has used for `ttl` leave."""
        now = time.monotonic()
        if now - self._swept < min(self._ttl / 4, 60.0):
            return
        with self.lock:
            self._swept = now
            for entry in list(self.entries.values()):
                if not entry.held and now - entry.used > self._ttl:
                    self._drop(entry, "expired")

    def _drop(self, entry: Entry, why: str) -> None:
        self._take_out(entry)
        self._count(why)
        self.content.remove(entry)

    def _take_out(self, entry: Entry) -> None:
        entry.family.sharing.discard(entry)
        if not entry.shared:
            self._unshare(entry, 0)
        self.bytes -= entry.size
        entry.size = 0
        del self.entries[entry.key]

    def _unshare(self, entry: Entry, kept: int) -> None:
        """An entry holds only the first `kept` characters yet of what copies of it share: those with more count whole
        from now on, each, as who holds what of the rest is not known."""
        family = entry.family
        if family.longest <= kept:
            return
        for copy in [each for each in family.sharing if each.record.text.length > kept]:
            copy.shared = False
            family.sharing.discard(copy)
            if self.entries.get(copy.key) is copy:
                self._count_in(copy)
        family.longest = max((each.record.text.length for each in family.sharing), default=0)

    def _count_in(self, entry: Entry) -> None:
        size = entry.record.bytes_shared if entry.shared else entry.record.bytes_held
        self.bytes += size - entry.size
        entry.size = size
        if entry.shared:
            entry.family.sharing.add(entry)
            entry.family.longest = max(entry.family.longest, entry.record.text.length)
        else:
            entry.family.sharing.discard(entry)


def _hold(entry: Entry, pin: Pin | None) -> None:
    if pin is not None:
        entry.pins.add(pin)
