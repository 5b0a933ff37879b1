"""Requests that arrive at random: the highest rate at which 99% are answered in 50 ms, and in 500 ms.

    python -m benchmarks.capacity [--small] [--out DIR]

Open loop, Poisson arrivals: 2.3% are cold starts of a new context (log-normal, median 40 K, at most 120 K characters),
the others append a log-normal 1.4 K to one of those. Sessions with 5% shadow verification, beside a stateless front
end that encodes each request's whole context with `tokenizers`. Two worker threads each. The rates are compared at
50 ms, or, where the stateless front end is never as fast, at 500 ms. Of the sessions is written how many changes there
were and how many of them were sampled, dropped (the verifier was behind), verified and found wrong. A request that is
not answered, a mismatch and a verification that failed are errors.
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests import artifacts
from toktier_jax import SessionStore

from . import report, texts

COLD = 0.023
MEDIAN, CAP, APPEND = 40_000, 120_000, 1_400
LIMITS = (50.0, 500.0)
WORKERS = 2
LEAST = 20.0
"""Times the stateless rate that sessions are held to."""
COLUMNS = ("front end", "rate", "p50_ms", "p99_ms", "sent", "answered", "changes", "verified", "mismatches")

Request = tuple[str, str]
"""The context's name, and its whole text."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tests the script, not the machine")
    parser.add_argument("--tokenizer", default="qwen-3")
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    arguments = parser.parse_args(argv)
    tokenizer = artifacts.load(arguments.tokenizer).tokenizer
    seconds, rates = (1.0, (20.0,)) if arguments.small else (6.0, (50.0, 100.0, 200.0, 300.0, 400.0, 600.0, 800.0))
    slow = (20.0,) if arguments.small else (1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0)
    rows: list[dict[str, Any]] = []
    best = {
        "stateless": climb(rows, "stateless", slow, seconds, lambda: Stateless(tokenizer)),
        "sessions": climb(rows, "sessions", rates, seconds, lambda: Stateful(tokenizer)),
    }
    print(report.table(rows, COLUMNS))
    limit = LIMITS[0] if best["stateless"][LIMITS[0]] else LIMITS[1]
    one, other = best["sessions"][limit], best["stateless"][limit]
    ratio = one / other if other else float("inf")
    met = "ok" if ratio >= LEAST else f"MISSED, >= {LEAST:g}"
    print(f"highest rate at p99 <= {limit:.0f} ms: sessions {one:g}/s, stateless {other:g}/s, {ratio:.1f} x: {met}")
    wrong = sum(row[what] for row in rows for what in ("mismatches", "failed") if what in row)
    results = {"tokenizer": arguments.tokenizer, "rows": rows, "best": best, "limit_ms": limit, "ratio": ratio}
    report.write("capacity", results, arguments.out)
    drawing, axes = report.figure()
    for name in best:
        cells = [row for row in rows if row["front end"] == name]
        axes.loglog([row["rate"] for row in cells], [row["p99_ms"] for row in cells], "o-", label=name)
    axes.axhline(limit, linewidth=0.8, color="black")
    axes.set(xlabel="requests a second", ylabel="ms, p99", title="capacity of two cores")
    axes.legend(frameon=False)
    report.save(drawing, "capacity", arguments.out)
    if wrong:
        print(f"error: {wrong} verifications failed or found other ids", file=sys.stderr)
    return 1 if wrong else 0


class Stateless:
    """Encodes what it gets, whole."""

    def __init__(self, tokenizer: Any) -> None:
        self._encode = tokenizer.reference.encode_batch_fast  # unlike `encode`, it lets the other worker run

    def warm(self, contexts: Sequence[Request]) -> None:
        self._encode(["warm"])

    def serve(self, request: Request) -> None:
        self._encode([request[1]])

    def close(self) -> dict[str, int]:
        return {}


class Stateful:
    """A session for each context."""

    def __init__(self, tokenizer: Any) -> None:
        self._store = SessionStore(tokenizer, shadow=0.05)

    def warm(self, contexts: Sequence[Request]) -> None:
        for name, text in contexts:
            self._store.open(name, text).close()

    def serve(self, request: Request) -> None:
        with self._store.open(request[0]) as session:
            session.update(request[1])

    def close(self) -> dict[str, int]:
        """What was verified: numbers of changes."""
        self._store._verifier.drain(5)
        self._store.close()
        stats = self._store.stats()
        outcomes = (count for way, count in stats["changes"].items() if way not in ("widened", "by the device"))
        return {"changes": sum(outcomes), **stats["shadow"]}


def climb(
    rows: list[dict[str, Any]], name: str, rates: Sequence[float], seconds: float, make: Callable[[], Any]
) -> dict[float, float]:
    """Measures rising rates until even the loosest limit is missed. Returns the highest rate for each limit."""
    best = dict.fromkeys(LIMITS, 0.0)
    for rate in rates:
        front = make()
        try:
            sent, latencies = run(front, rate, max(seconds, 20 / rate))
        finally:
            verified = front.close()
        if len(latencies) != sent:
            raise RuntimeError(f"{name} at {rate:g}/s: {sent} requests were sent, {len(latencies)} answered")
        row = {
            "front end": name,
            "rate": rate,
            "p50_ms": 1e3 * report.median(latencies),
            "p99_ms": 1e3 * report.percentile(latencies, 99),
            "sent": sent,
            "answered": len(latencies),
            **verified,
        }
        rows.append(row)
        for limit in LIMITS:
            if row["p99_ms"] <= limit:
                best[limit] = rate
        if row["p99_ms"] > LIMITS[-1]:
            break
    return best


def run(front: Any, rate: float, seconds: float) -> tuple[int, list[float]]:
    """How many requests were sent; seconds from arrival to answer of those answered. Raises what a worker raised."""
    draw = np.random.default_rng(int(rate))
    contexts = [(f"c{number}", _context(draw, number)) for number in range(24)]
    front.warm(contexts)
    requests: list[tuple[float, Request]] = []
    at = 0.0
    while at < seconds:
        at += draw.exponential(1 / rate)
        number = int(draw.integers(len(contexts)))
        name, text = contexts[number]
        if draw.random() < COLD or len(text) > CAP:
            name, text = f"n{len(requests)}", _context(draw, len(requests))
        else:
            size = max(1, int(draw.lognormal(np.log(APPEND), 0.7)))
            text += texts.make("chat", size, int(draw.integers(1, 500)))
        contexts[number] = name, text
        requests.append((at, (name, text)))
    waiting: queue.Queue[tuple[float, Request] | None] = queue.Queue()
    latencies: list[float] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            while (item := waiting.get()) is not None:
                front.serve(item[1])
                latencies.append(time.perf_counter() - item[0])
        except Exception as error:  # else the thread would end in silence
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    begin, sent = time.perf_counter(), 0
    for arrival, request in requests:
        if errors:
            break
        time.sleep(max(0.0, begin + arrival - time.perf_counter()))
        waiting.put((begin + arrival, request))
        sent += 1
    for _ in workers:
        waiting.put(None)
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return sent, latencies


def _context(draw: np.random.Generator, number: int) -> str:
    size = int(min(CAP, max(1000, draw.lognormal(np.log(MEDIAN), 0.7))))
    return texts.make("chat", size, number % 40)


if __name__ == "__main__":
    sys.exit(main())
