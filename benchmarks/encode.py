"""Encode one text: cold and warm, four kinds, 10 K to 4 M characters, every peer; then the figures of figures.py.

    python -m benchmarks.encode [--small] [--only grid|figures] [--out DIR]

Each cell is a process of its own (benchmarks/worker.py says what cold means). Times are wall seconds; run it on an
otherwise idle machine, under `taskset -c 0` for one core.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import artifacts

from . import figures, peers, report, worker

SIZES = (10_000, 100_000, 1_000_000, 4_000_000)
TEXTS = ("english", "code", "chinese", "chat")
COLUMNS = ("text", "size", "engine", "cold_ms", "warm_ms", "cold_mb_s", "warm_mb_s", "x_reference", "ids", "route")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a minute's worth: tests the script, not the machine")
    parser.add_argument("--only", choices=("grid", "figures"), help="one of the two parts")
    parser.add_argument("--tokenizer", default="qwen-3")
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    arguments = parser.parse_args(argv)
    wrong = 0
    if arguments.only != "figures":
        rows, skipped = grid(arguments.tokenizer, small=arguments.small)
        wrong = sum(row["ids"] != "equal" for row in rows)
        print(report.table(rows, COLUMNS))
        for reason in skipped:
            print(f"SKIPPED {reason}")
        report.write("encode", {"tokenizer": arguments.tokenizer, "rows": rows, "skipped": skipped}, arguments.out)
        plot([row for row in rows if row["ids"] == "equal"], arguments.out)
    if arguments.only != "grid":
        checks = figures.run_all(small=arguments.small)
        print(report.table(checks, ("figure", "value", "sign", "limit", "ok")))
        report.write("figures", {"figures": checks}, arguments.out)
    if wrong:
        print(f"error: {wrong} rows have other ids than the reference", file=sys.stderr)
    return 1 if wrong else 0


def grid(tokenizer: str, *, small: bool = False) -> tuple[list[dict[str, Any]], list[str]]:
    """One row for each text, size and engine; and what was skipped, with reasons."""
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    kinds, sizes = (("english",), (5_000,)) if small else (TEXTS, SIZES)
    engines = peers.of(artifacts.load(tokenizer))
    with tempfile.TemporaryDirectory() as cache:
        # Compiling is measured apart (figures.py): here a capacity is compiled once for all children.
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", cache)
        for text, size in itertools.product(kinds, sizes):
            reference: dict[str, Any] = {}
            for engine in engines:
                job = worker.Job(engine, tokenizer, text, size, repeats=1 if small else report.REPEATS)
                row = worker.in_fresh_process(job)
                if "skipped" in row:
                    skipped.append(f"{engine} on {text}: {row['skipped']}")
                    continue
                reference = reference or row
                row["ids"] = "equal" if row["digest"] == reference["digest"] else "DIFFERENT"
                row["x_reference"] = reference["cold_ms"] / row["cold_ms"]
                rows.append(row)
                print(f"{text} {size:,} {engine}: {row['cold_ms']:.1f} ms cold", file=sys.stderr)
    return rows, list(dict.fromkeys(skipped))


def plot(rows: Sequence[report.Row], folder: Path) -> None:
    """Cold MB/s over text size, a panel a text, a line an engine; logarithmic in both."""
    for text in dict.fromkeys(row["text"] for row in rows):
        drawing, axes = report.figure()
        for engine in dict.fromkeys(row["engine"] for row in rows):
            cells = [row for row in rows if (row["text"], row["engine"]) == (text, engine)]
            style = {"linewidth": 2.5, "color": "black"} if engine == peers.OURS else {"linewidth": 1.2}
            sizes, speeds = [row["size"] for row in cells], [row["cold_mb_s"] for row in cells]
            axes.loglog(sizes, speeds, "o-", label=engine, **style)
        axes.set(xlabel="characters", ylabel="MB/s, first sight of the text", title=f"encode, {text}")
        axes.legend(frameon=False)
        report.save(drawing, f"encode-{text}", folder)


if __name__ == "__main__":
    sys.exit(main())
