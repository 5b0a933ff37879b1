"""ShadowVerifier: encodes a sample of what sessions hold again by the reference, in a thread, off the request path.

When it is behind, samples are dropped and counted. On a mismatch it has the session go on by the reference, writes the
smallest reproduction that it finds, and calls the user's hook, each whatever the others raise. It never blocks a
request and never raises into one.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.sessions.engine import Engine
from toktier_jax.sessions.record import Record
from toktier_jax.verify.shrink import shrink

if TYPE_CHECKING:
    from toktier_jax.sessions.entry import Entry

WAITING = 16
"""Samples that wait at most."""

REPRODUCTION = 200
"""Characters of a reproduction at most; as many are shown of a text that has none so short."""

SEARCH_SECONDS = 10.0

T = TypeVar("T")


@dataclass(frozen=True)
class Mismatch:
    """A session whose ids were not the reference's.

    text      the smallest text found on which the engine differs from the reference; where that has more than 200
              characters, or only the repair differed, the text round the first id that did
    position  the first byte of the session's text where the ids differ
    path      the file with all this, None where no folder was given
    """

    session: str
    revision: int
    text: str
    position: int
    path: Path | None


class ShadowVerifier:
    """Verifies a share `rate` of changes. `offer` returns at once."""

    def __init__(
        self,
        engine: Engine,
        rate: float,
        *,
        folder: str | os.PathLike[str] | None = None,
        on_mismatch: Callable[[Mismatch], object] | None = None,
        distrust: Callable[[Entry, str], Entry | None] | None = None,
    ) -> None:
        """`distrust(entry, reason)` is called before anything else, and returns what is in memory of the session now;
        `folder` is made when it is first needed."""
        self._engine, self._rate = engine, rate
        self._folder = None if folder is None else Path(folder)
        self._hook, self._distrust = on_mismatch, distrust
        self._draw = random.Random()
        self._queue: queue.Queue[tuple[Entry, Record] | None] = queue.Queue(WAITING)
        self._counts: Counter[str] = Counter()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._pending = 0
        self._closed = False
        self._error = ""
        if rate > 0:
            engine.reference_ids(b"")  # loads a reference that is loaded when it is needed: now, not beside requests

    def offer(self, entry: Entry) -> None:
        """Maybe verifies what the entry holds now. Called with the entry's lock held."""
        if self._rate <= 0 or self._draw.random() >= self._rate:
            return
        with self._lock:
            if self._closed or self._queue.full():
                self._counts["dropped"] += 1
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="toktier-jax shadow", daemon=True)
                self._thread.start()
            self._queue.put_nowait((entry, entry.record.copy()))  # only here is anything put while it is open
            self._pending += 1
            self._counts["sampled"] += 1

    def stats(self) -> dict[str, int]:
        """sampled, dropped, verified, mismatches, failed: numbers of samples."""
        with self._lock:
            return {name: self._counts[name] for name in ("sampled", "dropped", "verified", "mismatches", "failed")}

    @property
    def error(self) -> str:
        """What was raised while the last sample that failed was verified; "" where none has failed."""
        return self._error

    def drain(self, timeout: float = 60.0) -> bool:
        """Waits until every sample so far is verified; False if that took too long."""
        end = time.monotonic() + timeout
        while self._pending and time.monotonic() < end:
            time.sleep(0.002)
        return not self._pending

    def close(self) -> None:
        """Ends the thread; samples that wait are dropped."""
        with self._lock:
            self._closed = True
            thread = self._thread
            while True:
                try:
                    dropped = self._queue.get_nowait() is not None
                except queue.Empty:
                    break
                self._counts["dropped"] += dropped
                self._pending -= dropped
        if thread is None:
            return
        self._queue.put(None)
        if thread is not threading.current_thread():
            thread.join(timeout=30)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._verify_family(*item)
            except Exception as error:  # the verifier must not end, whatever an engine or a hook raises
                self._error = f"{type(error).__name__}: {error}"
                self._count("failed")
            finally:
                with self._lock:
                    self._pending -= 1

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def _verify_family(self, entry: Entry, record: Record) -> None:
        """Verifies a record; where it is wrong also those that it began as a copy of, and their copies."""
        errors: list[Exception] = []
        seen, work = {entry}, [(entry, record)]
        while work and not self._closed:
            entry, record = work.pop()
            for each in self._verify(entry, record, errors):
                for relative in each.family.members():
                    if relative in seen:
                        continue
                    seen.add(relative)
                    with relative.lock:
                        if not relative.deleted and not relative.record.distrust:
                            work.append((relative, relative.record.copy()))
        if errors:
            raise errors[0]

    def _verify(self, entry: Entry, record: Record, errors: list[Exception]) -> list[Entry]:
        """Verifies a record. Returns the entries that are wrong: this one, and what is in memory of it now."""
        text = str(record.text)
        expected = self._engine.reference_ids(text.encode())
        found = record.tokens.ids()
        self._count("verified")
        if np.array_equal(expected, found):
            return []
        self._count("mismatches")
        shorter = min(len(expected), len(found))
        differs = np.flatnonzero(expected[:shorter] != found[:shorter])
        first = int(differs[0]) if len(differs) else shorter
        tokens = record.tokens.get(first, first + 1)
        position = int(tokens.starts[0]) if len(tokens.starts) else record.text.byte_length
        around = record.text.char_of_floor(position)
        reason = f"the ids were not the reference's at byte {position} (revision {record.revision})"

        def attempt(step: Callable[..., T], *arguments: Any) -> T | None:
            try:
                return step(*arguments)
            except Exception as error:
                errors.append(error)
                return None

        now = None if self._distrust is None else attempt(self._distrust, entry, reason)
        small = attempt(self._reproduce, text, around) or _around(text, around, REPRODUCTION // 2)
        path = attempt(self._write, entry, record, small, position)
        if self._hook is not None:
            attempt(self._hook, Mismatch(entry.name, record.revision, small, position, path))
        return [entry] if now is None or now is entry else [entry, now]

    def _wrong(self, text: str) -> bool:
        """Whether the engine is; not asked any more once the verifier is closed, so that a search ends."""
        data = text.encode()
        found = self._found(data) if data and not self._closed else None
        return found is not None and not np.array_equal(found, self._engine.reference_ids(data))

    def _found(self, data: bytes) -> np.ndarray | None:
        """The ids of the engine's own encode; None where it refuses the text."""
        try:
            return self._engine.encode_window(data, at_start=True, at_end=True).ids
        except UnsupportedError:
            return None

    def _reproduce(self, text: str, around: int) -> str:
        """The smallest text found on which the engine is wrong; where none is short enough, what is round the place."""
        end = time.monotonic() + SEARCH_SECONDS
        reach = 8
        while reach < 2 * len(text) and time.monotonic() < end:
            part = _around(text, around, reach)
            if self._wrong(part):
                small = shrink(part, self._wrong, end - time.monotonic())
                return small if len(small) <= REPRODUCTION else _around(text, around, REPRODUCTION // 2)
            reach *= 4
        return _around(text, around, REPRODUCTION // 2)

    def _write(self, entry: Entry, record: Record, text: str, position: int) -> Path | None:
        if self._folder is None:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        data = text.encode()
        found = self._found(data)
        report: dict[str, Any] = {
            "session": entry.name,
            "revision": record.revision,
            "fingerprint": self._engine.info.fingerprint,
            "position": position,
            "text": text,
            "expected": self._engine.reference_ids(data).tolist(),
            "found": None if found is None else found.tolist(),
        }
        path = self._folder / f"mismatch-{hashlib.sha256(data).hexdigest()[:16]}.json"
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path


def _around(text: str, at: int, reach: int) -> str:
    return text[max(at - reach, 0) : at + reach]
