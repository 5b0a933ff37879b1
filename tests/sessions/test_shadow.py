"""The verifier: a planted fault is caught, made small and quarantined, and the session goes on by the reference."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import numpy as np

from tests.sessions.standin import StandIn, expected
from toktier_jax import SessionStore
from toktier_jax.sessions import Mismatch, Window


def test_a_planted_fault(tmp_path: Path) -> None:
    seen: list[Mismatch] = []
    engine = StandIn(broken=b"fault")
    with SessionStore(engine, shadow=1.0, quarantine=tmp_path, on_mismatch=seen.append) as store:
        session = store.open("a", "many words here " * 300)
        session.append("and a fault here")
        assert store._verifier.drain()
        text = session.text
        assert np.array_equal(session.ids, expected(engine, text))
        assert session.explain()["way"] == "full"
        session.append(" fault again")
        assert np.array_equal(session.ids, expected(engine, text + " fault again"))
        assert store.stats()["shadow"]["mismatches"] == 1
        assert store.stats()["counts"]["quarantined"] == 1
        assert np.array_equal(store.open("b", "no harm").ids, expected(engine, "no harm"))
    assert len(seen) == 1
    assert len(seen[0].text) <= 200
    assert "fault" in seen[0].text
    assert seen[0].path is not None
    report = json.loads(seen[0].path.read_text())
    assert report["expected"] != report["found"]


def test_what_cannot_be_written_keeps_nothing_else_from_being_done(tmp_path: Path) -> None:
    seen: list[Mismatch] = []
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "below"
    engine = StandIn(broken=b"fault")
    with SessionStore(engine, shadow=1.0, quarantine=folder, on_mismatch=seen.append) as store:
        session = store.open("a", "x")
        session.append(" fault")
        assert store._verifier.drain()
        assert np.array_equal(session.ids, expected(engine, "x fault"))
        assert session.explain()["way"] == "full"
        assert (store.stats()["shadow"]["failed"], store.stats()["shadow"]["mismatches"]) == (1, 1)
        assert store.stats()["shadow_error"].startswith("NotADirectoryError: ")
    assert [(each.path, "fault" in each.text) for each in seen] == [(None, True)]


def test_a_reproduction_of_what_windows_refuse(tmp_path: Path) -> None:
    """The fault is quarantined though the engine refuses a part of what surrounds it."""
    engine = StandIn(broken=b"fault")
    with SessionStore(engine, shadow=1.0, quarantine=tmp_path) as store:
        session = store.open("a", "fault ")
        engine.refused = b"fault"
        session.append("x")
        assert store._verifier.drain()
        assert store.stats()["shadow"]["failed"] == 0
        assert np.array_equal(session.ids, expected(engine, "fault x"))


def test_a_reproduction_that_stays_long_is_cut(tmp_path: Path) -> None:
    class Stubborn(StandIn):
        def _encode(self, text: bytes, broken: bytes) -> Window:
            found = super()._encode(text, broken)
            return found._replace(ids=found.ids + 1) if broken and len(text) > 300 else found

    seen: list[Mismatch] = []
    engine = Stubborn(broken=b"no word")
    with SessionStore(engine, shadow=1.0, quarantine=tmp_path, on_mismatch=seen.append) as store:
        session = store.open("a", "many words here " * 100)
        session.append("x")
        assert store._verifier.drain()
        assert np.array_equal(session.ids, expected(engine, session.text))
    assert [0 < len(each.text) <= 200 for each in seen] == [True]
    assert seen[0].path is not None
    assert json.loads(seen[0].path.read_text())["text"] == seen[0].text


def test_quarantine_survives_a_restart(tmp_path: Path) -> None:
    engine = StandIn(broken=b"fault")
    with SessionStore(engine, tmp_path, shadow=1.0) as store:
        store.open("a", "x ").append("fault")
        assert store._verifier.drain()
    with SessionStore(engine, tmp_path) as store:
        session = store.get("a")
        session.append(" fault")
        assert np.array_equal(session.ids, expected(engine, "x fault fault"))


def test_it_never_blocks() -> None:
    """A verifier that is behind drops samples and says so."""
    held = threading.Event()

    class Slow(StandIn):
        def encode_reference(self, text: bytes):
            if text:
                held.wait(30)
            return super().encode_reference(text)

    store = SessionStore(Slow(), shadow=1.0)
    session = store.open("a")
    start = time.perf_counter()
    for _ in range(200):
        session.append("word ")
    assert time.perf_counter() - start < 5
    assert store.stats()["shadow"]["dropped"] > 100
    held.set()
    store.close()


def test_what_waits_at_the_end_is_dropped() -> None:
    """Nobody waits for it, and nothing more is taken."""
    begun, held = threading.Event(), threading.Event()

    class Slow(StandIn):
        def encode_reference(self, text: bytes):
            if text:
                begun.set()
                held.wait(30)
            return super().encode_reference(text)

    store = SessionStore(Slow(), shadow=1.0)
    session = store.open("a")
    session.append("a")
    assert begun.wait(30)
    session.append("b")
    session.append("c")
    ending = threading.Thread(target=store.close)
    ending.start()
    while not store._verifier._closed:
        time.sleep(0.001)
    store._verifier.offer(session._entry)
    held.set()
    ending.join()
    assert store._verifier.drain(1.0)
    assert store.stats()["shadow"] == {"sampled": 3, "dropped": 3, "verified": 1, "mismatches": 0, "failed": 0}


def test_a_hook_that_raises_ends_nothing() -> None:
    def hook(mismatch: Mismatch) -> None:
        raise RuntimeError("of the hook")

    store = SessionStore(StandIn(broken=b"fault"), shadow=1.0, on_mismatch=hook)
    for name in "ab":
        store.open(name).append("a fault")
        assert store._verifier.drain()
    assert store.stats()["shadow"]["mismatches"] == store.stats()["shadow"]["failed"] == 2
    assert store.stats()["shadow_error"] == "RuntimeError: of the hook"
    store.close()
