"""Sessions in SQLite (WAL): a row for each chunk of text and block of tokens, so that an append writes what it changed.

What `create`, `save` or `delete` returned from survives the end of the process (`synchronous=NORMAL`; after a loss of
power the newest changes may be missing, but nothing is torn). Rows are checked when they are read, and what sessions
are found by when the store is opened (some 10 us of each): what does not fit its checksum is a counted miss, and the
session begins anew; an index that does not fit is counted, and made anew. Where SQLite's own pages are damaged, it may
be that nothing can be written before the file is moved away, which the error says. Tokenizers have names of their own:
that another one has a session of the name is counted, and changes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from toktier_jax.errors import ClosedSession, RevisionConflict, SessionError
from toktier_jax.sessions import rows
from toktier_jax.sessions.record import Record
from toktier_jax.sessions.rows import Stored

FILE = "sessions.sqlite"
BUSY_SECONDS = 30.0
VERSION = 2
APPLICATION = 0x746B6A78
"""SQLite's application_id of a store: a file with tables, another one and no version is another program's."""

T = TypeVar("T")

_log = logging.getLogger(__name__)

LOG_PAGES = 384
"""Pages that the write-ahead log holds before they go to the file; each time costs a sync."""


class Disk:
    """One store's file. Thread-safe: one connection, one transaction at a time."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str, count: Callable[[str], object]) -> None:
        """`count` is told of misses: "foreign", "damaged", "damaged file". Raises SessionError where nothing can be
        written."""
        self._fingerprint, self._count = fingerprint, count
        self._lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._path = Path(path) / FILE
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _check_inherited(self._path)
            self._connection = self._open()
            self._file = _identity(self._path)
            _disks.add(self)
            try:
                self._look_through()
            except BaseException:
                self.close()
                raise
        except (OSError, sqlite3.Error) as error:
            raise SessionError(f"the session store {self._path.parent} cannot be written: {error}") from error

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the second: of a message that cites the file
            if isinstance(error, sqlite3.OperationalError):
                raise
        only_one = sqlite3.connect(f"{self._path}.lock", timeout=BUSY_SECONDS, isolation_level=None)
        with contextlib.closing(only_one):
            only_one.execute("BEGIN EXCLUSIVE")  # of the processes that find the damage, one mends it
            try:
                return self._connect()
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
            self._set_aside()
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        if _size(self._path) == 0 and _size(Path(f"{self._path}-wal")):  # the log of a file that was emptied
            raise sqlite3.DatabaseError(f"{self._path} is empty, and its log is not")
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None)
        connection.text_factory = _decoded
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            tables = connection.execute("SELECT 1 FROM sqlite_master").fetchone()
            if version == 0 and tables and application != APPLICATION:
                raise SessionError(f"{self._path} is a database of another program; use another folder")
            if version not in (0, VERSION):
                raise SessionError(
                    f"{self._path} is a session store of version {version}, and this package writes version {VERSION}; "
                    "use the package that wrote it, or another folder"
                )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_PAGES * 4096}")
            connection.execute("PRAGMA cell_size_check = ON")
            # At once, so that nobody sees tables without their version
            own = "SELECT count(*) FROM sqlite_master WHERE name IN ('sessions', 'rows', 'links', 'links_by_row')"
            there = version == VERSION and connection.execute(own).fetchone() == (4,)
            mark = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
            make = "" if there else f"{rows.SCHEMA}; {mark}"
            connection.executescript(f"BEGIN IMMEDIATE; {make} COMMIT")  # fails where nothing can be written
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
        _log.warning("%s is damaged: it is now %s%s, and the store begins anew", self._path, self._path.name, mark)

    def _look_through(self) -> None:
        """Counts and tells damage that no read of a session would meet, as it keeps the session from being found. An
        index that is damaged is made anew."""
        try:
            damage = self._reading(rows.look_through)
        except SessionError as error:
            if not isinstance(error.__cause__, sqlite3.Error) or not _is_damage(error.__cause__):
                raise
            self._count("damaged")
            _log.warning("%s is damaged: %s", self._path, error)
            damage = rows.Damage([], [""])
        for name in damage.heads:
            self._found_damaged(name)
        if damage.index:
            for name in set(damage.index) - {"", *damage.heads}:
                self._count("damaged")
                _log.warning("%s: the index entry of session %r is damaged", self._path, name)
            try:
                self._writing("", rows.make_index)
            except SessionError as error:
                _log.warning("%s: its index is damaged and cannot be made anew: %s", self._path, error)

    def _found_damaged(self, name: str) -> None:
        self._count("damaged")
        _log.warning("%s: the data of session %r is damaged, and treated as absent", self._path, name)

    def close(self) -> None:
        """Every other call raises ClosedSession from now on."""
        if os.getpid() != self._process:  # SQLite's manual: an inherited connection is not even to be closed
            return
        with self._lock:
            self._closed = True
            self._connection.close()

    def names(self) -> list[str]:
        """Of this tokenizer's sessions, in order. Of damage it sees only what is in a session's first row."""
        return self._reading(lambda connection: rows.names(connection, self._fingerprint))

    def holds(self, name: str, stored: Stored) -> bool:
        """Whether the session of that name is this one at this revision."""
        found = self._reading(lambda connection: rows.head(connection, self._fingerprint, name))
        return found == (stored.id, stored.revision)

    def load(self, name: str) -> tuple[Record, Stored] | None:
        """The record of a session; None where there is none, or none that can be used, which is counted."""
        try:
            raw = self._reading(lambda connection: self._read(connection, name))
            return None if raw is None else _restored(raw)  # others may use the file meanwhile
        except rows.Unusable as error:
            if str(error) == "damaged":
                self._found_damaged(name)
            else:
                self._count(str(error))
        return None

    def create(self, name: str, record: Record, parent: Stored | None) -> Stored:
        """Writes a new session. Blocks that it shares with `parent` are written only once.

        A row of that name that cannot be used is replaced; raises RevisionConflict where there is one that can.
        """

        def write(connection: sqlite3.Connection) -> Stored:
            try:
                raw = self._read(connection, name)
                taken = raw is not None and bool(_restored(raw))
            except rows.Unusable:
                taken = False
            if taken:
                raise RevisionConflict(f"session {name!r} was made by another process; open it")
            rows.delete(connection, self._fingerprint, name)
            number = secrets.randbits(62)  # never again: who knows a session by its number must not find another
            stored = Stored(number, record.revision)
            shared = parent is not None and rows.share(connection, stored, record, parent)
            written = rows.write_rows(connection, stored, record, (1 << 62, 1 << 62) if shared else (0, 0))
            rows.write_head(connection, self._fingerprint, number, name, record, written)
            return Stored(number, record.revision, written)

        stored = self._writing(name, write)
        record.text.dirty = record.tokens.dirty = 1 << 62
        return stored

    def save(self, name: str, record: Record, stored: Stored) -> Stored:
        """Writes what is different from `stored`. Raises RevisionConflict if the session was changed since."""

        def write(connection: sqlite3.Connection) -> rows.Rows:
            found = rows.head(connection, self._fingerprint, name)
            if found is None or found[0] != stored.id:
                raise RevisionConflict(f"session {name!r} was deleted by another process; nothing was changed")
            if found[1] != stored.revision:
                raise RevisionConflict(
                    f"session {name!r} was changed by another process (revision {found[1]}, here {stored.revision}); "
                    "nothing was changed: read it again and repeat the call"
                )
            written = rows.write_rows(connection, stored, record, (record.text.dirty, record.tokens.dirty))
            rows.write_head(connection, self._fingerprint, stored.id, name, record, written)
            return written

        written = self._writing(name, write)
        record.text.dirty = record.tokens.dirty = 1 << 62
        return Stored(stored.id, record.revision, written)

    def delete(self, name: str) -> bool:
        """Whether there was such a session."""
        return self._writing(name, lambda connection: rows.delete(connection, self._fingerprint, name))

    # ---- inside ----

    def _read(self, connection: sqlite3.Connection, name: str) -> rows.Raw | None:
        """As rows.read. Raises Unusable where the data is wrong; what is wrong with reading it passes."""
        try:
            return rows.read(connection, self._fingerprint, name)
        except sqlite3.Error as error:
            if _is_damage(error):
                raise rows.Unusable("damaged") from error
            raise

    # Work is handed in, and no context manager handed out: one that an interrupt leaves suspended would hold the lock,
    # and its transaction, for as long as somebody keeps the traceback.

    def _reading(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """`work` on the data as it is at one moment, whoever writes. SQLite's errors become SessionError."""
        self._check_process()
        with self._lock:
            try:
                connection = self._ready()
                try:
                    connection.execute("BEGIN")
                    return work(connection)
                finally:
                    _roll_back(connection)
            except sqlite3.Error as error:
                raise SessionError(f"the session store {self._path.parent} cannot be read: {error}") from error

    def _writing(self, name: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """`work` in a transaction, undone where anything is raised. SQLite's errors become SessionError."""
        self._check_process()
        with self._lock:
            connection = self._connection
            try:
                self._ready().execute("BEGIN IMMEDIATE")
                if _identity(self._path) != self._file:  # SQLite would go on writing to what nobody can open any more
                    raise SessionError(
                        f"session {name!r} cannot be written: {self._path} was removed or replaced while the store was "
                        "open; nothing was changed: open a new store"
                    )
                done = work(connection)
                connection.execute("COMMIT")
                return done
            except BaseException as error:
                _roll_back(connection)
                if isinstance(error, sqlite3.Error):
                    move = f": close the store and move {self._path} away" if _is_damage(error) else ""
                    raise SessionError(
                        f"session {name!r} cannot be written: {error}; nothing was changed{move}"
                    ) from error
                raise

    def _ready(self) -> sqlite3.Connection:
        """The connection, outside a transaction; with the lock held."""
        if self._closed:
            raise ClosedSession("the session store was closed; open a new one")
        _roll_back(self._connection)  # an interrupt may have come between an error and this
        return self._connection

    def _check_process(self) -> None:
        if os.getpid() != self._process:  # SQLite's locks are not inherited: what a child writes can be lost
            raise _forked(self._path)


_disks: weakref.WeakSet[Disk] = weakref.WeakSet()


def _check_inherited(path: Path) -> None:
    """SQLite counts a file's locks by process: what a child writes to one that its parent had open can be lost."""
    file = _identity(path)
    for disk in _disks:
        if disk._process != os.getpid() and not disk._closed and file is not None and disk._file == file:
            raise _forked(path)


def _forked(path: Path) -> SessionError:
    return SessionError(
        f"this process was forked while the session store {path.parent} was open; close stores before a fork, or start "
        "processes by spawn"
    )


def _roll_back(connection: sqlite3.Connection) -> None:
    """Ends a transaction, if there is one; damage ends it, too."""
    with contextlib.suppress(sqlite3.Error):  # it is closed, or this is tried again before the next
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _is_damage(error: sqlite3.Error) -> bool:
    # A schema that is damaged has lost a table or a column
    return type(error) is sqlite3.DatabaseError or "malformed" in str(error) or str(error).startswith("no such ")


def _restored(raw: rows.Raw) -> tuple[Record, Stored]:
    """As rows.restore. Raises Unusable whatever is wrong with the data."""
    try:
        return rows.restore(raw)
    except (ValueError, TypeError, IndexError) as error:
        raise rows.Unusable("damaged") from error


def _size(path: Path) -> int | None:
    """Bytes of a file; None where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file this is, whatever its name; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _decoded(data: bytes) -> str:
    """A column's text. What is damaged must not keep others from being read: its checksum tells."""
    return data.decode("utf-8", "replace")
