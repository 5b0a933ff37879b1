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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from toktier_jax.errors import RevisionConflict, SessionError
from toktier_jax.sessions.pack import pack_tokens, unpack_tokens
from toktier_jax.sessions.record import Record

FILE = "sessions.sqlite"
BUSY_SECONDS = 30.0
VERSION = 1
LOG_PAGES = 512
"""Pages that the write-ahead log holds before they go to the file; each time costs a sync."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL, fingerprint TEXT NOT NULL,
    leading BLOB NOT NULL, resume INTEGER NOT NULL, distrust TEXT, chunks INTEGER NOT NULL, blocks INTEGER NOT NULL,
    sum BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, data BLOB NOT NULL, sum BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS links (
    session INTEGER NOT NULL, kind INTEGER NOT NULL, seq INTEGER NOT NULL, row INTEGER NOT NULL,
    gap INTEGER NOT NULL, sum BLOB NOT NULL,
    PRIMARY KEY (session, kind, seq)) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS links_by_row ON links (row);
"""
_CHUNK, _BLOCK = 0, 1


Row = tuple[Any, int, bytes]
"""A chunk or a block, the row that holds it, and its checksum."""

Rows = tuple[list[Row], list[Row]]


@dataclass(eq=False)
class Stored:
    """What the disk holds of a session: its chunks and its blocks, in order."""

    id: int
    revision: int
    rows: Rows = field(default_factory=lambda: ([], []))


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
            connection.executescript(_SCHEMA)
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
                return self._load(name)
            except _Unusable as error:
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
                taken = self._load(name) is not None
            except (_Unusable, sqlite3.DatabaseError, ValueError, TypeError, IndexError):
                taken = False
            if taken:
                raise RevisionConflict(f"session {name!r} was made by another process; open it")
            self._delete(name)
            number = secrets.randbits(62)  # never again: who knows a session by its number must not find another
            stored = Stored(number, record.revision)
            shared = parent is not None and self._share(stored, record, parent)
            rows = self._write_rows(stored, record, (1 << 62, 1 << 62) if shared else (0, 0))
            self._write_head(number, name, record, rows)
        record.text.dirty = record.tokens.dirty = 1 << 62
        return Stored(number, record.revision, rows)

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
            rows = self._write_rows(stored, record, (record.text.dirty, record.tokens.dirty))
            self._write_head(stored.id, name, record, rows)
        record.text.dirty = record.tokens.dirty = 1 << 62
        return Stored(stored.id, record.revision, rows)

    def delete(self, name: str) -> bool:
        """Whether there was such a session."""
        with self._writing(name):
            return self._delete(name)

    # ---- inside; with the lock held ----

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

    def _share(self, stored: Stored, record: Record, parent: Stored) -> bool:
        """Gives a child of the same record the parent's rows; False if the parent has changed since."""
        same = all(
            len(rows) == len(objects) and all(row[0] is each for row, each in zip(rows, objects, strict=True))
            for rows, objects in zip(parent.rows, (record.text.chunks, record.tokens.blocks), strict=True)
        )
        if same:
            query = "INSERT INTO links SELECT ?, kind, seq, row, gap, sum FROM links WHERE session = ?"
            self._connection.execute(query, (stored.id, parent.id))
            for mine, other in zip(stored.rows, parent.rows, strict=True):
                mine += other
        return same

    def _write_rows(self, stored: Stored, record: Record, dirty: tuple[int, int]) -> Rows:
        """Rows for chunks and blocks that have none yet, links for all from the first that may be another."""
        chunks, blocks = record.text.chunks, record.tokens.blocks
        first = min(dirty[1], len(blocks), len(stored.rows[_BLOCK]))
        bases = record.tokens.bases
        gaps = [
            bases[at] - (bases[at - 1] + int(blocks[at - 1].ends[-1]) if at else 0) for at in range(first, len(blocks))
        ]
        return (
            self._write_kind(stored, _CHUNK, chunks, min(dirty[0], len(chunks)), [0] * len(chunks)),
            self._write_kind(stored, _BLOCK, blocks, first, gaps),
        )

    def _write_kind(
        self, stored: Stored, kind: int, objects: Sequence[Any], first: int, gaps: Sequence[int]
    ) -> list[Row]:
        connection, old = self._connection, stored.rows[kind]
        first = min(first, len(old))
        if first == len(old) == len(objects):
            return old
        known = {id(each): (row, sum_) for each, row, sum_ in old[first:]}
        fresh: list[Row] = []
        for each in objects[first:]:
            found = known.pop(id(each), None)
            if found is None:
                data = each.encode() if kind == _CHUNK else pack_tokens(each)
                sum_ = _digest(data)
                found = connection.execute("INSERT INTO rows (data, sum) VALUES (?, ?)", (data, sum_)).lastrowid, sum_
            fresh.append((each, found[0] or 0, found[1]))
        links = [
            (stored.id, kind, at, row, gap, _link_digest(kind, at, row, gap, sum_))
            for at, ((_, row, sum_), gap) in enumerate(zip(fresh, gaps, strict=False), first)
        ]
        connection.execute("DELETE FROM links WHERE session = ? AND kind = ? AND seq >= ?", (stored.id, kind, first))
        connection.executemany("INSERT INTO links VALUES (?, ?, ?, ?, ?, ?)", links)
        connection.executemany(_DROP, [(row,) for row, _ in known.values()])
        return old[:first] + fresh

    def _write_head(self, number: int, name: str, record: Record, rows: Rows) -> None:
        values = (
            number,
            name,
            record.revision,
            self._fingerprint,
            np.array(record.leading, "<i4").tobytes(),
            record.resume,
            record.distrust,
            len(rows[0]),
            len(rows[1]),
        )
        total = _head_digest(values)
        self._connection.execute("INSERT OR REPLACE INTO sessions VALUES (?,?,?,?,?,?,?,?,?,?)", (*values, total))

    def _delete(self, name: str) -> bool:
        found = self._connection.execute("SELECT id FROM sessions WHERE name = ?", (name,)).fetchone()
        if found is None:
            return False
        rows = self._connection.execute("SELECT row FROM links WHERE session = ?", found).fetchall()
        self._connection.execute("DELETE FROM links WHERE session = ?", found)
        self._connection.execute("DELETE FROM sessions WHERE id = ?", found)
        self._connection.executemany(_DROP, rows)
        return True

    def _load(self, name: str) -> tuple[Record, Stored] | None:
        row = self._connection.execute("SELECT * FROM sessions WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        number, _, revision, fingerprint, leading, resume, distrust, chunks, blocks, total = row
        if fingerprint != self._fingerprint:
            raise _Unusable("foreign")
        query = (
            "SELECT l.seq, l.row, l.gap, l.sum, r.data, r.sum FROM links l LEFT JOIN rows r ON r.id = l.row "
            "WHERE l.session = ? AND l.kind = ? ORDER BY l.seq"
        )
        record = Record(tuple(np.frombuffer(leading, "<i4").tolist()), resume=resume, revision=revision)
        record.distrust = distrust
        stored = Stored(number, revision)
        gaps: list[int] = []
        for kind, count in ((_CHUNK, chunks), (_BLOCK, blocks)):
            found = self._connection.execute(query, (number, kind)).fetchall()
            if len(found) != count:
                raise _Unusable("damaged")
            gaps = []
            for at, (seq, row_id, gap, check, data, sum_) in enumerate(found):
                if seq != at or data is None or _digest(data) != sum_:
                    raise _Unusable("damaged")
                if check != _link_digest(kind, seq, row_id, gap, sum_):
                    raise _Unusable("damaged")
                each = data.decode() if kind == _CHUNK else unpack_tokens(data)
                stored.rows[kind].append((each, row_id, sum_))
                gaps.append(gap)
        if total != _head_digest(row[:-1]):
            raise _Unusable("damaged")
        _fill(record, stored, gaps)
        return record, stored


_DROP = "DELETE FROM rows WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM links WHERE row = ?1)"


class _Unusable(Exception):
    """A stored session that is not to be used; says how to count it."""


def _fill(record: Record, stored: Stored, gaps: Sequence[int]) -> None:
    """The record of the stored objects."""
    text, tokens = record.text, record.tokens
    for chunk, _, _ in stored.rows[_CHUNK]:
        text.chunks.append(chunk)
        text.chars.append(text.length)
        text.data.append(text.byte_length)
        text.length += len(chunk)
        text.byte_length += len(chunk.encode())
    end = 0
    for (block, _, _), gap in zip(stored.rows[_BLOCK], gaps, strict=True):
        tokens.blocks.append(block)
        tokens.firsts.append(tokens.count)
        tokens.bases.append(end + gap)
        tokens.count += len(block.ids)
        end += gap + int(block.ends[-1])
    text.dirty = tokens.dirty = 1 << 62


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()


def _link_digest(kind: int, seq: int, row: int, gap: int, sum_: bytes) -> bytes:
    return _digest(b"%d %d %d %d " % (kind, seq, row, gap) + sum_)


def _head_digest(values: Sequence[Any]) -> bytes:
    return _digest(repr(tuple(values)).encode("utf-8", "surrogatepass"))
