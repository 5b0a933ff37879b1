"""SessionStore: many sessions by name, in memory and, with a path, on disk. Opens, finds, forks, forgets them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from toktier_jax.errors import ClosedSession, InputError, RevisionConflict, SessionError, UnknownSession
from toktier_jax.sessions.arguments import check_folder, check_name, check_number, check_text
from toktier_jax.sessions.disk import Disk
from toktier_jax.sessions.engine import Engine, completed, is_engine
from toktier_jax.sessions.memory import Memory
from toktier_jax.sessions.policy import Policy
from toktier_jax.sessions.record import Record, flagged
from toktier_jax.sessions.session import Entry, Family, Pin, Session, encode_record
from toktier_jax.sessions.shadow import Mismatch, ShadowVerifier

ATTEMPTS = 10
"""Of a change that other processes may get ahead of."""


class SessionStore:
    """Sessions of one tokenizer. Thread-safe: a lock a session; only reads and writes of the disk wait for each other.

    tok        a Tokenizer, or anything that is an Engine
    path       a directory for the store on disk; what a call returned from survives the end of the process
    ttl        seconds after which a session that nobody uses leaves memory; without a path it is then gone
    max_bytes  of memory, about; beyond it the least recently used sessions leave. Open handles never do
    shadow     share of changes that are verified against the reference in the background
    """

    def __init__(
        self,
        tok: Any,
        path: str | os.PathLike[str] | None = None,
        ttl: float = 3600.0,
        max_bytes: int = 1 << 30,
        shadow: float = 0.0,
        *,
        policy: Policy | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        on_mismatch: Callable[[Mismatch], object] | None = None,
    ) -> None:
        """`quarantine`: a directory for reproductions of mismatches; `on_mismatch` is called with each.

        Raises InputError where an argument is of another type or out of range, UnsupportedError for a tokenizer with
        truncation or padding, SessionError where `path` cannot be used.
        """
        check_number("ttl", ttl)
        check_number("max_bytes", max_bytes)
        check_number("shadow", shadow, 1)
        path, quarantine = check_folder("path", path), check_folder("quarantine", quarantine)
        if not isinstance(policy, Policy | None):
            raise InputError(f"policy must be a Policy or None, not {policy!r}")
        if on_mismatch is not None and not callable(on_mismatch):
            raise InputError(f"on_mismatch must be a function of a Mismatch or None, not {on_mismatch!r}")
        self.engine: Engine = completed(tok) if is_engine(tok) else _engine(tok, policy or Policy())
        self._memory = Memory(ttl, max_bytes, self._count)
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()
        self._seconds = 0.0
        self._closed = False
        self._verifier = ShadowVerifier(
            self.engine, shadow, folder=quarantine, on_mismatch=on_mismatch, distrust=self._distrust
        )
        self._disk = None if path is None else Disk(path, self.engine.info.fingerprint, self._count)

    # ---- sessions ----

    def open(self, name: str, text: str | None = None) -> Session:
        """The session of that name, made if it is new. `text`: what its text shall be."""
        self.check_open()
        name = check_name(name)
        pin = Pin()
        entry = self._find(name, pin)
        if entry is None:
            made = self._add(name, *encode_record(self.engine, "" if text is None else check_text(text)))
            if made is not None:
                return made
            entry = self._find(name, pin)  # another thread was faster
            if entry is None:
                raise UnknownSession(f"session {name!r} was deleted while it was opened")
        session = Session(self, entry, pin)
        if text is not None:
            try:
                session.update(text)
            except BaseException:
                session.close()
                raise
        return session

    def get(self, name: str) -> Session:
        """The session of that name. Raises UnknownSession."""
        self.check_open()
        name = check_name(name)
        pin = Pin()
        entry = self._find(name, pin)
        if entry is None:
            raise UnknownSession(f"there is no session {name!r}")
        return Session(self, entry, pin)

    def list(self) -> list[str]:
        """Names, in order; on disk those of this tokenizer alone."""
        self.check_open()
        if self._disk:
            return self._disk.names()
        with self._memory.lock:
            named = (each for each in self._memory.entries.values() if isinstance(each.key, str))
            return sorted(each.name for each in named if not each.deleted)

    def delete(self, name: str) -> None:
        """Forgets a session, here and on disk; its handles raise UnknownSession from now on. Raises UnknownSession."""
        self.check_open()
        name = check_name(name)
        entry = self._memory.find(name)
        if entry is not None:
            with entry.lock:
                known = self._disk.delete(name) if self._disk else True
                entry.deleted = True
                self._memory.forget(entry)
        else:
            known = self._disk.delete(name) if self._disk else False
        if not known:
            raise UnknownSession(f"there is no session {name!r}")

    def encode(self, text: str) -> Session:
        """A text without a name: a handle on its ids, made from a stored text that it shares a long prefix with.

        A hash finds the candidates, the texts decide (sessions/content.py). The result is kept for the next text that
        begins like it, in the place of a nameless one that it continues.
        """
        self.check_open()
        text = check_text(text)
        key = self._memory.content.number()
        found, pin = self._memory.content.longest(text), Pin()
        entry = None if found is None else self._copy_of(found[0], key, pin)
        self._count("content misses" if entry is None else "content hits")
        if found is None or entry is None:
            made = self._add(key, *encode_record(self.engine, text))
            assert made is not None, "numbers are given out once"
            return made
        source, common = found
        continued = common >= entry.record.text.length
        session = Session(self, entry, pin)
        self._memory.put(entry, entry.record.bytes_shared)  # before the verifier can ask for it
        try:
            session.update(text)
        except BaseException:
            entry.deleted = True
            self._memory.forget(entry)
            raise
        if continued and isinstance(source.key, int) and not source.pins:
            self._memory.forget(source)
        self._memory.index(entry)
        self._memory.make_room()
        return session

    def stats(self) -> dict[str, Any]:
        """Counters since the store was opened, and what it holds."""
        with self._memory.lock:
            entries, held = list(self._memory.entries.values()), self._memory.bytes
        with self._lock:
            counts, changes, seconds = dict(self._counts), dict(self._changes), self._seconds
        return {
            "sessions": len(entries),
            "handles": sum(len(entry.pins) for entry in entries),
            "bytes": held,
            "changes": changes,
            "seconds": seconds,
            "counts": counts,
            "shadow": self._verifier.stats(),
            "shadow_error": self._verifier.error,
        }

    def close(self) -> None:
        """Ends the store and all its handles. What is on disk stays."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._verifier.close()
        if self._disk:
            self._disk.close()

    def __enter__(self) -> SessionStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what handles ask ----

    def check_open(self) -> None:
        if self._closed:
            raise ClosedSession("the session store was closed; open a new one")

    def begin(self, entry: Entry) -> Record:
        """The record to change: with a disk a copy, which counts only once it is written."""
        return entry.record.copy() if self._disk and isinstance(entry.key, str) else entry.record

    def commit(self, entry: Entry, record: Record) -> None:
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

    def observed(self, entry: Entry, changes: Counter[str], seconds: float, kept: int) -> None:
        """After a change that left the first `kept` characters: counters, memory, and the verifier."""
        with self._lock:
            self._changes.update(changes)
            self._seconds += seconds
        self._memory.resize(entry, kept)
        self._verifier.offer(entry)
        self._memory.make_room()

    def refresh(self, entry: Entry) -> None:
        """Reads a record again that another process has changed. Raises UnknownSession where it is gone, even where
        there is another of its name."""
        assert self._disk is not None
        loaded = self._disk.load(entry.name)
        if loaded is None or loaded[1].id != entry.stored.id:
            entry.deleted = True
            self._memory.forget(entry)
            raise UnknownSession(f"session {entry.name!r} was deleted by another process, or its data is damaged")
        entry.record, entry.stored = loaded
        entry.stale = False
        entry.ids = lambda: None
        self._memory.resize(entry, 0)
        self._memory.make_room()

    def fork(self, entry: Entry, name: str) -> Session:
        name = check_name(name)
        if self._find(name, wait=False) is not None:  # as this session's lock is held
            raise SessionError(f"there is a session {name!r} already; delete it, or choose another name")
        made = self._add(name, entry.record.copy(), f"as a fork of {entry.name!r}", parent=entry)
        if made is None:
            raise SessionError(f"there is a session {name!r} already; delete it, or choose another name")
        return made

    def release(self, entry: Entry, pin: Pin) -> None:
        with self._memory.lock:
            entry.pins.discard(pin)
            entry.used = time.monotonic()

    # ---- inside ----

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def _find(self, name: str, pin: Pin | None = None, *, wait: bool = True) -> Entry | None:
        """The entry, from memory or from disk, held by `pin`. Unless `wait`, one that is being changed is returned as
        it is."""
        entry = self._memory.find(name, pin)
        if entry is not None and self._is_there(entry, wait=wait):
            return entry
        loaded = self._disk.load(name) if self._disk else None
        if loaded is None:
            return None
        record, stored = loaded
        fresh = Entry(name, record, stored=stored)
        entry = self._memory.put(fresh, record.bytes_held, pin)
        if entry is fresh:
            self._count("loaded")
        self._memory.index(entry)
        return entry if self._is_there(entry, wait=wait) else None  # it may have been deleted meanwhile

    def _is_there(self, entry: Entry, *, wait: bool) -> bool:
        """Whether an entry of the memory is still to be used; reads it again if another process has changed it."""
        if self._is_stored(entry):
            return True
        if not entry.lock.acquire(blocking=wait):  # a change of this process is on its way
            return True
        try:
            if not entry.deleted and not self._is_stored(entry):
                entry.stale = True
                with contextlib.suppress(UnknownSession):
                    self.refresh(entry)
            return not entry.deleted
        finally:
            entry.lock.release()

    def _is_stored(self, entry: Entry) -> bool:
        """Whether the disk, if there is one, holds just this."""
        if self._disk is None:
            return True
        return not entry.stale and entry.stored is not None and self._disk.holds(entry.name, entry.stored)

    def _add(self, name: str | int, record: Record, opened: str, parent: Entry | None = None) -> Session | None:
        """A handle on a new session; None where the name was taken meanwhile."""
        family = Family() if parent is None else parent.family
        entry, pin = Entry(name, record, opened=opened, family=family), Pin()
        with entry.lock:
            if self._memory.put(entry, record.bytes_held if parent is None else record.bytes_shared, pin) is not entry:
                return None
            if self._disk and isinstance(name, str):
                try:
                    entry.stored = self._disk.create(name, record, parent.stored if parent else None)
                except BaseException as error:
                    entry.deleted = True
                    self._memory.forget(entry)
                    if isinstance(error, RevisionConflict):
                        return None
                    raise
        if parent is None:
            self._memory.index(entry)
            self._memory.make_room()
        return Session(self, entry, pin)

    def _copy_of(self, source: Entry, key: int, pin: Pin) -> Entry | None:
        """A nameless entry that begins as `source`, held by `pin`; None where that is being changed, or is no more."""
        if not source.lock.acquire(blocking=False):
            return None
        try:
            if source.deleted or source.stale:
                return None
            entry = Entry(key, source.record.copy(), opened=f"as a copy of {source.name!r}", family=source.family)
            entry.pins.add(pin)
            return entry
        finally:
            source.lock.release()

    def _distrust(self, entry: Entry, reason: str) -> Entry | None:
        """The session goes on by the reference, also where it left memory since and came back. Returns what is in
        memory of it now."""
        stored, pin = self._disk is not None and isinstance(entry.key, str), Pin()
        now = self._find(entry.name, pin) if stored else self._memory.find(entry.key, pin)
        if now is None or (now is not entry and not (stored and now.stored.id == entry.stored.id)):
            return None
        self._go_on_by_reference(now, reason)
        return now

    def _go_on_by_reference(self, entry: Entry, reason: str) -> None:
        with entry.lock:
            for attempt in reversed(range(ATTEMPTS)):
                if entry.stale:
                    with contextlib.suppress(UnknownSession):
                        self.refresh(entry)
                if entry.deleted or entry.record.distrust:
                    return
                record = self._by_reference(self.begin(entry), reason)
                try:
                    self.commit(entry, record)
                    self._memory.resize(entry, record.text.length)
                    self._memory.make_room()
                    break
                except RevisionConflict:  # another process was faster
                    if not attempt:
                        raise
        self._count("quarantined")

    def _by_reference(self, record: Record, reason: str) -> Record:
        """The record as the reference makes it, and for the reason given never otherwise from now on."""
        text = str(record.text)
        fresh = Record(record.leading, revision=record.revision + 1, distrust=reason)
        fresh.text = record.text
        if text:
            fresh.tokens.splice(0, 0, flagged(self.engine.encode_reference(text.encode()), 0), 0)
        return fresh


def _engine(tok: Any, policy: Policy) -> Engine:
    from toktier_jax.session_engine import TokenizerEngine
    from toktier_jax.tokenizer import Tokenizer

    if not isinstance(tok, Tokenizer):
        kind = f"{type(tok).__module__}.{type(tok).__name__}"
        raise InputError(f"sessions need a toktier_jax.Tokenizer or an Engine, not {kind}")
    return TokenizerEngine(tok, policy)
