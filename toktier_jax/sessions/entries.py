"""Entries: the records of a store by name, in memory and, where it has a folder, on disk, kept equal.

What another process has changed is read again; what it was faster with is a RevisionConflict. Encodes nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from toktier_jax.errors import RevisionConflict, SessionError, UnknownSession
from toktier_jax.sessions.disk import Disk
from toktier_jax.sessions.entry import Entry, Family, Pin
from toktier_jax.sessions.locks import Busy, IfFree
from toktier_jax.sessions.memory import Memory
from toktier_jax.sessions.record import Record

ATTEMPTS = 10
"""Of a change that other processes may get ahead of."""


class Entries:
    """Thread-safe. What is said to need an entry's lock is called with it held."""

    def __init__(self, memory: Memory, disk: Disk | None, count: Callable[[str], object]) -> None:
        """`count` is told "loaded" and "conflicts" with each of them."""
        self.memory = memory
        self._disk, self._count = disk, count

    def close(self) -> None:
        """What is on disk stays."""
        if self._disk:
            self._disk.close()

    # ---- by name ----

    def names(self) -> list[str]:
        """In order; on disk those of this tokenizer alone."""
        if self._disk:
            return self._disk.names()
        with self.memory.lock:
            named = (each for each in self.memory.entries.values() if isinstance(each.key, str))
            return sorted(each.name for each in named if not each.deleted)

    def find(self, name: str, pin: Pin | None = None, *, wait: bool = True) -> Entry | None:
        """The entry, from memory or from disk, held by `pin`. Unless `wait`, one that is being changed is returned as
        it is."""
        entry = self.memory.find(name, pin)
        if entry is not None and self._is_there(entry, wait=wait):
            return entry
        loaded = self._disk.load(name) if self._disk else None
        if loaded is None:
            return None
        record, stored = loaded
        fresh = Entry(name, record, stored=stored)
        entry = self.memory.put(fresh, pin)
        if entry is fresh:
            self._count("loaded")
        self.memory.index(entry)
        self.memory.make_room()
        return entry if self._is_there(entry, wait=wait) else None  # it may have been deleted meanwhile

    def add(self, name: str | int, record: Record, opened: str, pin: Pin, parent: Entry | None = None) -> Entry | None:
        """A new entry, held by `pin`; None where the name was taken meanwhile."""
        family = Family() if parent is None else parent.family
        entry = Entry(name, record, opened=opened, family=family)
        with entry.lock:
            try:
                if self.memory.put(entry, pin, parent) is not entry:
                    return None
                if self._disk and isinstance(name, str):
                    entry.stored = self._disk.create(name, record, parent.stored if parent else None)
            except BaseException as error:
                entry.deleted = True
                self.memory.forget(entry)
                if isinstance(error, RevisionConflict):
                    return None
                raise
        if parent is None:
            self.memory.index(entry)
        self.memory.make_room()
        return entry

    def delete(self, name: str) -> bool:
        """Forgets an entry, here and on disk; whether there was one."""
        entry = self.memory.find(name)
        if entry is None:
            return self._disk.delete(name) if self._disk else False
        with entry.lock:
            known = self._disk.delete(name) if self._disk else not entry.deleted
            entry.deleted = True
            self.memory.forget(entry)
        return known

    def current(self, entry: Entry, pin: Pin) -> Entry | None:
        """What is in memory now, held by `pin`, of an entry that may have left it since and come back; else None."""
        stored = self._disk is not None and isinstance(entry.key, str)
        now = self.find(entry.name, pin) if stored else self.memory.find(entry.key, pin)
        if now is None or now is entry:
            return now
        return now if stored and now.stored.id == entry.stored.id else None

    def copy_of(self, source: Entry, key: int, pin: Pin) -> Entry | None:
        """A nameless entry that begins as `source`, held by `pin`; None where that is being changed, or is no more."""
        try:
            with IfFree(source.lock):
                if source.deleted or source.stale:
                    return None
                opened = f"as a copy of {source.name!r}"
                entry = Entry(key, source.record.copy(), opened=opened, family=source.family)
                return self.memory.put(entry, pin, source)
        except Busy:
            return None

    def release(self, entry: Entry, pin: Pin) -> None:
        """Ends what `pin` holds."""
        with self.memory.lock:
            entry.pins.discard(pin)
            entry.used = time.monotonic()

    # ---- changes: with the entry's lock held ----

    def begin(self, entry: Entry) -> Record:
        """The record to change: with a disk a copy, which counts only once it is written."""
        return entry.record.copy() if self._disk and isinstance(entry.key, str) else entry.record

    def commit(self, entry: Entry, record: Record) -> None:
        """Writes what was changed. Raises RevisionConflict where another process was faster."""
        if self._disk and isinstance(entry.key, str):
            try:
                entry.stored = self._disk.save(entry.key, record, entry.stored)
                entry.record = record
            except BaseException as error:
                conflict = isinstance(error, RevisionConflict)
                entry.stale = conflict or not isinstance(error, SessionError)  # interrupted: it may be written, or not
                if conflict:
                    self._count("conflicts")
                raise
        entry.record = record
        entry.ids = lambda: None

    def confirm(self, entry: Entry) -> None:
        """For a change of nothing. Raises RevisionConflict as a change does."""
        if isinstance(entry.key, str) and not self._is_stored(entry):
            entry.stale = True
            self._count("conflicts")
            raise RevisionConflict(f"session {entry.name!r} was changed or deleted by another process; read it again")

    def refresh(self, entry: Entry) -> None:
        """Reads a record again that another process has changed. Raises UnknownSession where it is gone, even where
        there is another of its name."""
        assert self._disk is not None
        loaded = self._disk.load(entry.name)
        if loaded is None or loaded[1].id != entry.stored.id:
            entry.deleted = True
            self.memory.forget(entry)
            raise UnknownSession(f"session {entry.name!r} was deleted by another process, or its data is damaged")
        entry.record, entry.stored = loaded
        entry.stale = False
        entry.ids = lambda: None
        self.memory.resize(entry, 0)
        self.memory.make_room()

    def remake(self, entry: Entry, make: Callable[[Record], Record | None]) -> bool:
        """Puts another record of the same text in an entry's place, made again where another process was faster;
        False where there is no entry any more or `make` gives none."""
        for attempt in reversed(range(ATTEMPTS)):
            if entry.stale:
                with contextlib.suppress(UnknownSession):
                    self.refresh(entry)
            made = None if entry.deleted else make(self.begin(entry))
            if made is None:
                return False
            try:
                self.commit(entry, made)
                break
            except RevisionConflict:
                if not attempt:
                    raise
        self.memory.resize(entry, made.text.length)
        self.memory.make_room()
        return True

    # ---- inside ----

    def _is_there(self, entry: Entry, *, wait: bool) -> bool:
        """Whether an entry of the memory is still to be used; reads it again if another process has changed it."""
        if self._is_stored(entry):
            return True
        try:
            with entry.lock if wait else IfFree(entry.lock):
                if not entry.deleted and not self._is_stored(entry):
                    entry.stale = True
                    with contextlib.suppress(UnknownSession):
                        self.refresh(entry)
                return not entry.deleted
        except Busy:  # a change of this process is on its way
            return True

    def _is_stored(self, entry: Entry) -> bool:
        """Whether the disk, if there is one, holds just this."""
        if self._disk is None:
            return True
        return not entry.stale and entry.stored is not None and self._disk.holds(entry.name, entry.stored)
