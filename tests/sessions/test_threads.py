"""Many threads on one session and on many: no error, no difference, nothing that grows without bound."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.sessions.standin import StandIn, expected
from toktier_jax import SessionStore
from toktier_jax.errors import SessionError

THREADS = 32


def _run(store: SessionStore, seconds: float) -> None:
    errors: list[BaseException] = []
    steps = [0] * THREADS
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        draw = random.Random(number)
        try:
            while time.monotonic() < end:
                _step(store, draw, number)
                steps[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 2)
    half = _sizes(store)
    for thread in threads:
        thread.join()
    assert not errors, errors[:3]
    assert min(steps) > 0
    for name in ("shared", *(f"own{number}" for number in range(THREADS))):
        with store.open(name) as session:
            assert np.array_equal(session.ids, expected(store.engine, session.text)), name
    assert store._verifier.drain()
    stats = store.stats()
    assert stats["shadow"]["mismatches"] == stats["shadow"]["failed"] == 0
    assert stats["shadow"]["verified"] > 0
    assert stats["handles"] == 0
    assert stats["bytes"] < 4_000_000
    end, content = _sizes(store), store._memory.content
    assert all(after <= 2 * before + least for before, after, least in zip(half, end, (500_000, 500, 500), strict=True))
    assert content._keys.keys() <= set(store._memory.entries.values())
    assert {entry for found in content._by_hash.values() for entry in found} <= content._keys.keys()


def _sizes(store: SessionStore) -> tuple[int, int, int]:
    """Bytes of the memory, and what its look-up by content holds: texts, and beginnings of texts."""
    content = store._memory.content
    return store._memory.bytes, len(content._keys), len(content._by_hash)


def _step(store: SessionStore, draw: random.Random, number: int) -> None:
    name = "shared" if draw.random() < 0.3 else f"own{number}"
    with store.open(name) as session:
        kind = draw.random()
        if len(session.text) > 5000:
            session.update("again ")
        elif kind < 0.7:
            session.append("".join(draw.choices(("word ", "12", " ", "é", "<|x|>"), k=20)))
        elif kind < 0.8:
            session.update("some words ")
        else:
            with store.encode(session.text + " and more") as found:
                assert np.array_equal(found.ids, expected(store.engine, found.text))
        if name != "shared":
            assert np.array_equal(session.ids, expected(store.engine, session.text))
            if kind > 0.97:
                fork = f"fork{number}"
                try:
                    session.fork(fork).close()
                    store.delete(fork)
                except SessionError:
                    store.delete(fork)


def test_threads(scale: float) -> None:
    with SessionStore(StandIn(), shadow=0.2, max_bytes=2_000_000) as store:
        _run(store, 3 * scale)


def test_threads_on_disk(tmp_path: Path, scale: float) -> None:
    with SessionStore(StandIn(), tmp_path, shadow=0.2, max_bytes=500_000) as store:
        _run(store, 3 * scale)


@pytest.mark.slow
def test_threads_for_a_minute(tmp_path: Path) -> None:
    with SessionStore(StandIn(), shadow=0.05, max_bytes=2_000_000) as store:
        _run(store, 60)
