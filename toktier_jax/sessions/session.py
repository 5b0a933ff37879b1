"""Session: a handle on one record of a store. Checks arguments, takes the record's lock, and asks the repair."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from typing import Any, Protocol

import numpy as np

from toktier_jax.errors import ClosedSession, InputError, UnknownSession
from toktier_jax.sessions.arguments import check_offset, check_text
from toktier_jax.sessions.engine import Engine, Window
from toktier_jax.sessions.entries import Entries
from toktier_jax.sessions.entry import Entry, Pin
from toktier_jax.sessions.patch import Patch
from toktier_jax.sessions.record import Record
from toktier_jax.sessions.repair import repair


class Host(Protocol):
    """What a handle asks of its store."""

    engine: Engine
    entries: Entries

    @property
    def inherited(self) -> bool: ...
    def check_open(self) -> None: ...
    def observed(self, entry: Entry, changes: Counter[str], seconds: float, kept: int) -> None: ...
    def fork(self, entry: Entry, name: str) -> Session: ...


class Session:
    """A text and its ids, kept equal to a full encode less the template ids after the text. Thread-safe.

    Every method raises ClosedSession after `close` and UnknownSession where the session was deleted. A handle that is
    dropped is as good as closed.
    """

    def __init__(self, host: Host, entry: Entry, pin: Pin) -> None:
        """Use `SessionStore.open` or `get`."""
        self._host = host
        self._entry = entry
        self._pin: Pin | None = pin

    @property
    def name(self) -> str:
        return self._entry.name

    def __repr__(self) -> str:
        record = self._entry.record
        return f"Session({self._entry.name!r}, {record.text.length} characters, revision {record.revision})"

    # ---- changes ----

    def append(self, text: str) -> Patch:
        """Adds text at the end. Costs in proportion to it."""
        text = check_text(text)
        with self._lock:
            length = self._current().text.length
            return self._change(length, length, text)

    def update(self, text: str) -> Patch:
        """Makes the text this one, by what it does not have in common with it at its start and its end."""
        text = str.__str__(text) if isinstance(text, str) else check_text(text)
        with self._lock:
            old = self._current().text
            start = old.common_prefix(text)
            if start == old.length:
                return self._change(start, start, check_text(text[start:], start))
            most = min(old.length, len(text)) - start
            tail = old.common_suffix(text, most) if most else 0
            return self._change(start, old.length - tail, check_text(text[start : len(text) - tail], start))

    def replace(self, start: int, stop: int, text: str) -> Patch:
        """Puts `text` in the place of characters [start, stop)."""
        text = check_text(text)
        with self._lock:
            length = self._current().text.length
            start, stop = self._offset("start", start, length), self._offset("stop", stop, length)
            if start > stop:
                raise InputError(f"start {start} is after stop {stop}; nothing was changed")
            return self._change(start, stop, text)

    def truncate(self, n: int) -> Patch:
        """Keeps the first `n` characters."""
        with self._lock:
            length = self._current().text.length
            return self._change(self._offset("n", n, length), length, "")

    def _offset(self, name: str, value: Any, length: int) -> int:
        """As check_offset; RevisionConflict comes first where the offset is of a text that another process made."""
        try:
            return check_offset(name, value, length)
        except InputError:
            self._host.entries.confirm(self._entry)
            raise

    def _change(self, start: int, stop: int, text: str) -> Patch:
        began = time.perf_counter()
        entry, host = self._entry, self._host
        if start == stop and not text:
            host.entries.confirm(entry)
            empty = np.zeros(0, np.int32)
            return Patch(entry.record.count, empty, 0, entry.record.revision)
        entry.ids = lambda: None
        record = host.entries.begin(entry)
        changes: Counter[str] = Counter()
        try:
            patch = repair(record, host.engine, start, stop, text, changes)
        finally:
            entry.counts.update(changes)
        host.entries.commit(entry, record)
        host.observed(entry, changes, time.perf_counter() - began, start)
        return patch

    # ---- views ----

    @property
    def ids(self) -> np.ndarray:
        """int32 [n], read-only: a snapshot of this revision, template ids before the text included."""
        with self._lock:
            record = self._current()
            held = self._entry.ids()
            if held is None:
                held = record.tokens.ids(record.leading)
                held.flags.writeable = False
                self._entry.ids = weakref.ref(held)
            return held

    @property
    def byte_spans(self) -> np.ndarray:
        """int64 [n, 2]: untrimmed bytes of the text's UTF-8; template ids are at (0, 0)."""
        record = self._snapshot()
        tokens = record.tokens.get(0, record.tokens.count)
        spans = np.zeros((record.count, 2), np.int64)
        spans[len(record.leading) :] = np.stack([tokens.starts, tokens.ends], axis=1)
        spans.flags.writeable = False
        return spans

    @property
    def char_spans(self) -> np.ndarray:
        """int64 [n, 2]: the reference's offsets. Computed for the whole text when asked for."""
        record = self._snapshot()
        tokens = record.tokens.get(0, record.tokens.count)
        none = np.zeros(0, np.int32)
        window = Window(tokens.ids, tokens.starts, tokens.ends, none, 0)
        spans = self._host.engine.char_spans(str(record.text).encode(), window)
        spans.flags.writeable = False
        return spans

    @property
    def text(self) -> str:
        """The whole text, joined anew each time."""
        return str(self._snapshot().text)

    @property
    def revision(self) -> int:
        """The number of changes so far."""
        with self._lock:
            return self._current().revision

    def __len__(self) -> int:
        """Number of ids."""
        with self._lock:
            return self._current().count

    def __bool__(self) -> bool:
        """True, also where there are no ids yet."""
        return True

    def explain(self) -> dict[str, Any]:
        """How changes of this session are made, how often each way was taken, and why it would ever be slow."""
        info = self._host.engine.info
        with self._lock:
            record = self._current()
            return {
                "name": self._entry.name,
                "revision": record.revision,
                "characters": record.text.length,
                "ids": record.count,
                "way": "full" if record.distrust else info.way,
                "reason": record.distrust or info.reason,
                "resume": record.resume,
                "opened": self._entry.opened,
                "changes": dict(self._entry.counts),
            }

    # ---- life ----

    def fork(self, name: str) -> Session:
        """A new session that begins as this one; both share all blocks until they differ."""
        with self._lock:
            self._current()
            return self._host.fork(self._entry, name)

    def close(self) -> None:
        """Ends the handle, not the record."""
        pin, self._pin = self._pin, None
        if pin is not None and not self._host.inherited:
            self._host.entries.release(self._entry, pin)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> Session:
        raise TypeError("a Session is a handle, and no copy would hold the record: get another from the store")

    @property
    def _lock(self) -> threading.RLock:
        """The record's. In a forked child it may be held for ever: that is asked first."""
        self._host.check_open()
        return self._entry.lock

    def _current(self) -> Record:
        """The record, with its lock held."""
        self._host.check_open()
        if self._pin is None:
            raise ClosedSession(f"session {self._entry.name!r}: this handle was closed; open it again")
        if self._entry.deleted:
            raise UnknownSession(f"session {self._entry.name!r} was deleted")
        if self._entry.stale:
            self._host.entries.refresh(self._entry)
        self._entry.used = time.monotonic()
        return self._entry.record

    def _snapshot(self) -> Record:
        with self._lock:
            return self._current().copy()
