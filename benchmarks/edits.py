"""Edits in the middle, truncation and forks of long transcripts, beside a full encode by the reference; memory.

python -m benchmarks.edits [--small] [--out DIR]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests import artifacts
from toktier_jax import SessionStore

from . import report, texts

SIZE = 4_000_000
COLUMNS = ("figure", "value", "sign", "limit", "ok")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tests the script, not the machine")
    parser.add_argument("--tokenizer", default="qwen-3")
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    arguments = parser.parse_args(argv)
    rows, equal = measure(arguments.tokenizer, 30_000 if arguments.small else SIZE)
    print(report.table(rows, COLUMNS))
    report.write("edits", {"tokenizer": arguments.tokenizer, "figures": rows, "equal": equal}, arguments.out)
    times = [row for row in rows if "ms" in row["figure"]]
    drawing, axes = report.figure()
    axes.barh([row["figure"] for row in times], [row["value"] for row in times])
    axes.set(xscale="log", xlabel="ms", title="changes of a session of 4 M characters")
    report.save(drawing, "edits", arguments.out)
    if not equal:
        print("error: other ids than the reference", file=sys.stderr)
    return 0 if equal else 1


def measure(name: str, size: int) -> tuple[list[dict[str, Any]], bool]:
    """Figures with their limits, and whether the ids were the reference's at the end."""
    tokenizer = artifacts.load(name).tokenizer
    base = texts.make("chat", size)
    store = SessionStore(tokenizer)
    store.open("first", base).close()  # what is learned of pieces is no part of a session
    store.delete("first")
    tracemalloc.start()
    session = store.open("a", base[:1000])
    before = tracemalloc.get_traced_memory()[0]
    session.update(base)
    memory = (tracemalloc.get_traced_memory()[0] - before - len(base.encode())) / len(session)
    tracemalloc.stop()
    middle, repeats = size // 2, 25
    places = [middle + size // 100 * k for k in range(repeats)]
    edits = [_ms(lambda at=at: session.replace(at, at + 12, "an edit")) for at in places]
    forks = [_ms(lambda k=k: session.fork(f"f{k}")) for k in range(repeats)]
    cuts = [_ms(lambda k=k: session.truncate(size * 9 // 10 - size // 8000 * k)) for k in range(repeats)]
    start = time.perf_counter()
    expected = tokenizer.encode(session.text, route="reference").ids
    full = 1e3 * (time.perf_counter() - start)
    equal = np.array_equal(session.ids, expected)
    with tempfile.TemporaryDirectory() as folder, SessionStore(tokenizer, folder) as kept:
        stored = kept.open("a", base[: size // 4])
        parts = [texts.make("chat", 1400, 9000 + k) for k in range(repeats)]
        writes = [_ms(lambda part=part: stored.append(part)) for part in parts]
        text, count = len(stored.text.encode()), len(stored)
        disk = sum(part.stat().st_size for part in Path(folder).iterdir())
    rows = [
        ("edit in the middle, ms p50", _median(edits), 1.5),
        ("edit in the middle, processor ms p50", _median(edits, 1), None),
        ("fork, ms p50", _median(forks), 0.1),
        ("truncation, ms p50", _median(cuts), None),
        ("full encode by the reference, ms", full, None),
        ("memory, bytes a token beside the text", memory, 18.0),
        ("persisted append of 1.4 K, ms p50", _median(writes), 2.0),
        ("persisted append of 1.4 K, processor ms p50", _median(writes, 1), None),
        ("disk / (2 x text + 12 bytes a token)", disk / (2 * text + 12 * count), 1.0),
    ]
    return [
        {
            "figure": figure,
            "value": value,
            "sign": "" if limit is None else "<=",
            "limit": limit,
            "ok": "" if limit is None else "ok" if value <= limit else "MISSED",
        }
        for figure, value, limit in rows
    ], equal


def _ms(run: Callable[[], Any]) -> tuple[float, float]:
    """By the clock, and of the thread's processor time: what other processes of a busy machine take is left out."""
    start, busy = time.perf_counter(), time.thread_time()
    run()
    return 1e3 * (time.perf_counter() - start), 1e3 * (time.thread_time() - busy)


def _median(times: Sequence[tuple[float, float]], which: int = 0) -> float:
    return report.median([each[which] for each in times])


if __name__ == "__main__":
    sys.exit(main())
