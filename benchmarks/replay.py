"""Agent transcripts replayed turn by turn: how each turn was repaired, and how fast text was served.

    python -m benchmarks.replay [--small] [--out DIR]

Every turn re-sends the whole transcript (`update`), as stateless clients do. Ids are compared with the reference's at
the end of each transcript.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests import artifacts
from toktier_jax import SessionStore

from . import report, texts

TOKENIZERS = ("qwen-3", "deepseek-v3", "o200k_base", "mistral-v1")
COLUMNS = (
    "tokenizer",
    "turns",
    "characters",
    "served_mb_s",
    "turn_p50_ms",
    "first_try",
    "widened",
    "fallen_back",
    "ids",
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tests the script, not the machine")
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    arguments = parser.parse_args(argv)
    names, size = (TOKENIZERS[:1], 20_000) if arguments.small else (TOKENIZERS, 400_000)
    rows = [replay(name, size) for name in names]
    print(report.table(rows, COLUMNS))
    report.write("replay", {"rows": rows}, arguments.out)
    drawing, axes = report.figure()
    axes.bar([row["tokenizer"] for row in rows], [row["served_mb_s"] for row in rows])
    axes.set(ylabel="MB of transcript served a second", title="replay")
    report.save(drawing, "replay", arguments.out)
    wrong = [row["tokenizer"] for row in rows if row["ids"] != "equal"]
    if wrong:
        print(f"error: other ids than the reference: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def replay(name: str, size: int) -> dict[str, Any]:
    """One transcript of `size` characters through one tokenizer."""
    tokenizer = artifacts.load(name).tokenizer
    tokenizer_end = len(tokenizer.spec.post_processor.after)
    times: list[float] = []
    served = 0
    with SessionStore(tokenizer) as store:
        session = store.open("agent", "")
        session.update("warm")
        session.update("")
        for turn in turns(size):
            start = time.perf_counter()
            session.update(turn)
            times.append(time.perf_counter() - start)
            served += len(turn)
        changes = session.explain()["changes"]
        expected = tokenizer.encode(session.text, route="reference").ids
        equal = np.array_equal(session.ids, expected[: len(expected) - tokenizer_end])
    repaired = changes.get("append", 0) + changes.get("edit", 0)
    widened = changes.get("widened", 0)
    fallen = sum(count for way, count in changes.items() if way.startswith(("full", "reference")))
    return {
        "tokenizer": name,
        "turns": len(times),
        "characters": size,
        "served_mb_s": served / sum(times) / 1e6,
        "turn_p50_ms": 1e3 * report.median(times),
        "first_try": (repaired - min(widened, repaired)) / max(repaired + fallen, 1),
        "widened": widened,
        "fallen_back": fallen,
        "ids": "equal" if equal else "DIFFERENT",
    }


def turns(size: int) -> Iterator[str]:
    """The transcript after each turn: it grows by about 1.5 K characters, log-normal."""
    whole = texts.make("chat", size)
    draw = np.random.default_rng(0)
    at = 0
    while at < size:
        at = min(size, at + max(1, int(draw.lognormal(np.log(1500), 0.8))))
        yield whole[:at]


if __name__ == "__main__":
    sys.exit(main())
