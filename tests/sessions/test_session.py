"""Handles: what they refuse, what they leave untouched, snapshots and forks."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tests.sessions.standin import StandIn, expected
from toktier_jax import ClosedSession, InputError, SessionStore, UnknownSession
from toktier_jax.errors import SessionError
from toktier_jax.sessions import Window


@pytest.fixture
def store() -> SessionStore:
    return SessionStore(StandIn())


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.append("\ud800"),
        lambda s: s.append(3),
        lambda s: s.append(b"\xff"),
        lambda s: s.replace(-1, 0, "x"),
        lambda s: s.replace(0, 99, "x"),
        lambda s: s.replace(3, 2, "x"),
        lambda s: s.replace(True, 2, "x"),
        lambda s: s.replace(0, 1.5, "x"),
        lambda s: s.truncate(99),
        lambda s: s.truncate(-1),
        lambda s: s.update("hello\udfff"),
        lambda s: s.update(None),
    ],
)
def test_bad_input_changes_nothing(store: SessionStore, call) -> None:
    session = store.open("a", "hello world")
    before = session.ids
    with pytest.raises(InputError):
        call(session)
    assert session.text == "hello world"
    assert session.revision == 0
    assert session.ids is before


@pytest.mark.parametrize("text", ["hello world\ud800", "hell\ud800o world", "\ud800hello world", "hello\ud800"])
def test_a_surrogate_is_named_by_its_place_in_what_was_passed(store: SessionStore, text: str) -> None:
    store.open("a", "hello world")
    for call in (store.get("a").update, lambda text: store.open("a", text), store.encode):
        with pytest.raises(InputError, match=f"at character {text.index(chr(0xD800))},"):
            call(text)


@pytest.mark.parametrize("name", ["", "x" * 1025, None, 3, b"a", "\ud800"])
def test_names_that_are_refused(store: SessionStore, name) -> None:
    for call in (store.open, store.get, store.delete):
        with pytest.raises(InputError):
            call(name)


@pytest.mark.parametrize("name", ["x" * 1024, "\0", "\n", " ", "../a", "'; DROP TABLE sessions", "名"])
def test_names_that_are_taken(tmp_path, name: str) -> None:
    with SessionStore(StandIn(), tmp_path) as store:
        store.open(name, "abc")
        assert store.list() == [name]
    with SessionStore(StandIn(), tmp_path) as store:
        assert store.get(name).text == "abc"


def test_closed_deleted_unknown(store: SessionStore) -> None:
    session, other = store.open("a", "abc"), store.open("a")
    session.close()
    session.close()
    with pytest.raises(ClosedSession):
        session.append("d")
    assert other.append("d").revision == 1
    store.delete("a")
    for call in (lambda: other.append("e"), lambda: other.ids, lambda: store.get("a"), lambda: store.delete("a")):
        with pytest.raises(UnknownSession):
            call()
    store.close()
    with pytest.raises(ClosedSession):
        store.open("a")


def test_a_handle_that_is_closed_twice_is_closed_once(store: SessionStore) -> None:
    session, other = store.open("a", "abc"), store.get("a")
    session.close()
    session.close()
    assert store.stats()["handles"] == 1
    assert other.text == "abc"


def test_snapshots_and_forks_do_not_change(store: SessionStore) -> None:
    parent = store.open("a", "one two " * 2000)
    ids, spans, kept = parent.ids, parent.byte_spans, parent.ids.copy()
    child = parent.fork("b")
    with pytest.raises(SessionError):
        parent.fork("b")
    parent.append("three")
    child.replace(5, 9, "X")
    assert np.array_equal(ids, kept)
    assert len(spans) == len(kept)
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1
    assert np.array_equal(parent.ids, expected(store.engine, parent.text))
    assert np.array_equal(child.ids, expected(store.engine, child.text))


def test_an_append_encodes_its_end_alone(store: SessionStore) -> None:
    session = store.open("a", "word " * 100_000)
    engine = store.engine
    engine.windows.clear()
    session.append("more words")
    session.replace(250_000, 250_003, "x")
    assert max(engine.windows) < 200


def test_an_update_changes_what_differs(store: SessionStore) -> None:
    text = "alpha beta " * 500
    session = store.open("a", text)
    assert session.update(text).revision == 0
    patch = session.update(text[:2000] + "gamma" + text[2000:])
    assert patch.keep > 500
    assert patch.tail > 1000
    assert len(patch.ids) < 10
    assert session.update("").keep == 1
    assert session.ids.tolist() == [7]


def test_what_windows_refuse_goes_to_the_reference() -> None:
    store = SessionStore(StandIn(refused=b"zzz"))
    session = store.open("a", "abc ")
    session.append("zzz")
    session.append(" def")
    assert np.array_equal(session.ids, expected(store.engine, "abc zzz def"))
    assert session.explain()["changes"]["reference: refused here"] == 2


def test_content_finds_the_longest_prefix(store: SessionStore) -> None:
    text = "some words and more " * 400
    store.open("a", text)
    engine = store.engine
    engine.windows.clear()
    found = store.encode(text + "and then some")
    assert max(engine.windows) < 200
    assert np.array_equal(found.ids, expected(engine, found.text))
    assert store.get("a").text == text
    again = store.encode(text + "and then some more")
    assert np.array_equal(again.ids, expected(engine, again.text))
    assert np.array_equal(store.encode("else").ids, expected(engine, "else"))
    assert store.stats()["counts"] == {"content hits": 2, "content misses": 1}
    assert store.list() == ["a"]


def test_content_finds_what_a_text_was_changed_into(store: SessionStore) -> None:
    session = store.open("a", "old " * 100)
    session.update("new " * 100)
    assert np.array_equal(store.encode("new " * 100 + "more").ids, expected(store.engine, "new " * 100 + "more"))
    assert store.stats()["counts"] == {"content hits": 1}
    store.encode("old " * 100)
    assert store.stats()["counts"] == {"content hits": 1, "content misses": 1}


@pytest.mark.parametrize(
    "change", [lambda s: s.append(" ghi"), lambda s: s.replace(40, 5000, "x"), lambda s: s.truncate(9)]
)
def test_an_interrupt_anywhere_in_a_change_does_all_of_it_or_nothing(
    store: SessionStore, change: Callable[[Session], object]
) -> None:
    """The change is interrupted at each line of the modules that make it, one after the other."""
    text = "abc def " * 2000
    done = store.open("done", text)
    change(done)
    outcomes = []
    for line in itertools.count(1):
        session = store.open(f"interrupted at line {line}", text)
        try:
            _interrupted(line, lambda session=session: change(session))
        except KeyboardInterrupt:
            outcomes.append(session.revision)
            assert session.text == (done.text if session.revision else text)
            assert np.array_equal(session.ids, expected(store.engine, session.text))
            resume, before = session._entry.record.resume, session.text
            session.append(" more")
            assert resume <= len(before)
            assert np.array_equal(session.ids, expected(store.engine, before + " more"))
        else:
            break
    assert outcomes.count(0) > 50


def _interrupted(after: int, call: Callable[[], object]) -> None:
    """Runs `call`; KeyboardInterrupt is raised at the line of that number that is reached in one of these modules."""
    left = after

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(("sessions/chunks.py", "sessions/blocks.py", "sessions/repair.py")):
            return trace if event == "call" else None
        if frame.f_code.co_name == "restore":
            return None
        if event == "line":
            left -= 1
            if not left:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)


def test_a_session_without_ids_is_true() -> None:
    engine = StandIn()
    engine.info = dataclasses.replace(engine.info, leading=())
    session = SessionStore(engine).open("a")
    assert len(session) == 0
    assert session


def test_content_waits_for_no_session(store: SessionStore) -> None:
    text = "some words and more " * 4
    held, done = store.open("a", text), threading.Event()
    worker = threading.Thread(target=lambda: (store.encode(text), done.set()), daemon=True)
    with held._entry.lock:
        worker.start()
        assert done.wait(30)


def test_a_window_without_tokens_agrees_with_nothing() -> None:
    """Of a black box that removes what was put in: every window is empty until it holds more."""

    class Removing(StandIn):
        def encode_reference(self, text: bytes) -> Window:
            found = super().encode_reference(text)
            kept = np.array([text[start : start + 1] not in b" \n" for start in found.byte_starts], bool)
            return Window(found.ids[kept], found.byte_starts[kept], found.byte_ends[kept], found.anchors, 0)

        encode_full = encode_reference

        def encode_window(self, text: bytes, *, at_start: bool, at_end: bool) -> Window:
            return self.encode_reference(text)

    engine = Removing(way="black box")
    session = SessionStore(engine).open("a", " " * 3000)
    session.replace(1500, 1501, "\n")
    assert np.array_equal(session.ids, expected(engine, session.text))


def test_memory_is_capped_and_open_handles_stay() -> None:
    store = SessionStore(StandIn(), max_bytes=200_000)
    held = store.open("held", "word " * 2000)
    for number in range(40):
        store.open(f"s{number}", "word " * 2000).close()
    stats = store.stats()
    assert stats["bytes"] <= 200_000
    assert stats["counts"]["evicted"] > 20
    assert held.text == "word " * 2000
    with pytest.raises(UnknownSession):
        store.get("s0")


def test_what_nobody_uses_expires() -> None:
    store = SessionStore(StandIn(), ttl=0.0)
    store.open("a", "abc").close()
    held = store.open("b", "abc")
    with pytest.raises(UnknownSession):
        store.get("a")
    assert held.text == "abc"
