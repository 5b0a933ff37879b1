"""A record as rows of a database: writes what changed, reads and checks the rest. Transactions are the caller's.

A row holds a chunk of text or a block of tokens, and sessions that share it are linked to it. Everything has a
checksum.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from toktier_jax.sessions.pack import pack_tokens, unpack_tokens
from toktier_jax.sessions.record import Record

SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, revision INTEGER NOT NULL, fingerprint TEXT NOT NULL,
    leading BLOB NOT NULL, resume INTEGER NOT NULL, distrust TEXT, chunks INTEGER NOT NULL, blocks INTEGER NOT NULL,
    sum BLOB NOT NULL, UNIQUE (name, fingerprint)) STRICT;
CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, data BLOB NOT NULL, sum BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS links (
    session INTEGER NOT NULL, kind INTEGER NOT NULL, seq INTEGER NOT NULL, row INTEGER NOT NULL,
    gap INTEGER NOT NULL, sum BLOB NOT NULL,
    PRIMARY KEY (session, kind, seq)) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS links_by_row ON links (row);
"""
_BY_NAME = "sqlite_autoindex_sessions_1"
"""The index that UNIQUE (name, fingerprint) makes: sessions are found by it alone."""

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


def share(connection: sqlite3.Connection, stored: Stored, record: Record, parent: Stored) -> bool:
    """Gives a child of the same record the parent's rows; False if the parent is another now, here or on disk."""
    now = connection.execute("SELECT revision FROM sessions WHERE id = ?", (parent.id,)).fetchone()
    same = now == (parent.revision,) and all(
        len(rows) == len(objects) and all(row[0] is each for row, each in zip(rows, objects, strict=True))
        for rows, objects in zip(parent.rows, (record.text.chunks, record.tokens.blocks), strict=True)
    )
    if same:
        query = "INSERT INTO links SELECT ?, kind, seq, row, gap, sum FROM links WHERE session = ?"
        connection.execute(query, (stored.id, parent.id))
        for mine, other in zip(stored.rows, parent.rows, strict=True):
            mine += other
    return same


def write_rows(connection: sqlite3.Connection, stored: Stored, record: Record, dirty: tuple[int, int]) -> Rows:
    """Rows for chunks and blocks that have none yet, links for all from the first that may be another."""
    chunks, blocks = record.text.chunks, record.tokens.blocks
    first = min(dirty[1], len(blocks), len(stored.rows[_BLOCK]))
    bases = record.tokens.bases
    gaps = [bases[at] - (bases[at - 1] + int(blocks[at - 1].ends[-1]) if at else 0) for at in range(first, len(blocks))]
    return (
        _write_kind(connection, stored, _CHUNK, chunks, min(dirty[0], len(chunks)), [0] * len(chunks)),
        _write_kind(connection, stored, _BLOCK, blocks, first, gaps),
    )


def _write_kind(
    connection: sqlite3.Connection, stored: Stored, kind: int, objects: Sequence[Any], first: int, gaps: Sequence[int]
) -> list[Row]:
    old = stored.rows[kind]
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
            number = connection.execute("INSERT INTO rows (data, sum) VALUES (?, ?)", (data, sum_)).lastrowid
            assert number, "a row was inserted"
            found = number, sum_
        fresh.append((each, *found))
    links = [
        (stored.id, kind, at, row, gap, _link_digest(kind, at, row, gap, sum_))
        for at, ((_, row, sum_), gap) in enumerate(zip(fresh, gaps, strict=False), first)
    ]
    connection.execute("DELETE FROM links WHERE session = ? AND kind = ? AND seq >= ?", (stored.id, kind, first))
    connection.executemany("INSERT INTO links VALUES (?, ?, ?, ?, ?, ?)", links)
    connection.executemany(_DROP, [(row,) for row, _ in known.values()])
    return old[:first] + fresh


def write_head(
    connection: sqlite3.Connection, fingerprint: str, number: int, name: str, record: Record, rows: Rows
) -> None:
    values = (
        number,
        name,
        record.revision,
        fingerprint,
        np.array(record.leading, "<i4").tobytes(),
        record.resume,
        record.distrust,
        len(rows[0]),
        len(rows[1]),
    )
    total = _head_digest(values)
    connection.execute("INSERT OR REPLACE INTO sessions VALUES (?,?,?,?,?,?,?,?,?,?)", (*values, total))


def head(connection: sqlite3.Connection, fingerprint: str, name: str) -> tuple[int, int] | None:
    """Id and revision of a tokenizer's session, as they are stored: unchecked."""
    query = "SELECT id, revision FROM sessions WHERE name = ? AND fingerprint = ?"
    return connection.execute(query, (name, fingerprint)).fetchone()


def delete(connection: sqlite3.Connection, fingerprint: str, name: str) -> bool:
    found = head(connection, fingerprint, name)
    if found is None:
        return False
    number = found[:1]
    rows = connection.execute("SELECT row FROM links WHERE session = ?", number).fetchall()
    connection.execute("DELETE FROM links WHERE session = ?", number)
    connection.execute("DELETE FROM sessions WHERE id = ?", number)
    connection.executemany(_DROP, rows)
    return True


def names(connection: sqlite3.Connection, fingerprint: str) -> list[str]:
    """Of sessions that belong to `fingerprint` and whose first row is whole, in order."""
    found = connection.execute("SELECT * FROM sessions WHERE fingerprint = ? ORDER BY name", (fingerprint,))
    return [row[1] for row in found if row[-1] == _head_digest(row[:-1])]


class Damage(NamedTuple):
    """Names of sessions of all tokenizers: whose first row is damaged, and to whose first row the index does not lead
    (one that leads to no row at all included)."""

    heads: list[str]
    index: list[str]


def look_through(connection: sqlite3.Connection) -> Damage:
    """Compares all first rows, as the table has them, with their checksums and with the index."""
    entry = f"(SELECT id FROM sessions INDEXED BY {_BY_NAME} WHERE name = s.name AND fingerprint = s.fingerprint)"
    damage = Damage([], [])
    for *values, total, found in connection.execute(f"SELECT *, {entry} FROM sessions s NOT INDEXED"):
        if total != _head_digest(values):
            damage.heads.append(values[1])
        if found != values[0]:
            damage.index.append(values[1])
    rowless = (
        f"SELECT name FROM sessions i INDEXED BY {_BY_NAME} "
        "WHERE NOT EXISTS (SELECT 1 FROM sessions s NOT INDEXED WHERE s.id = i.id)"
    )
    damage.index.extend(name for (name,) in connection.execute(rowless))
    return damage


def make_index(connection: sqlite3.Connection) -> None:
    """Makes the index anew, from the first rows. Raises DatabaseError where pages are damaged: to free a page that two
    trees lead to would damage the other."""
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(found)
    connection.execute("REINDEX sessions")


class Raw(NamedTuple):
    """A session as the disk has it, unchecked: its first row, and for chunks and blocks each link with its row."""

    head: tuple[Any, ...]
    links: tuple[list[Any], list[Any]]


def read(connection: sqlite3.Connection, fingerprint: str, name: str) -> Raw | None:
    """A tokenizer's session; None where nobody has one of that name. Raises Unusable where only other tokenizers have
    one."""
    own = "SELECT * FROM sessions WHERE name = ? AND fingerprint = ?"
    row = connection.execute(own, (name, fingerprint)).fetchone()
    if row is None:
        if connection.execute("SELECT 1 FROM sessions WHERE name = ?", (name,)).fetchone():
            raise Unusable("foreign")
        return None
    query = (
        "SELECT l.seq, l.row, l.gap, l.sum, r.data, r.sum FROM links l LEFT JOIN rows r ON r.id = l.row "
        "WHERE l.session = ? AND l.kind = ? ORDER BY l.seq"
    )
    chunks, blocks = (connection.execute(query, (row[0], kind)).fetchall() for kind in (_CHUNK, _BLOCK))
    return Raw(row, (chunks, blocks))


def restore(raw: Raw) -> tuple[Record, Stored]:
    """The session that was read. Raises Unusable, or what unpacking raises, for a damaged one."""
    number, _, revision, _, leading, resume, distrust, chunks, blocks, total = raw.head
    record = Record(tuple(np.frombuffer(leading, "<i4").tolist()), resume=resume, revision=revision)
    record.distrust = distrust
    stored = Stored(number, revision)
    gaps: list[int] = []
    for kind, count in ((_CHUNK, chunks), (_BLOCK, blocks)):
        found = raw.links[kind]
        if len(found) != count:
            raise Unusable("damaged")
        gaps = []
        for at, (seq, row_id, gap, check, data, sum_) in enumerate(found):
            if seq != at or data is None or _digest(data) != sum_:
                raise Unusable("damaged")
            if check != _link_digest(kind, seq, row_id, gap, sum_):
                raise Unusable("damaged")
            each = data.decode() if kind == _CHUNK else unpack_tokens(data)
            stored.rows[kind].append((each, row_id, sum_))
            gaps.append(gap)
    if total != _head_digest(raw.head[:-1]):
        raise Unusable("damaged")
    _fill(record, stored, gaps)
    return record, stored


_DROP = "DELETE FROM rows WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM links WHERE row = ?1)"


class Unusable(Exception):
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
