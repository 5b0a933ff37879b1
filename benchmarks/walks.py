"""A campaign of random walks over sessions of all tokenizers: append, edit, truncate, update, fork, evict, restart.

    python -m benchmarks.walks [--steps 200000] [--seconds S] [--tokenizers a,b] [--seed N] [--resume] [--name walks]
                               [--out DIR]

The ids are compared with a full encode of the reference after every step ("compared"), the spans after every
`--spans-every`-th of these ("spans"); in rounds that begin with a long text after every few steps. Steps count only
where they did something; "lengths" are by the characters of the text: below 10, below 100 and so on. What was counted
is written as JSON after each tokenizer, with the commit; a difference is shown, and ends its tokenizer. "whole" are
changes on a compiled pattern that were not repaired, which fails the run like a difference. `--resume` keeps the
tokenizers that the results hold of this commit and seed, but those that failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests import artifacts
from tests.sessions.walks import Difference, reference, walk, whole
from toktier_jax import SessionStore

from . import report, texts


class Round(NamedTuple):
    """Steps on one store, in memory or on a disk from which what is idle has to be read back.

    start, most, reach: characters, and compare_every: as in `walk`
    """

    steps: int
    disk: bool
    most: int
    start: int = 0
    reach: int | None = None
    compare_every: int = 1


ROUNDS = (
    Round(500, True, 300),
    Round(80, True, 24_000, 20_000, 3_000, 4),
    Round(500, False, 150),
    Round(500, False, 300),
    Round(80, False, 240_000, 200_000, 20_000, 10),
    Round(500, True, 1000),
    Round(500, False, 300),
    Round(500, True, 150),
)
"""In turn: one step in 20 is on a text of many chunks and blocks."""
SMALL = (Round(20, True, 300), Round(5, True, 24_000, 20_000, 3_000, 4), Round(5, False, 240_000, 200_000, 20_000, 4))
TEXTS = ("chat", "code", "english")
"""What a long text is made of."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tests the script")
    parser.add_argument("--steps", type=int, default=200_000, help="of all tokenizers together")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no tokenizer is begun after them")
    parser.add_argument("--tokenizers", default="", help="names, with commas; all by default")
    parser.add_argument("--spans-every", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="keep the tokenizers that the results already hold")
    parser.add_argument("--name", default="walks", help="of the results; the summary adds up all walks*.json")
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    arguments = parser.parse_args(argv)
    names = arguments.tokenizers.split(",") if arguments.tokenizers else list(artifacts.NAMES)
    steps, rounds = arguments.steps, ROUNDS
    if arguments.small:
        names, steps, rounds = ["qwen-3"], sum(each.steps for each in SMALL), SMALL
    path = arguments.out / f"{arguments.name}.json"
    known = report.kept(path, "tokenizers", arguments.seed) if arguments.resume else {}
    known = {name: row for name, row in known.items() if not row["failed"]}
    results = run(names, steps, rounds, arguments.seconds, arguments.spans_every, arguments.seed, known, path)
    print(json.dumps(results, indent=1, ensure_ascii=False))
    return 1 if results["differences"] or results["failed"] or results["whole"] else 0


def run(
    names: Sequence[str],
    steps: int,
    rounds: Sequence[Round],
    seconds: float,
    spans_every: int,
    seed: int,
    known: Mapping[str, dict[str, Any]],
    path: Path,
) -> dict[str, Any]:
    """Counts of steps, of how changes were repaired, by tokenizer. Written after each tokenizer; those of `known` are
    taken as they are."""
    begin, commit = time.monotonic(), report.commit()
    by_name = dict(known)
    results: dict[str, Any] = {}
    share = -(-steps // len(names))
    for name in names:
        if name not in by_name and time.monotonic() - begin < seconds:
            by_name[name] = {"commit": commit, **walks_of(name, share, rounds, spans_every, seed)}
            print(f"{name}: {by_name[name]}", file=sys.stderr)
        found = by_name.values()
        results = {
            "seed": seed,
            "asked": len({*names, *by_name}),
            **{count: sum(each[count] for each in found) for count in ("steps", "compared", "spans")},
            **{count: _sum(each[count] for each in found) for count in ("kinds", "lengths", "changes")},
            "longest": max((each["longest"] for each in found), default=0),
            "differences": _named(by_name, "difference"),
            "failed": _named(by_name, "failed"),
            "whole": _named(by_name, "whole"),
            "skipped": _named(by_name, "skipped"),
            "tokenizers": by_name,
        }
        report.write(path.stem, results, path.parent)
    return results


def walks_of(name: str, steps: int, rounds: Sequence[Round], spans_every: int, seed: int) -> dict[str, Any]:
    """The walks of one tokenizer: its counts, the first difference, what was raised, or why it was skipped."""
    done = {count: Counter[str]() for count in ("kinds", "lengths", "changes", "whole")}
    found: dict[str, Any] = {"steps": 0, "compared": 0, "spans": 0, "longest": 0}
    found |= {**done, "difference": None, "failed": None, "skipped": None}
    try:
        tokenizer = artifacts.load(name).tokenizer
    except artifacts.Missing as missing:
        return {**found, "skipped": str(missing)}
    if tokenizer.spec.padding or tokenizer.spec.truncation:
        return {**found, "skipped": "the file pads or truncates"}
    encode, begin = reference(tokenizer), time.monotonic()
    for number, round_ in enumerate(itertools.cycle(rounds)):
        if (left := steps - found["steps"]) <= 0:
            break
        stores: list[SessionStore] = []
        with tempfile.TemporaryDirectory() as folder:
            path, memory = (folder, 1) if round_.disk else (None, 1 << 30)

            def open_store(path: str | None = path, memory: int = memory, stores: list[SessionStore] = stores):
                stores.append(SessionStore(tokenizer, path, max_bytes=memory))
                return stores[-1]

            draw = random.Random(f"{seed} {name} {number}")
            start = texts.make(draw.choice(TEXTS), round_.start, draw.randrange(100)) if round_.start else ""
            try:
                one = walk(
                    open_store(),
                    open_store if path else None,
                    encode,
                    draw,
                    min(left, round_.steps),
                    start=start,
                    most=round_.most,
                    reach=round_.reach,
                    compare_every=round_.compare_every,
                    spans_every=spans_every,
                )
            except Difference as error:
                found["difference"] = f"seed {seed}, round {number}: {error}"
                break
            except Exception as error:  # a finding as well, and the other tokenizers are still to be walked
                traceback.print_exc()
                found["failed"] = f"seed {seed}, round {number}: {type(error).__name__}: {error}"
                break
            finally:
                for store in stores:
                    done["changes"].update(store.stats()["changes"])
                    done["whole"].update(whole(store))
                    store.close()
        done["kinds"].update(one.kinds)
        done["lengths"].update({str(length): count for length, count in sorted(one.lengths.items())})
        found["steps"] += one.kinds.total()
        found["compared"] += one.compared
        found["spans"] += one.spans
        found["longest"] = max(found["longest"], one.longest)
    return {**found, "seconds": round(time.monotonic() - begin, 1)}


def _named(rows: Mapping[str, Mapping[str, Any]], what: str) -> list[str]:
    return [f"{name}: {row[what]}" for name, row in rows.items() if row[what]]


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


if __name__ == "__main__":
    sys.exit(main())
