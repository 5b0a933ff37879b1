"""A lock that is taken only where it is free."""

from __future__ import annotations

import random
import signal
import threading
import time

import pytest

from tests.sessions.standin import StandIn
from toktier_jax import SessionStore
from toktier_jax.sessions.locks import Busy, IfFree


def _is_free(lock: threading.RLock) -> bool:
    """For another thread."""
    found: list[bool] = []

    def look() -> None:
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()

    worker = threading.Thread(target=look)
    worker.start()
    worker.join()
    return found[0]


def test_if_free() -> None:
    lock = threading.RLock()
    with IfFree(lock):
        assert not _is_free(lock)
        with IfFree(lock):  # it is this thread's own
            pass
        assert not _is_free(lock)
    assert _is_free(lock)
    with pytest.raises(ValueError, match="passes"), IfFree(lock):
        raise ValueError("passes")
    assert _is_free(lock)


def test_busy() -> None:
    lock, taken, done = threading.RLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(30)
    with pytest.raises(Busy), IfFree(lock):
        pytest.fail("the lock was taken")
    done.set()
    holder.join()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signal.setitimer")
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one comes inside a weak reference
def test_a_signal_leaves_no_lock() -> None:
    """At random moments of a look through many sessions, each of whose locks is tried."""
    draw = random.Random(0)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with SessionStore(StandIn()) as store:
            handles = [store.open(f"s{number}", f"{number} word " * 12) for number in range(200)]
            interrupted = 0
            for _ in range(40):
                for each in handles:
                    each.append("a ")
                try:
                    signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0001, 0.002))
                    store.encode("x" * 100)
                    time.sleep(0.01)
                except KeyboardInterrupt:
                    interrupted += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                assert all(_is_free(each._entry.lock) for each in handles)
            assert interrupted
    finally:
        signal.signal(signal.SIGALRM, before)
