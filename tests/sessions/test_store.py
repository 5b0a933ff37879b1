"""The store and its file: errors that pass, the end of the store, files of others, and changes by others."""

from __future__ import annotations

import copy
import enum
import gc
import itertools
import linecache
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sessions.standin import StandIn, expected
from toktier_jax import ClosedSession, RevisionConflict, SessionStore, UnknownSession
from toktier_jax.errors import InputError, SessionError
from toktier_jax.sessions import Policy, Session, Window, content, rows
from toktier_jax.sessions.disk import FILE, Disk
from toktier_jax.sessions.full import encode_record


def _disk(folder: Path) -> Disk:
    return Disk(folder, "stand-in", Counter().update)


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), sqlite3.InterfaceError("bad parameter")])
def test_an_error_that_passes_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    disk, (record, _) = _disk(tmp_path), encode_record(StandIn(), "abc")
    disk.create("a", record, None)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(rows, "read", fail)
        for call in (lambda: disk.create("a", record.copy(), None), lambda: disk.load("a")):
            with pytest.raises(SessionError, match=str(error)):
                call()
    loaded = disk.load("a")
    assert loaded is not None
    assert str(loaded[0].text) == "abc"
    disk.close()


def test_every_call_after_the_end(tmp_path: Path) -> None:
    disk, (record, _) = _disk(tmp_path), encode_record(StandIn(), "abc")
    stored = disk.create("a", record, None)
    disk.close()
    disk.close()
    calls: list[Callable[[], Any]] = [
        disk.names,
        lambda: disk.holds("a", stored),
        lambda: disk.load("a"),
        lambda: disk.create("b", record, None),
        lambda: disk.save("a", record, stored),
        lambda: disk.delete("a"),
    ]
    for call in calls:
        with pytest.raises(ClosedSession):
            call()


def test_a_change_while_the_store_is_closed(tmp_path: Path) -> None:
    class Closing(StandIn):
        def encode_window(self, text: bytes, *, at_start: bool, at_end: bool):
            store.close()
            return super().encode_window(text, at_start=at_start, at_end=at_end)

    store = SessionStore(Closing(), tmp_path)
    session = store.open("a", "abc")
    with pytest.raises(ClosedSession):
        session.append("def")
    with SessionStore(StandIn(), tmp_path) as again:
        assert again.get("a").text == "abc"


def test_a_call_that_fails_holds_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SessionStore(StandIn(), tmp_path) as store:
        store.open("a", "abc").close()

        def fail(*_: object) -> None:
            raise SessionError("passing")

        with monkeypatch.context() as patch:
            patch.setattr(store._disk, "holds", fail)
            for call in (store.get, store.open):
                with pytest.raises(SessionError, match="passing"):
                    call("a")
        assert store.stats()["handles"] == 0
        assert store.get("a").text == "abc"


def test_a_file_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    SessionStore(StandIn(), tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(SessionError, match=rf"{FILE} is a session store of version 3"):
        SessionStore(StandIn(), tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize("table", ["mail", "sessions"])
def test_a_database_of_another_program_is_left_alone(tmp_path: Path, table: str) -> None:
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute(f"CREATE TABLE {table} (text TEXT)")
    connection.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(SessionError, match=rf"{FILE} is a database of another program"):
        SessionStore(StandIn(), tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_only_what_can_be_got_is_listed(tmp_path: Path) -> None:
    with SessionStore(StandIn(fingerprint="other"), tmp_path) as store:
        store.open("foreign", "abc")
    with SessionStore(StandIn(), tmp_path) as store:
        for name in ("a", "damaged", "no UTF-8"):
            store.open(name, "abc")
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE sessions SET resume = 2 WHERE name = 'damaged'")
        connection.execute("UPDATE sessions SET name = CAST(X'61FF' AS TEXT) WHERE name = 'no UTF-8'")
    connection.close()
    with SessionStore(StandIn(), tmp_path) as store:
        assert store.list() == ["a"]
        for name in ("foreign", "damaged", "no UTF-8"):
            with pytest.raises(UnknownSession):
                store.get(name)
        assert store.get("a").text == "abc"


def test_what_another_store_deleted_is_not_listed(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as one, SessionStore(StandIn(), tmp_path) as two:
        one.open("a", "abc")
        two.delete("a")
        assert one.list() == []


def test_a_handle_does_not_pass_to_another_session_of_the_name(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as one, SessionStore(StandIn(), tmp_path) as two:
        old = one.open("a", "abc")
        two.delete("a")
        two.open("a", "def")
        with pytest.raises(RevisionConflict, match="deleted by another process"):
            old.append("x")
        with pytest.raises(UnknownSession):
            old.append("x")
        assert one.get("a").text == "def"


@pytest.mark.parametrize("stale", [False, True])
def test_a_fault_in_what_another_store_has_changed(tmp_path: Path, stale: bool) -> None:
    engine = StandIn(broken=b"fault")
    with SessionStore(engine, tmp_path) as one, SessionStore(engine, tmp_path) as two:
        session = one.open("a", "a fault")
        two.get("a").append(" more")
        if stale:
            with pytest.raises(RevisionConflict):
                session.append("x")
        one._distrust(session._entry, "why")
        for each in (session, two.get("a")):
            assert each.explain()["reason"] == "why"
            assert np.array_equal(each.ids, expected(engine, "a fault more"))
        assert one.stats()["counts"]["quarantined"] == 1
        two.delete("a")
        session._entry.stale = True
        one._distrust(session._entry, "again")


def test_a_fork_waits_for_no_other_session(tmp_path: Path) -> None:
    """Two that are forked to each other's names would wait forever."""
    with SessionStore(StandIn(), tmp_path) as one, SessionStore(StandIn(), tmp_path) as two:
        session, other = one.open("a", "abc"), one.open("b", "abc")
        two.get("b").append("def")
        errors: list[BaseException] = []

        def fork() -> None:
            try:
                session.fork("b")
            except SessionError as error:
                errors.append(error)

        worker = threading.Thread(target=fork, daemon=True)
        with other._entry.lock:
            worker.start()
            worker.join(30)
            assert not worker.is_alive()
        assert "there is a session 'b' already" in str(errors[0])


def test_a_handle_that_nobody_closes_holds_no_session(tmp_path: Path) -> None:
    with SessionStore(StandIn(), max_bytes=100_000) as store:
        for number in range(40):
            assert store.encode(f"{number} " * 3000).ids.size
        gc.collect()
        store.open("a", "b")
        stats = store.stats()
        assert stats["handles"] <= 1
        assert stats["bytes"] < 200_000
        held = store.open("c", "d")
        gc.collect()
        assert store.stats()["handles"] == 1
        held.close()
        held.close()
        assert store.stats()["handles"] == 0


def test_a_name_is_its_characters_whatever_its_class(tmp_path: Path) -> None:
    class Name(str, enum.Enum):  # noqa: UP042 - its str() is not its value
        AGENT = "agent"

    for name in (np.str_("agent"), Name.AGENT):
        with SessionStore(StandIn(), tmp_path) as store:
            store.open(name, "abc").fork(np.str_("child"))
        with SessionStore(StandIn(), tmp_path) as store:
            assert store.list() == ["agent", "child"]
            assert (store.get(name).text, store.get("agent").name) == ("abc", "agent")
            store.delete(name)
            store.delete("child")


def test_a_delete_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SessionStore(StandIn(), tmp_path) as store:
        handle = store.open("a", "abc")
        with monkeypatch.context() as patch:
            patch.setattr(rows, "delete", _busy)
            with pytest.raises(SessionError, match="nothing was changed"):
                store.delete("a")
        assert handle.text == store.get("a").text == store.open("a").text == "abc"
        handle.append("d")
        store.delete("a")
        with pytest.raises(UnknownSession):
            _ = handle.text


def _busy(*_: Any) -> bool:
    raise sqlite3.OperationalError("database is locked")


@pytest.mark.parametrize("bad", [{"ttl": -1.0}, {"max_bytes": -1}, {"shadow": 2.0}, {"shadow": float("nan")}])
def test_numbers_that_mean_nothing_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        SessionStore(StandIn(), **bad)


def test_a_fault_in_a_session_that_left_memory_and_came_back(tmp_path: Path) -> None:
    engine = StandIn(broken=b"fault")
    with SessionStore(engine, tmp_path, max_bytes=1) as store:
        session = store.open("a", "a fault")
        sampled = session._entry
        session.close()
        store.open("b", "abc").close()
        session = store.open("a")
        assert session._entry is not sampled
        store._distrust(sampled, "why")
        session.append(" more")
        assert session.explain()["reason"] == "why"
        assert np.array_equal(session.ids, expected(engine, "a fault more"))
        assert store.stats()["counts"]["quarantined"] == 1


def test_reading_a_long_session_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SessionStore(StandIn(), tmp_path) as store:
        store.open("long", "abc")
    restore, reading, go_on = rows.restore, threading.Event(), threading.Event()

    def slow(raw: rows.Raw) -> Any:
        reading.set()
        assert go_on.wait(30)
        return restore(raw)

    with SessionStore(StandIn(), tmp_path) as store:
        other = store.open("short", "abc")
        monkeypatch.setattr(rows, "restore", slow)
        thread = threading.Thread(target=store.get, args=("long",))
        thread.start()
        assert reading.wait(30)
        other.append("def")
        go_on.set()
        thread.join()
        assert other.text == "abcdef"


def test_a_change_of_nothing_sees_what_another_store_changed(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as one, SessionStore(StandIn(), tmp_path) as two:
        for call in (lambda s: s.update("x"), lambda s: s.append(""), lambda s: s.truncate(1)):
            session = one.open("a", "x")
            two.get("a").update("y")
            with pytest.raises(RevisionConflict):
                call(session)
            assert session.text == "y"
            session.update("x")


def test_an_interrupt_after_the_disk_has_it_is_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SessionStore(StandIn(), tmp_path) as store:
        session = store.open("a", "abc")
        save = Disk.save

        def interrupted(*given: Any) -> None:
            save(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Disk, "save", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.append("d")
        assert (session.text, session.revision) == ("abcd", 1)
        session.append("e")
        assert session.text == "abcde"


def test_an_interrupted_delete_leaves_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SessionStore(StandIn())
    held = store.open("a", "abc")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store._memory, "forget", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.delete("a")
    assert store.list() == []
    assert store.open("a", "def").text == "def"
    with pytest.raises(UnknownSession):
        _ = held.text


def test_an_interrupted_get_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SessionStore(StandIn())
    store.open("a", "abc").close()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Session, "__init__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.get("a")
    gc.collect()
    assert store.stats()["handles"] == 0


def test_a_text_is_what_it_is_whatever_its_class_shows(tmp_path: Path) -> None:
    class Text(str):
        def encode(self, *_: Any) -> bytes:
            return b"evil"

        def __len__(self) -> int:
            return 1

    with SessionStore(StandIn(), tmp_path) as store:
        session = store.open("a", Text("abc"))
        session.append(Text("def"))
        session.update(Text("abcxxdef"))
        assert session.text == "abcxxdef"
        assert np.array_equal(session.ids, expected(store.engine, "abcxxdef"))
        assert store.encode(Text("abcxxdef!")).text == "abcxxdef!"


@pytest.mark.parametrize(
    "arguments",
    [
        {"ttl": None},
        {"ttl": "5"},
        {"ttl": float("nan")},
        {"max_bytes": "x"},
        {"max_bytes": -1},
        {"shadow": None},
        {"shadow": 2},
        {"shadow": True},
        {"path": 5},
        {"path": b"a"},
        {"path": "a\0b"},
        {"path": ""},
        {"quarantine": 5},
        {"policy": 3},
        {"on_mismatch": 5},
    ],
    ids=str,
)
def test_arguments_of_another_kind(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        SessionStore(StandIn(), **arguments)


@pytest.mark.parametrize("middle", ["untouched", "deleted", "truncated"])
def test_a_fault_is_found_in_forks_of_forks_and_in_what_was_forked(middle: str) -> None:
    engine = StandIn(broken=b"fault")
    with SessionStore(engine, shadow=1.0) as store:
        store._verifier._rate = 0.0
        first = store.open("first", "words fault and ")
        between = first.fork("between")
        last = between.fork("last")
        if middle == "deleted":
            store.delete("between")
        elif middle == "truncated":
            between.truncate(5)
        store._verifier._rate = 1.0
        last.append("more")
        assert store._verifier.drain()
        for each in (first, last):
            assert np.array_equal(each.ids, expected(engine, each.text))


def test_a_session_is_read_as_it_was_at_one_moment(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as one, SessionStore(StandIn(), tmp_path) as two:
        session = one.open("a", "words 12 " * 3000)
        handle, fired = two.get("a"), list[str]()
        session.append("x 1 ")
        with pytest.raises(RevisionConflict):
            handle.append("y")

        def between(statement: str) -> None:
            if "LEFT JOIN" in statement and not fired:
                fired.append(statement)
                session.append("words 12 " * 3000)

        assert two._disk is not None
        two._disk._connection.set_trace_callback(between)
        assert handle.text.endswith("x 1 ")
        two._disk._connection.set_trace_callback(None)
        assert fired
        assert two.get("a").text == session.text
        assert not two.stats()["counts"].keys() & {"damaged", "foreign"}


def test_all_copies_of_a_session_found_wrong_are_mended_and_said_once() -> None:
    engine, seen = StandIn(broken=b"fault"), list[str]()
    with SessionStore(engine, shadow=1.0, on_mismatch=lambda found: seen.append(found.session)) as store:
        store._verifier._rate = 0.0
        session = store.open("a", "a")
        session.append(" fault")
        forks = [session.fork(f"fork {number}") for number in range(40)]
        forks.append(forks[0].fork("of a fork"))
        store._verifier._rate = 1.0
        session.append(".")
        assert store._verifier.drain()
        store._verifier._rate = 0.0
        assert sorted(seen) == sorted(each.name for each in (session, *forks))
        for each in forks:
            assert np.array_equal(each.ids, expected(engine, "a fault"))


@pytest.mark.parametrize("arguments", [{"cold_device_from": "x"}, {"reference_below": None}, {"reference_below": -1}])
def test_policies_of_another_kind(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        Policy(**arguments)


@pytest.mark.parametrize("old", [None, "zz", np.zeros(9), np.zeros((9, 1), np.int32), np.zeros(0, np.int32)], ids=str)
def test_a_patch_is_applied_to_ids(old: Any) -> None:
    session = SessionStore(StandIn()).open("a", "word " * 9)
    patch = session.append("more")
    with pytest.raises(InputError, match="apply takes the ids"):
        patch.apply(old)


def test_two_texts_behind_one_beginning_keep_each_other() -> None:
    """What a text is not continued by, the text stays."""
    engine, start = StandIn(), "you are a helpful agent " * 4
    one, other = start + "one " * 500, start + "other " * 500
    with SessionStore(engine) as store:
        for text in (one, other):
            store.encode(text).close()
        engine.windows.clear()
        with store.encode(one + "and more") as session:
            assert np.array_equal(session.ids, expected(engine, one + "and more"))
        assert max(engine.windows) < 600
        assert store.stats()["sessions"] == 2, "the text that it continues has gone"


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets seconds pass in no time."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


def test_texts_without_a_name_leave_after_their_time(wait: Callable[[float], None]) -> None:
    with SessionStore(StandIn(), ttl=10) as store:
        for number in range(8):
            store.encode(f"{number} " * 100).close()
            wait(5)
        assert store.stats()["sessions"] == 3


def test_a_session_that_is_read_is_used(wait: Callable[[float], None]) -> None:
    with SessionStore(StandIn(), ttl=10) as store:
        session = store.open("a", "some text")
        for _ in range(4):
            wait(8)
            assert session.text == "some text"
        del session
        gc.collect()
        wait(8)
        assert store.get("a").text == "some text"


def test_what_another_store_wrote_is_counted_and_found(tmp_path: Path) -> None:
    text = "a text that is long enough to be found by what it begins with, and then some"
    with SessionStore(StandIn(), tmp_path) as ours, SessionStore(StandIn(), tmp_path) as theirs:
        session = ours.open("a", "short")
        held = ours.stats()["bytes"]
        with theirs.get("a") as other:
            other.update(text * 40)
        assert ours.get("a").text == text * 40
        assert ours.stats()["bytes"] - held > len(text) * 40
        with ours.encode(text * 40 + "more"):
            assert ours.stats()["counts"]["content hits"] == 1
        session.close()


def test_a_reference_that_fails_once_leaves_the_fault_to_be_mended() -> None:
    class Failing(StandIn):
        fails = 1

        def encode_reference(self, text: bytes) -> Window:
            if self.fails:
                self.fails -= 1
                raise RuntimeError("not now")
            return super().encode_reference(text)

        def reference_ids(self, text: bytes) -> np.ndarray:
            return StandIn().encode_reference(text).ids

    engine = Failing(broken=b"fault")
    with SessionStore(engine, shadow=1.0) as store:
        session = store.open("a", "x")
        for text in (" fault", " and on"):
            session.append(text)
            assert store._verifier.drain()
        assert store.stats()["shadow"]["failed"] == 1
        assert np.array_equal(session.ids, expected(engine, "x fault and on"))
        assert session.explain()["way"] == "full"


def test_a_session_deleted_while_it_was_made_is_not_found_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a text that is long enough to be found by what it begins with, and then some"
    with SessionStore(StandIn()) as store:
        add = store._memory.content.add

        def late(*arguments: Any) -> None:
            store.delete("a")
            add(*arguments)

        monkeypatch.setattr(store._memory.content, "add", late)
        store.open("a", text)
        monkeypatch.undo()
        assert store._memory.content.longest(text) is None


# ---- interrupts, forked processes, races ----


def _interrupt_at(number: int) -> Callable[..., Any]:
    """A trace function that raises KeyboardInterrupt at that line of toktier_jax.sessions.disk, those left out at which
    no signal is looked for."""
    seen = [0]

    def trace(frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(("sessions/disk.py", "contextlib.py")):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not line.startswith(("try:", "with ", "finally:")):
            seen[0] += 1
            if seen[0] == number:
                raise KeyboardInterrupt
        return trace

    return trace


@pytest.mark.parametrize("call", ["list", "get", "open", "delete", "append"])
def test_an_interrupt_leaves_no_lock_and_no_transaction(tmp_path: Path, call: str) -> None:
    """At every line, while somebody keeps the traceback."""
    kept: list[BaseException] = []
    for number in itertools.count(1):
        with SessionStore(StandIn(), tmp_path / str(number)) as store, SessionStore(StandIn(), tmp_path / "0") as other:
            session = store.open("a", "text")
            calls: dict[str, Callable[[], object]] = {
                "list": store.list,
                "get": lambda store=store: store.get("b"),
                "open": lambda store=store: store.open("c"),
                "delete": lambda store=store: store.delete("a"),
                "append": lambda session=session: session.append(" more"),
            }
            sys.settrace(_interrupt_at(number))
            try:
                calls[call]()
                interrupted = False
            except KeyboardInterrupt as error:
                interrupted = True
                kept.append(error)
            except UnknownSession:
                interrupted = False
            finally:
                sys.settrace(None)
            assert store._disk is not None
            assert not store._disk._lock.locked(), number
            assert store.open("new", "text").text == "text"
            assert not store._disk._connection.in_transaction
            assert other.list() == []
        if not interrupted:
            break
    assert len(kept) > 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork")  # JAX and Python warn of what is tested here
def test_a_forked_child_is_kept_from_a_folder_that_was_open(tmp_path: Path) -> None:
    """SQLite's locks are not inherited: what the child wrote could be lost."""
    with SessionStore(StandIn(), tmp_path) as store:
        session = store.open("a", "text")
        child = os.fork()
        if not child:
            told = 0
            for call in (lambda: session.append(" lost"), lambda: SessionStore(StandIn(), tmp_path)):
                try:
                    call()
                except SessionError as error:
                    told += "forked while" in str(error)
            store.close()
            SessionStore(StandIn(), tmp_path / "own").open("a", "its own folder")
            os._exit(0 if told == 2 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        session.append(" kept")
    with SessionStore(StandIn(), tmp_path) as store:
        assert store.get("a").text == "text kept"


def test_a_nameless_text_found_wrong_at_once_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, base = StandIn(broken=b"bad"), "good words " * 8
    with SessionStore(engine, shadow=1.0) as store:
        store.encode(base)
        offer = store._verifier.offer

        def at_once(entry: Any) -> None:
            offer(entry)
            entry.lock.release()  # as the change has it: the verifier needs it
            store._verifier.drain()
            entry.lock.acquire()

        monkeypatch.setattr(store._verifier, "offer", at_once)
        session = store.encode(base + " bad")
        assert np.array_equal(session.ids, expected(engine, base + " bad"))
        assert store.stats()["counts"]["quarantined"] == 1


def test_a_fork_is_counted_by_what_it_holds() -> None:
    text = "words and more " * 20_000
    with SessionStore(StandIn()) as store:
        session = store.open("a", text)
        before = store.stats()["bytes"]
        session.fork("b")
        assert 5_000 < store.stats()["bytes"] - before < 50_000


def test_a_handle_has_no_copies() -> None:
    with SessionStore(StandIn()) as store, pytest.raises(TypeError, match="get another from the store"):
        copy.copy(store.open("a"))


def test_a_session_deleted_while_it_was_read_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SessionStore(StandIn(), tmp_path) as store:
        store.open("a", "text").close()
    with SessionStore(StandIn(), tmp_path) as store:
        assert store._disk is not None
        load = store._disk.load

        def slow(name: str) -> Any:
            found = load(name)
            store.delete(name)
            return found

        monkeypatch.setattr(store._disk, "load", slow)
        with pytest.raises(UnknownSession):
            store.get("a")


def test_an_offset_of_a_text_that_another_process_made_is_a_conflict(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as ours, SessionStore(StandIn(), tmp_path) as theirs:
        mine, other = ours.open("x"), theirs.open("x")
        mine.append("longer than it was")
        for change in (lambda: other.truncate(6), lambda: other.truncate(4)):
            try:
                change()
            except RevisionConflict:
                continue
        assert other.text == "long"
        with pytest.raises(InputError, match="n 6 is not in 0 to 4"):
            other.truncate(6)


def test_named_sessions_are_hashed_only_when_a_text_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    beginning = content._beginning
    monkeypatch.setattr(content, "_beginning", lambda chunks, size: hashed.append(size) or beginning(chunks, size))
    with SessionStore(StandIn()) as store:
        session = store.open("a", "some words " * 100)
        session.replace(0, 4, "more")
        assert not hashed
        store.encode("more words " * 2)
        assert hashed == [64, 256, 1024]
        store.encode("more words " * 2)
        assert hashed == [64, 256, 1024]


def test_reading_keeps_the_cap(tmp_path: Path) -> None:
    with SessionStore(StandIn(), tmp_path) as store:
        for number in range(20):
            store.open(f"s{number}", "word " * 2000).close()
    with SessionStore(StandIn(), tmp_path, max_bytes=200_000) as store:
        for name in store.list():
            store.get(name).close()
        assert store.stats()["bytes"] <= 200_000
        assert store.stats()["counts"]["evicted"]


def test_forks_keep_the_cap() -> None:
    with SessionStore(StandIn(), max_bytes=100_000) as store:
        parent = store.open("parent", "abc")
        for number in range(100):
            parent.fork(f"fork {number}").close()
        assert store.stats()["bytes"] <= 100_000


@pytest.mark.parametrize("leaves", ["delete", "change", "evict"])
def test_a_copy_counts_whole_once_it_is_alone(leaves: str) -> None:
    text = "words and more " * 2000
    with SessionStore(StandIn()) as store:
        parent = store.open("parent", text)
        whole = store.stats()["bytes"]
        copies = [parent.fork("fork"), parent.fork("other")]
        assert store.stats()["bytes"] < 1.5 * whole
        parent.append("more")
        assert store.stats()["bytes"] < 1.5 * whole
        if leaves == "change":
            parent.truncate(2)
        else:
            parent.close()
            if leaves == "delete":
                store.delete("parent")
            else:
                store._memory._max_bytes = 1
                store._memory.make_room()
        assert store.stats()["bytes"] > 1.9 * whole
        for copy_ in copies:
            copy_.close()
        store._memory._max_bytes = 0
        store._memory.make_room()
        left = 0 if leaves != "change" else parent._entry.record.bytes_held
        assert store.stats()["bytes"] == left


def test_a_text_that_is_encoded_twice_is_counted() -> None:
    text = "words and more " * 2000
    with SessionStore(StandIn()) as store:
        store.encode(text).close()
        once = store.stats()["bytes"]
        store.encode(text).close()
        assert once <= store.stats()["bytes"] <= 2 * once


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork")  # JAX and Python warn of what is tested here
def test_a_forked_child_does_not_wait_for_a_lock() -> None:
    """Held by a thread that the child does not have."""
    with SessionStore(StandIn()) as store:
        session, taken, done = store.open("a", "text"), threading.Event(), threading.Event()

        def hold() -> None:
            with session._entry.lock, store._memory.lock, store._lock:
                taken.set()
                done.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        taken.wait(60)
        child = os.fork()
        if not child:
            signal.alarm(20)
            told = 0
            for call in (lambda: session.append("x"), lambda: session.ids, lambda: store.get("a"), store.stats):
                try:
                    call()
                except SessionError as error:
                    told += "forked while" in str(error)
            session.close()
            store.close()
            os._exit(0 if told == 4 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        done.set()
        holder.join()


def test_an_interrupted_close_closes_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    store = SessionStore(StandIn(), tmp_path)
    monkeypatch.setattr(store._verifier, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    assert store._disk is not None
    assert store._disk._closed


def test_an_interrupt_before_the_disk_leaves_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SessionStore(StandIn(), tmp_path) as store, SessionStore(StandIn(), tmp_path) as other:
        put = store._memory.put

        def interrupted(*arguments: Any) -> Any:
            put(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(store._memory, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.open("a", "mine")
        monkeypatch.undo()
        other.open("a", "theirs")
        assert store.get("a").text == "theirs"


def test_a_change_does_not_look_at_all_relatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends, and changes of forks that are counted whole already."""
    with SessionStore(StandIn()) as store:
        parent = store.open("parent", "some words")
        forks = [parent.fork(f"fork {number}") for number in range(20)]
        family = parent._entry.family
        monkeypatch.setattr(type(family), "members", lambda _: pytest.fail("all relatives were looked at"))
        assert len(family.sharing) == 20
        parent.append(" more")
        forks[0].truncate(2)
        forks[1].append("!")
        assert len(family.sharing) == 18
        parent.truncate(5)
        assert not family.sharing
        assert family.longest == 0


def test_one_of_two_that_delete_a_session_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with SessionStore(StandIn()) as store:
        entry = store.open("a")._entry
        find = store._memory.find

        def late(*arguments: Any) -> Any:
            found = find(*arguments)
            monkeypatch.undo()
            store.delete("a")
            return found

        monkeypatch.setattr(store._memory, "find", late)
        with pytest.raises(UnknownSession):
            store.delete("a")
        assert entry.deleted


def _is_counted(store: SessionStore) -> bool:
    """Whether the bytes are those of the entries, and only entries in memory share."""
    entries = set(store._memory.entries.values())
    sharing = {each for entry in entries for each in entry.family.sharing}
    return store._memory.bytes == sum(each.size for each in entries) and sharing <= entries


@pytest.mark.parametrize("call", ["encode", "fork"])
def test_a_copy_whose_source_leaves_meanwhile_counts_whole(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    text = "words and more " * 2000
    with SessionStore(StandIn()) as store:
        parent = store.open("parent", text)
        whole, put = store.stats()["bytes"], store._memory.put

        def late(entry: Any, *others: Any) -> Any:
            store._memory.forget(parent._entry)
            return put(entry, *others)

        monkeypatch.setattr(store._memory, "put", late)
        kept = store.encode(text) if call == "encode" else parent.fork("fork")
        assert kept.text == text
        assert store.stats()["bytes"] == whole
        assert _is_counted(store)


def test_bytes_are_those_of_the_entries() -> None:
    draw = random.Random(0)
    with SessionStore(StandIn(), max_bytes=150_000) as store:
        held: list[Session] = []
        for number in range(400):
            if held and draw.random() < 0.7:
                session = draw.choice(held)
                change = draw.randrange(6)
                if change == 0:
                    held.append(session.fork(f"fork {number}"))
                elif change == 1:
                    session.truncate(draw.randrange(len(session.text) + 1))
                elif change == 2:
                    held.append(store.encode(session.text + draw.choice(["", " more"])))
                elif change == 3:
                    held.remove(session)
                    session.close()
                else:
                    session.append("words and more " * draw.randrange(20))
            else:
                held.append(store.open(f"s{number}", "words and more " * draw.randrange(200)))
            assert _is_counted(store), number
        assert store.stats()["counts"]["evicted"]


def test_eviction_frees_a_tenth() -> None:
    with SessionStore(StandIn(), max_bytes=100_000) as store:
        evicted = 0
        for number in range(100):
            store.open(f"s{number}", "words " * 300).close()
            before, evicted = evicted, store.stats()["counts"].get("evicted", 0)
            assert store.stats()["bytes"] <= (90_000 if evicted > before else 100_000)
        assert evicted > 3
