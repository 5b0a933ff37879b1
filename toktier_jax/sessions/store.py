"""SessionStore: many sessions by name, in memory and, with a path, on disk. Opens, finds, forks, forgets them.

Checks arguments, encodes new texts, counts, and has changes verified; where a session is kept, entries.py knows.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from toktier_jax.errors import ClosedSession, InputError, SessionError, UnknownSession
from toktier_jax.sessions.arguments import check_folder, check_name, check_number, check_text
from toktier_jax.sessions.disk import Disk
from toktier_jax.sessions.engine import Engine, completed, is_engine
from toktier_jax.sessions.entries import Entries
from toktier_jax.sessions.entry import Entry, Pin
from toktier_jax.sessions.full import encode_by_reference, encode_record
from toktier_jax.sessions.memory import Memory
from toktier_jax.sessions.policy import Policy
from toktier_jax.sessions.record import Record
from toktier_jax.sessions.session import Session
from toktier_jax.sessions.shadow import Mismatch, ShadowVerifier


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
        truncation, padding or BPE dropout, SessionError where `path` cannot be used.
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
        self._process = os.getpid()
        self._verifier = ShadowVerifier(
            self.engine, shadow, folder=quarantine, on_mismatch=on_mismatch, distrust=self._distrust
        )
        self._disk = None if path is None else Disk(path, self.engine.info.fingerprint, self._count)
        self.entries = Entries(self._memory, self._disk, self._count)

    # ---- sessions ----

    def open(self, name: str, text: str | None = None) -> Session:
        """The session of that name, made if it is new. `text`: what its text shall be."""
        self.check_open()
        name = check_name(name)
        pin = Pin()
        entry = self.entries.find(name, pin)
        if entry is None:
            record, opened = encode_record(self.engine, "" if text is None else check_text(text))
            made = self.entries.add(name, record, opened, pin)
            if made is not None:
                return Session(self, made, pin)
            entry = self.entries.find(name, pin)  # another thread was faster
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
        entry = self.entries.find(name, pin)
        if entry is None:
            raise UnknownSession(f"there is no session {name!r}")
        return Session(self, entry, pin)

    def list(self) -> list[str]:
        """Names, in order; on disk those of this tokenizer alone."""
        self.check_open()
        return self.entries.names()

    def delete(self, name: str) -> None:
        """Forgets a session, here and on disk; its handles raise UnknownSession from now on. Raises UnknownSession."""
        self.check_open()
        name = check_name(name)
        if not self.entries.delete(name):
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
        entry = None if found is None else self.entries.copy_of(found[0], key, pin)
        self._count("content misses" if entry is None else "content hits")
        if found is None or entry is None:
            made = self.entries.add(key, *encode_record(self.engine, text), pin)
            assert made is not None, "numbers are given out once"
            return Session(self, made, pin)
        source, common = found
        continued = common >= entry.record.text.length
        session = Session(self, entry, pin)
        try:
            session.update(text)
        except BaseException:
            entry.deleted = True
            self._memory.forget(entry)
            raise
        if continued and isinstance(source.key, int):
            self._memory.forget_idle(source)
        self._memory.index(entry)
        self._memory.make_room()
        return session

    def stats(self) -> dict[str, Any]:
        """Counters since the store was opened, and what it holds."""
        self._check_process()
        with self._memory.lock:
            sessions, held = len(self._memory.entries), self._memory.bytes
            handles = sum(1 for entry in self._memory.entries.values() for _ in entry.pins)
        with self._lock:
            counts, changes, seconds = dict(self._counts), dict(self._changes), self._seconds
        return {
            "sessions": sessions,
            "handles": handles,
            "bytes": held,
            "changes": changes,
            "seconds": seconds,
            "counts": counts,
            "shadow": self._verifier.stats(),
            "shadow_error": self._verifier.error,
        }

    def close(self) -> None:
        """Ends the store and all its handles. What is on disk stays."""
        if self.inherited:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._verifier.close()
        finally:
            self.entries.close()

    def __enter__(self) -> SessionStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what handles ask ----

    @property
    def inherited(self) -> bool:
        """Whether this process was forked while the store was open: its locks may be held for ever."""
        return os.getpid() != self._process

    def check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise ClosedSession("the session store was closed; open a new one")

    def observed(self, entry: Entry, changes: Counter[str], seconds: float, kept: int) -> None:
        """After a change that left the first `kept` characters: counters, memory, and the verifier."""
        with self._lock:
            self._changes.update(changes)
            self._seconds += seconds
        self._memory.resize(entry, kept)
        self._verifier.offer(entry)
        self._memory.make_room()

    def fork(self, entry: Entry, name: str) -> Session:
        name, pin = check_name(name), Pin()
        made = None
        if self.entries.find(name, wait=False) is None:  # as this session's lock is held
            made = self.entries.add(name, entry.record.copy(), f"as a fork of {entry.name!r}", pin, parent=entry)
        if made is None:
            raise SessionError(f"there is a session {name!r} already; delete it, or choose another name")
        return Session(self, made, pin)

    # ---- inside ----

    def _check_process(self) -> None:
        if self.inherited:
            raise SessionError(
                "this process was forked while the session store was open; make a new one here, and for a folder close "
                "stores before a fork or start processes by spawn"
            )

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def _distrust(self, entry: Entry, reason: str) -> Entry | None:
        """The session goes on by the reference, also where it left memory since and came back. Returns what is in
        memory of it now."""
        pin = Pin()
        now = self.entries.current(entry, pin)
        if now is None:
            return None

        def by_reference(record: Record) -> Record | None:
            return None if record.distrust else encode_by_reference(self.engine, record, reason)

        with now.lock:
            remade = self.entries.remake(now, by_reference)
        if remade:
            self._count("quarantined")
        return now


def _engine(tok: Any, policy: Policy) -> Engine:
    from toktier_jax.session_engine import TokenizerEngine
    from toktier_jax.tokenizer import Tokenizer

    if not isinstance(tok, Tokenizer):
        kind = f"{type(tok).__module__}.{type(tok).__name__}"
        raise InputError(f"sessions need a toktier_jax.Tokenizer or an Engine, not {kind}")
    return TokenizerEngine(tok, policy)
