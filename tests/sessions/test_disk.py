"""The store on disk: restarts, damage, conflicts, a full disk, and processes that are killed."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import shutil
import signal
import sqlite3
import string
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from tests.sessions.standin import StandIn, expected
from toktier_jax import RevisionConflict, SessionStore, UnknownSession
from toktier_jax.errors import SessionError
from toktier_jax.sessions.disk import FILE, Disk

ROOT = Path(__file__).resolve().parents[2]


def test_a_restart_finds_everything(tmp_path: Path) -> None:
    text = "word 123 " * 9000
    with SessionStore(StandIn(), tmp_path) as store:
        session = store.open("a", text)
        session.append("more")
        session.replace(40_000, 40_010, "é <|x|> ")
        child = session.fork("b")
        child.truncate(100)
        store.open("gone", "x")
        store.delete("gone")
        want, revision = session.text, session.revision
    with SessionStore(StandIn(), tmp_path) as store:
        assert store.list() == ["a", "b"]
        session = store.get("a")
        assert (session.text, session.revision) == (want, revision)
        assert np.array_equal(session.ids, expected(store.engine, want))
        assert np.array_equal(store.get("b").ids, expected(store.engine, want[:100]))
        session.append(" on")
        assert np.array_equal(session.ids, expected(store.engine, want + " on"))


def test_an_append_writes_its_end_alone(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as store:
        session = store.open("a", "word " * 100_000)
        size = _rows(tmp_path)
        session.append("more")
        assert _rows(tmp_path) <= size + 2
        session.replace(250_000, 250_001, "x")
        assert _rows(tmp_path) <= size + 6
        session.fork("b")
        assert _rows(tmp_path) <= size + 6
        store.delete("a")
        store.delete("b")
        assert _rows(tmp_path) == 0


def test_size_on_disk(tmp_path: Path) -> None:
    text = "some words 123 and more\n" * 20_000
    with SessionStore(StandIn(), tmp_path) as store:
        session = store.open("a", text)
        for _ in range(200):
            session.append("a few more words " * 20)
        size, tokens = len(session.text.encode()), len(session)
    held = sum(part.stat().st_size for part in tmp_path.iterdir())
    assert held <= 2 * size + 12 * tokens


def test_another_tokenizer_is_a_counted_miss(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as store:
        store.open("a", "abc")
    with SessionStore(StandIn(fingerprint="other"), tmp_path) as store:
        with pytest.raises(UnknownSession):
            store.get("a")
        assert store.stats()["counts"]["foreign"] == 1
        assert np.array_equal(store.open("a", "abcd").ids, expected(store.engine, "abcd"))
    with SessionStore(StandIn(fingerprint="other"), tmp_path) as store:
        assert store.get("a").text == "abcd"
        store.open("b", "x")
    with SessionStore(StandIn(), tmp_path) as store:
        assert (store.list(), store.get("a").text) == (["a"], "abc")
        with pytest.raises(UnknownSession):
            store.delete("b")
        store.delete("a")
    with SessionStore(StandIn(fingerprint="other"), tmp_path) as store:
        assert store.list() == ["a", "b"]


def test_two_stores_on_one_session(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as one, SessionStore(StandIn(), tmp_path) as two:
        mine, other = one.open("a", "abc "), two.open("a")
        mine.append("def ")
        with pytest.raises(RevisionConflict):
            other.append("ghi ")
        assert other.text == "abc def "
        other.append("ghi ")
        with pytest.raises(RevisionConflict):
            mine.truncate(0)
        assert one.open("a").text == "abc def ghi "
        two.delete("a")
        with pytest.raises(RevisionConflict):
            mine.append("x")
        with pytest.raises(UnknownSession):
            mine.append("x")


def test_a_fork_of_what_another_store_has_changed(tmp_path: Path) -> None:
    for text, other in (("abc def ", "xyz"), ("word 123 " * 9000, "short"), ("short", "word 123 " * 9000)):
        with SessionStore(StandIn(), tmp_path) as one, SessionStore(StandIn(), tmp_path) as two:
            mine = one.open("a", text)
            two.open("a", other)
            child = mine.fork("b")
            assert child.text == text
            with SessionStore(StandIn(), tmp_path) as three:
                assert three.get("b").text == text
            child.append("more")
        with SessionStore(StandIn(), tmp_path) as store:
            assert (store.get("a").text, store.get("b").text) == (other, text + "more")
            assert np.array_equal(store.get("b").ids, expected(store.engine, text + "more"))
            store.delete("a")
            store.delete("b")


def test_what_another_store_made_anew_is_seen(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as one, SessionStore(StandIn(), tmp_path) as two:
        one.open("a", "abc").close()
        two.delete("a")
        two.open("a", "def")
        assert one.get("a").text == one.open("a").text == "def"


def test_what_another_store_deleted_is_opened_anew(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as one, SessionStore(StandIn(), tmp_path) as two:
        old = one.open("a", "abc")
        two.delete("a")
        with pytest.raises(UnknownSession):
            one.get("a")
        assert one.open("a", "def").text == two.get("a").text == "def"
        with pytest.raises(UnknownSession):
            old.append("x")


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """SQLite alone goes on writing to a file that nobody can open again."""
    with SessionStore(StandIn(), tmp_path / "store") as store:
        session = store.open("a", "abc")
        shutil.rmtree(tmp_path / "store")
        for replaced in (False, True):
            if replaced:
                SessionStore(StandIn(), tmp_path / "store").close()
            with pytest.raises(SessionError, match="removed or replaced"):
                session.append("def")
            with pytest.raises(SessionError, match="removed or replaced"):
                store.open("b", "def")
            assert session.text == "abc"


def test_a_flipped_byte_anywhere(tmp_path: Path, scale: float) -> None:
    """What is served is right, or the session is gone and that was counted."""
    text = "word 123 é " * 700
    with SessionStore(StandIn(), tmp_path / "whole") as store:
        store.open("a", text)
        store.get("a").append("tail")
    whole = (tmp_path / "whole" / FILE).read_bytes()
    draw = random.Random(5)
    missed = 0
    for number in range(int(120 * scale)):
        folder = tmp_path / str(number)
        folder.mkdir()
        at = draw.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[at] ^= 1 << draw.randrange(8)
        (folder / FILE).write_bytes(damaged)
        with SessionStore(StandIn(), folder) as store:
            try:
                session = store.get("a")
            except UnknownSession:
                missed += 1
                assert store.stats()["counts"].keys() & {"damaged", "foreign", "damaged file"}, at
                session = store.open("a", text + "tail")
            except SessionError:
                missed += 1
                continue
            assert session.text == text + "tail"
            assert np.array_equal(session.ids, expected(store.engine, session.text))
    assert missed > 10 * scale


@pytest.mark.parametrize(
    ("table", "column"),
    [
        *[("sessions", c) for c in ("id", "name", "revision", "fingerprint", "leading", "resume", "distrust")],
        *[("sessions", c) for c in ("chunks", "blocks", "sum")],
        *[("rows", c) for c in ("id", "data", "sum")],
        *[("links", c) for c in ("session", "kind", "seq", "row", "gap", "sum")],
    ],
)
def test_damage_in_every_column(tmp_path: Path, table: str, column: str, caplog: pytest.LogCaptureFixture) -> None:
    with SessionStore(StandIn(), tmp_path) as store:
        store.open("a", "word 123 " * 700)
    with sqlite3.connect(tmp_path / FILE) as connection:
        where = {"sessions": "1", "rows": "id = 1", "links": "seq = 0 AND kind = 1"}[table]
        (value,) = connection.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchone()
        if isinstance(value, int):
            value ^= 1 << 20
        elif isinstance(value, str):
            value = chr(ord(value[0]) ^ 1) + value[1:]
        elif value is None:
            value = "x"
        else:
            value = bytes([value[0] ^ 1]) + value[1:] if value else b"\0"
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))
    connection.close()
    with SessionStore(StandIn(), tmp_path) as store:
        with pytest.raises(UnknownSession):
            store.get("a")
        assert store.stats()["counts"].keys() & {"damaged", "foreign"}
        assert ("damaged, and treated as absent" in caplog.text) == ("damaged" in store.stats()["counts"])
        assert np.array_equal(store.open("a", "new").ids, expected(store.engine, "new"))
    with SessionStore(StandIn(), tmp_path) as store:
        assert store.get("a").text == "new"


@pytest.mark.parametrize("tree", ["sessions", "sqlite_autoindex_sessions_1"])
def test_a_flipped_byte_of_a_name(tmp_path: Path, tree: str, caplog: pytest.LogCaptureFixture) -> None:
    """In the index alone it costs nothing: that is made anew. In a session's first row the session is absent."""
    with SessionStore(StandIn(), tmp_path) as store:
        for name in ("agent-6", "agent-8"):
            store.open(name, f"{name} 123 words")
    connection = sqlite3.connect(tmp_path / FILE)
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (tree,)).fetchone()
    connection.close()
    data = bytearray((tmp_path / FILE).read_bytes())
    data[data.index(b"agent-6", (root - 1) * size)] ^= 1
    (tmp_path / FILE).write_bytes(data)
    lost = tree == "sessions"
    with SessionStore(StandIn(), tmp_path) as store:
        assert store.stats()["counts"] == {"damaged": 1}
        assert ("the index entry of session 'agent-6' is damaged" in caplog.text) != lost
        assert store.list() == (["agent-8"] if lost else ["agent-6", "agent-8"])
        if lost:
            with pytest.raises(UnknownSession):
                store.get("agent-6")
        for name in ("agent-6", "agent-8"):
            assert store.open(name, f"{name} 123 words").text == f"{name} 123 words"
        assert store.list() == ["agent-6", "agent-8"]
    with SessionStore(StandIn(), tmp_path) as store:
        assert store.list() == ["agent-6", "agent-8"]
        assert ("damaged" in store.stats()["counts"]) == lost


def test_a_file_that_is_no_database(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all" * 1000)
    with SessionStore(StandIn(), tmp_path) as store:
        assert store.stats()["counts"] == {"damaged file": 1}
        store.open("a", "abc")
    assert f"{FILE} is damaged: it is now {FILE}.damaged-" in caplog.text
    assert list(tmp_path.glob("*.damaged-*"))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="cannot be written"):
        SessionStore(StandIn(), tmp_path / "file")
    (tmp_path / FILE).mkdir()
    with pytest.raises(SessionError, match="cannot be written"):
        SessionStore(StandIn(), tmp_path)


def test_a_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files stands for it; in a child, as the limit also counts for the caches of others."""
    code = """
        import resource, signal, sys
        from tests.sessions.standin import StandIn, expected
        from toktier_jax import SessionStore
        from toktier_jax.errors import SessionError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = SessionStore(StandIn(), sys.argv[1])
        session = store.open("a", "word " * 1000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        text = session.text
        for _ in range(1000):
            try:
                session.append("more words " * 1000)
            except SessionError as error:
                assert "nothing was changed" in str(error), error
                assert session.text == text
                break
            text = session.text
        else:
            raise AssertionError("never full")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
        session.append("again")
        assert session.ids.tolist() == expected(store.engine, text + "again").tolist()
    """
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], check=True, cwd=ROOT, timeout=60)


_WRITERS = """
import hashlib, os, random, sys
from tests.sessions.standin import StandIn
from toktier_jax import SessionStore

def write(seed):
    os.write(1, f"pid {os.getpid()}\\n".encode())
    store = SessionStore(StandIn(), sys.argv[1])
    draw = random.Random(seed)
    while True:
        session = store.open(f"s{draw.randrange(3)}")
        text = session.text
        kind = draw.random()
        new = "".join(draw.choices(("word ", "12", " ", "\u00e9", "<|x|>", "\\n"), k=draw.randrange(1, 300)))
        if len(text) > 20_000:
            session.truncate(1000)
        elif kind < 0.7:
            session.append(new)
        else:
            at = draw.randrange(len(text) + 1)
            session.replace(at, min(at + 30, len(text)), new)
        digest = hashlib.sha256(session.text.encode()).hexdigest()
        os.write(1, f"{session.name} {session.revision} {digest}\\n".encode())
        session.close()

for line in sys.stdin:
    child = os.fork()
    if not child:
        write(int(line))
    os.waitpid(child, 0)
    os.write(1, b"end\\n")
"""


def _kill(folder: Path, kills: int, seed: int) -> None:
    """After each kill every acknowledged change is there, or one later, and what is served is right."""
    known: dict[str, tuple[int, str]] = {}
    draw = random.Random(seed)
    command = [sys.executable, "-c", _WRITERS, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for number in range(kills):
            writers.stdin.write(b"%d\n" % (seed + number))
            writers.stdin.flush()
            child = int(writers.stdout.readline().split()[1])
            for _ in range(draw.randrange(8)):  # counted, not timed: a busy machine may give the child no time at all
                name, revision, digest = writers.stdout.readline().decode().split()
                known[name] = int(revision), digest
            time.sleep(draw.random() * 0.02)
            os.kill(child, signal.SIGKILL)
            while (line := writers.stdout.readline()) != b"end\n":
                name, revision, digest = line.decode().split()
                known[name] = int(revision), digest
            with SessionStore(StandIn(), folder) as store:
                for name, (revision, digest) in known.items():
                    session = store.get(name)
                    assert session.revision in (revision, revision + 1), name
                    if session.revision == revision:
                        assert _digest(session.text) == digest
                    assert np.array_equal(session.ids, expected(store.engine, session.text))
                    known[name] = session.revision, _digest(session.text)
                assert not store.stats()["counts"].keys() & {"damaged", "foreign", "damaged file"}
    assert known


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_killed_writers(tmp_path: Path) -> None:
    _kill(tmp_path, 50, 1)


@pytest.mark.slow
def test_many_killed_writers(tmp_path: Path) -> None:
    _kill(tmp_path, 1000, 1000)


def _rows(folder: Path) -> int:
    connection = sqlite3.connect(folder / FILE)
    (count,) = connection.execute("SELECT COUNT(*) FROM rows").fetchone()
    connection.close()
    return count


def test_a_page_that_sqlite_cannot_read_is_said(tmp_path: Path) -> None:
    letters = "".join(random.Random(1).choices(string.ascii_lowercase + " ", k=60_000))
    with SessionStore(StandIn(), tmp_path) as store:
        for name in "abc":
            store.open(name, letters)
    path = tmp_path / FILE
    connection = sqlite3.connect(path)
    (size,), ((root,),) = (
        connection.execute("PRAGMA page_size").fetchone(),
        connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'rows'").fetchall(),
    )
    connection.close()
    data = bytearray(path.read_bytes())
    at = (root - 1) * size
    if data[at] == 5:  # an inner page: its first leaf
        cell = int.from_bytes(data[at + 12 : at + 14], "big")
        at = (int.from_bytes(data[at + cell : at + cell + 4], "big") - 1) * size
    data[at] = 0x77
    path.write_bytes(data)
    with SessionStore(StandIn(), tmp_path) as store:
        for call in (lambda: store.open("a", "new"), lambda: store.delete("a")):
            with pytest.raises(SessionError, match=r"malformed; nothing was changed: close the store and move"):
                call()
        assert store.stats()["counts"]["damaged"]
        assert store._disk is not None
        assert not store._disk._connection.in_transaction
    path.rename(tmp_path / "away")
    with SessionStore(StandIn(), tmp_path) as store:
        assert store.open("a", "new").text == "new"


def test_an_emptied_file_with_a_log_is_damaged(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as store:
        store.open("a", "text")
        log = (tmp_path / f"{FILE}-wal").read_bytes()
    (tmp_path / FILE).write_bytes(b"")
    (tmp_path / f"{FILE}-wal").write_bytes(log)
    with SessionStore(StandIn(), tmp_path) as store:
        assert store.stats()["counts"]["damaged file"] == 1
        assert store.open("a", "anew").text == "anew"
    assert [path.read_bytes() for path in tmp_path.glob(f"{FILE}-wal.damaged-*")] == [log]


def test_two_that_find_a_damaged_file_mend_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    connect, first = Disk._connect, iter([True])

    def slow(disk: Disk) -> sqlite3.Connection:
        try:
            return connect(disk)
        except sqlite3.DatabaseError:
            if next(first, False):
                with SessionStore(StandIn(), tmp_path) as faster:
                    faster.open("a", "acknowledged")
            raise

    monkeypatch.setattr(Disk, "_connect", slow)
    with SessionStore(StandIn(), tmp_path) as store:
        assert store.get("a").text == "acknowledged"
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1


def test_a_damaged_schema_is_counted(tmp_path: Path) -> None:
    SessionStore(StandIn(), tmp_path).close()
    data = (tmp_path / FILE).read_bytes()
    assert data.count(b"id INTEGER") >= 1
    (tmp_path / FILE).write_bytes(data.replace(b"id INTEGER", b"hd INTEGER"))
    with SessionStore(StandIn(), tmp_path) as store:
        assert sum(count for what, count in store.stats()["counts"].items() if "damaged" in what)
