"""Appends to transcripts of 100 K to 8 M characters: ours, toktier's `append_patch`, gigatoken on the whole text.

    python -m benchmarks.append [--small] [--most CHARACTERS] [--out DIR]

4 sessions x 6 appends of 1.4 K characters at each context size, the first of each not timed; `update(full_text)` with
and without an emoji in the text; then appends of 1 K to 100 K at one size. The ids of every session are compared with a
full encode of the reference at its end. `cpu_ms` is the median of the calling thread's processor time: it leaves out
what other processes of a busy machine take.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests import artifacts
from toktier_jax import SessionStore
from toktier_jax.errors import UnsupportedError

from . import peers, report, texts

CONTEXTS = (100_000, 500_000, 1_000_000, 2_000_000, 4_400_000, 8_000_000)
DELTAS = (1_000, 10_000, 100_000)
APPEND = 1_400
SESSIONS, APPENDS = 4, 6
COLUMNS = ("context", "engine", "delta", "p50_ms", "p90_ms", "cpu_ms", "x_ours", "ids")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tests the script, not the machine")
    parser.add_argument("--tokenizer", default="qwen-3")
    parser.add_argument("--most", type=int, default=CONTEXTS[-1], help="characters of the longest context")
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    arguments = parser.parse_args(argv)
    rows, skipped = measure(arguments.tokenizer, small=arguments.small, most=arguments.most)
    print(report.table(rows, COLUMNS))
    for reason in skipped:
        print(f"SKIPPED {reason}")
    checks = figures(rows)
    print(report.table(checks, ("figure", "value", "sign", "limit", "ok")))
    results = {"tokenizer": arguments.tokenizer, "rows": rows, "figures": checks, "skipped": skipped}
    report.write("append", results, arguments.out)
    plot(rows, arguments.out)
    wrong = sum(row["ids"] == "DIFFERENT" for row in rows)
    if wrong:
        print(f"error: {wrong} rows have other ids than the reference", file=sys.stderr)
    return 1 if wrong else 0


def measure(name: str, *, small: bool = False, most: int = CONTEXTS[-1]) -> tuple[list[dict[str, Any]], list[str]]:
    """One row for each context, engine and length of an append; and what was skipped."""
    artifact = artifacts.load(name)
    store = SessionStore(artifact.tokenizer)
    reference = peers.load(peers.REFERENCE, artifact)
    contexts = (20_000,) if small else tuple(each for each in CONTEXTS if each <= most)
    sessions, appends = (1, 3) if small else (SESSIONS, APPENDS)
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    others: dict[str, Any] = {}
    for peer in () if small else ("toktier", "gigatoken"):
        try:
            others[peer] = peers.load(peer, artifact)
        except (UnsupportedError, ImportError) as error:
            skipped.append(f"{peer}: {error}")
    for context in contexts:
        base = texts.make("chat", context)
        parts = _parts(APPEND, sessions * appends)
        ours: list[Timing] = []
        wrong = False
        origin = store.open("origin", base)
        for number in range(sessions):
            with origin.fork(f"a{number}") as session:
                times = []
                for part in parts[number * appends : (number + 1) * appends]:
                    times.append(_timed(lambda session=session, part=part: session.append(part)))
                ours += times[1:]
                if number == 0:
                    wrong = not np.array_equal(session.ids, reference.ids(reference.encode(session.text)))
            store.delete(f"a{number}")
        rows.append(_row(context, "append", APPEND, ours, ours, wrong))
        for emoji in ("", "🙂"):
            with origin.fork("u") as session:
                text, times = base + emoji, []
                session.update(text)
                for part in parts[: appends * sessions]:
                    text += part
                    times.append(_timed(lambda session=session, text=text: session.update(text)))
            store.delete("u")
            rows.append(_row(context, "update" + (", emoji" if emoji else ""), APPEND, times[1:], ours, None))
        origin.close()
        store.delete("origin")
        if "toktier" in others and context <= 4_400_000:
            rows.append(_row(context, "toktier append_patch", APPEND, _toktier(others, base, parts), ours, None))
        if "gigatoken" in others and context <= 4_400_000:
            engine = others["gigatoken"]
            whole = base + parts[0]
            engine.encode(whole)
            times = [_timed(functools.partial(engine.encode, whole)) for _ in range(5)]
            rows.append(_row(context, "gigatoken, warm", APPEND, times, ours, None))
        print(f"{context:,}: {rows[-1]['p50_ms']:.3f}", file=sys.stderr)
    base = texts.make("chat", contexts[0])
    for delta in DELTAS[:1] if small else DELTAS:
        with store.open("d", base) as session:
            times = [_timed(lambda part=part, s=session: s.append(part)) for part in _parts(delta, 6)]
        store.delete("d")
        rows.append(_row(contexts[0], "append", delta, times[1:], times[1:], None))
    return rows, skipped


def _toktier(others: dict[str, Any], base: str, parts: list[str]) -> list[Timing]:
    tokenizer = others["toktier"].tokenizer
    with tokenizer.session(text=base) as session:
        times = [_timed(lambda part=part: session.append_patch(part)) for part in parts[:APPENDS]]
    return times[1:]


def _parts(size: int, count: int) -> list[str]:
    """Parts of the chat text that no context of this protocol begins with."""
    return [texts.make("chat", size, 9_000_000 // size + number) for number in range(count)]


Timing = tuple[float, float]
"""Seconds by the clock, and of the thread's processor time."""


def _timed(run: Callable[[], Any]) -> Timing:
    start, busy = time.perf_counter(), time.thread_time()
    run()
    return time.perf_counter() - start, time.thread_time() - busy


def _row(
    context: int, engine: str, delta: int, times: Sequence[Timing], ours: Sequence[Timing], wrong: bool | None
) -> dict[str, Any]:
    wall = [each for each, _ in times]
    return {
        "context": context,
        "engine": engine,
        "delta": delta,
        "p50_ms": 1e3 * report.median(wall),
        "p90_ms": 1e3 * report.percentile(wall, 90),
        "cpu_ms": 1e3 * report.median([busy for _, busy in times]),
        "x_ours": report.median(wall) / report.median([each for each, _ in ours]),
        "ids": "" if wrong is None else "DIFFERENT" if wrong else "equal",
    }


def figures(rows: Sequence[report.Row]) -> list[dict[str, Any]]:
    """What appends are held to, for those cells that were measured."""

    def cell(context: int, engine: str) -> float | None:
        found = [r["p50_ms"] for r in rows if (r["context"], r["engine"], r["delta"]) == (context, engine, APPEND)]
        return found[0] if found else None

    def ratio(one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else one / other

    toktier, giga = "toktier append_patch", "gigatoken, warm"
    ours = [time for context in CONTEXTS if (time := cell(context, "append")) is not None]
    slowest = max(ours) if len(ours) > 1 else None
    checks = [
        ("toktier / ours at 100 K", ratio(cell(100_000, toktier), cell(100_000, "append")), ">=", 3.0),
        ("toktier / ours at 1 M", ratio(cell(1_000_000, toktier), cell(1_000_000, "append")), ">=", 10.0),
        ("gigatoken / ours at 500 K", ratio(cell(500_000, giga), cell(500_000, "append")), ">=", 1.0),
        (f"ours, slowest of {len(ours)} sizes / at 100 K", ratio(slowest, cell(100_000, "append")), "<=", 1.3),
        ("update at 1 M, ms", cell(1_000_000, "update"), "<=", 0.6),
        ("update at 1 M with an emoji, ms", cell(1_000_000, "update, emoji"), "<=", 0.9),
    ]
    return [
        {
            "figure": name,
            "value": value,
            "sign": sign,
            "limit": limit,
            "ok": "ok" if (value >= limit if sign == ">=" else value <= limit) else "MISSED",
        }
        for name, value, sign, limit in checks
        if value is not None
    ]


def plot(rows: Sequence[report.Row], folder: Path) -> None:
    drawing, axes = report.figure()
    for engine in dict.fromkeys(row["engine"] for row in rows):
        cells = [row for row in rows if row["engine"] == engine and row["delta"] == APPEND]
        axes.loglog([row["context"] for row in cells], [row["p50_ms"] for row in cells], "o-", label=engine)
    axes.set(xlabel="characters before", ylabel="ms, p50", title="append of 1.4 K characters")
    axes.legend(frameon=False)
    report.save(drawing, "append", folder)


if __name__ == "__main__":
    sys.exit(main())
