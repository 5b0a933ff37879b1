"""Sessions in SQLite (WAL): a row for each chunk of text and block of tokens, so that an append writes what it changed.

What `create`, `save` or `delete` returned from survives the end of the process (`synchronous=NORMAL`; after a loss of
power the newest changes may be missing, but nothing is torn). Rows are checked when they are read: what does not fit
its checksum, or belongs to another tokenizer, is a counted miss, and the session begins anew.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from toktier_jax.errors import RevisionConflict, SessionError
from toktier_jax.sessions import rows
from toktier_jax.sessions.record import Record
from toktier_jax.sessions.rows import Stored

FILE = "sessions.sqlite"
BUSY_SECONDS = 30.0
VERSION = 1
LOG_PAGES = 384
"""Pages that the write-ahead log holds before they go to the file; each time costs a sync."""


class Disk:
    """One store's file. Thread-safe: one connection, one transaction at a time."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str, count: Callable[[str], object]) -> None:
        """`count` is told of misses: "foreign", "damaged", "damaged file". Raises SessionError where nothing can be
        written."""
        self._fingerprint, self._count = fingerprint, count
        self._lock = threading.Lock()
        self._path = Path(path) / FILE
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = self._open()
        except (OSError, sqlite3.Error) as error:
            raise SessionError(f"the session store {self._path.parent} cannot be written: {error}") from error

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            self._set_aside()
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_PAGES * 4096}")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.executescript(rows.SCHEMA)
            connection.execute(f"PRAGMA user_version = {VERSION}")  # fails where nothing can be written
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self) -> None:
        """A file that is no database any more is kept under another name."""
        self._count("damaged file")
        mark = f".damaged-{time.time_ns()}"
        for suffix in ("", "-wal", "-shm"):
            part = Path(f"{self._path}{suffix}")
            if part.exists():
                part.rename(f"{part}{mark}")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def names(self) -> list[str]:
        with self._reading():
            return [name for (name,) in self._connection.execute("SELECT name FROM sessions ORDER BY name")]

    def revision(self, name: str) -> int | None:
        """The stored revision of a session, None if it is not there."""
        with self._reading():
            row = self._connection.execute("SELECT revision FROM sessions WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def load(self, name: str) -> tuple[Record, Stored] | None:
        """The record of a session; None where there is none, or none that can be used, which is counted."""
        with self._lock:
            try:
                return rows.load(self._connection, self._fingerprint, name)
            except rows.Unusable as error:
                self._count(str(error))
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
                    raise SessionError(f"session {name!r} cannot be read: {error}") from error
                self._count("damaged")
            except (ValueError, TypeError, UnicodeDecodeError, IndexError):
                self._count("damaged")
        return None

    def create(self, name: str, record: Record, parent: Stored | None) -> Stored:
        """Writes a new session. Blocks that it shares with `parent` are written only once.

        A row of that name that cannot be used is replaced; raises RevisionConflict where there is one that can.
        """
        with self._writing(name):
            try:
                taken = rows.load(self._connection, self._fingerprint, name) is not None
            except (rows.Unusable, sqlite3.DatabaseError, ValueError, TypeError, IndexError):
                taken = False
            if taken:
                raise RevisionConflict(f"session {name!r} was made by another process; open it")
            rows.delete(self._connection, name)
            number = secrets.randbits(62)  # never again: who knows a session by its number must not find another
            stored = Stored(number, record.revision)
            shared = parent is not None and rows.share(self._connection, stored, record, parent)
            written = rows.write_rows(self._connection, stored, record, (1 << 62, 1 << 62) if shared else (0, 0))
            rows.write_head(self._connection, self._fingerprint, number, name, record, written)
        record.text.dirty = record.tokens.dirty = 1 << 62
        return Stored(number, record.revision, written)

    def save(self, name: str, record: Record, stored: Stored) -> Stored:
        """Writes what is different from `stored`. Raises RevisionConflict if the session was changed since."""
        with self._writing(name) as connection:
            row = connection.execute("SELECT id, revision FROM sessions WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise RevisionConflict(f"session {name!r} was deleted by another process; nothing was changed")
            if row != (stored.id, stored.revision):
                raise RevisionConflict(
                    f"session {name!r} was changed by another process (revision {row[1]}, here {stored.revision}); "
                    "nothing was changed: read it again and repeat the call"
                )
            written = rows.write_rows(self._connection, stored, record, (record.text.dirty, record.tokens.dirty))
            rows.write_head(connection, self._fingerprint, stored.id, name, record, written)
        record.text.dirty = record.tokens.dirty = 1 << 62
        return Stored(stored.id, record.revision, written)

    def delete(self, name: str) -> bool:
        """Whether there was such a session."""
        with self._writing(name):
            return rows.delete(self._connection, name)

    # ---- inside ----

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise SessionError(f"the session store {self._path.parent} cannot be read: {error}") from error

    @contextmanager
    def _writing(self, name: str) -> Iterator[sqlite3.Connection]:
        """A transaction, undone where anything is raised. SQLite's errors become SessionError."""
        with self._lock:
            connection = self._connection
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise SessionError(f"session {name!r} cannot be written: {error}; nothing was changed") from error
                raise
