"""A campaign of random walks over sessions of all tokenizers: append, edit, truncate, update, fork, evict, restart.

    python -m benchmarks.walks [--steps 200000] [--seconds S] [--tokenizers a,b] [--seed N] [--resume] [--out DIR]

After every step the ids are compared with a full encode of the reference, the spans after every `--spans-every`-th
("compared"). What was counted is written as JSON after each tokenizer; a difference is shown, and ends
its tokenizer.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import artifacts
from tests.sessions.walks import Difference, reference, walk
from toktier_jax import SessionStore

from . import report

ROUND = 500
MOST = (300, 150, 300, 1000)
"""Characters of a text in a round, about; a longer one is truncated next."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tests the script")
    parser.add_argument("--steps", type=int, default=200_000, help="of all tokenizers together")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no tokenizer is begun after them")
    parser.add_argument("--tokenizers", default="", help="names, with commas; all by default")
    parser.add_argument("--spans-every", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="keep the tokenizers that the results already hold")
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    arguments = parser.parse_args(argv)
    names = arguments.tokenizers.split(",") if arguments.tokenizers else list(artifacts.NAMES)
    steps = arguments.steps
    if arguments.small:
        names, steps = ["qwen-3"], 40
    path = arguments.out / "walks.json"
    known = json.loads(path.read_text())["tokenizers"] if arguments.resume and path.exists() else {}
    results = run(names, steps, arguments.seconds, arguments.spans_every, arguments.seed, known, arguments.out)
    print(json.dumps(results, indent=1, ensure_ascii=False))
    return 1 if results["differences"] else 0


def run(
    names: Sequence[str],
    steps: int,
    seconds: float,
    spans_every: int,
    seed: int,
    known: Mapping[str, Any],
    folder: Path,
) -> dict[str, Any]:
    """Counts of steps, of how changes were repaired, by tokenizer. Written after each tokenizer; those of `known` are
    taken as they are."""
    begin = time.monotonic()
    by_name: dict[str, Any] = {name: known[name] for name in names if name in known}
    results: dict[str, Any] = {}
    share = -(-steps // len(names))
    for name in names:
        if name not in by_name and time.monotonic() - begin < seconds:
            by_name[name] = walks_of(name, share, spans_every, seed)
            print(f"{name}: {by_name[name]}", file=sys.stderr)
        results = {
            "steps": sum(each["steps"] for each in by_name.values()),
            "compared": sum(each["compared"] for each in by_name.values()),
            "kinds": _sum(each["kinds"] for each in by_name.values()),
            "changes": _sum(each["changes"] for each in by_name.values()),
            "differences": [f"{name}, {each['difference']}" for name, each in by_name.items() if each["difference"]],
            "skipped": [f"{name}: {each['skipped']}" for name, each in by_name.items() if each["skipped"]],
            "tokenizers": by_name,
        }
        report.write("walks", results, folder)
    return results


def walks_of(name: str, steps: int, spans_every: int, seed: int) -> dict[str, Any]:
    """The walks of one tokenizer: rounds of 500 steps, short texts and long ones, every fourth round on a disk."""
    found: dict[str, Any] = {"steps": 0, "compared": 0, "kinds": {}, "changes": {}, "difference": None, "skipped": None}
    try:
        tokenizer = artifacts.load(name).tokenizer
    except artifacts.Missing as missing:
        return {**found, "skipped": str(missing)}
    if tokenizer.spec.padding or tokenizer.spec.truncation:
        return {**found, "skipped": "the file pads or truncates"}
    done: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    spans = 0
    encode, begin = reference(tokenizer), time.monotonic()
    for round_ in range(-(-steps // ROUND)):
        count, most = min(ROUND, steps - sum(done.values())), MOST[round_ % len(MOST)]
        stores: list[SessionStore] = []
        with tempfile.TemporaryDirectory() as folder:
            path, memory = (folder, 1) if round_ % 4 == 0 else (None, 1 << 30)  # on disk, what is idle is evicted

            def open_store(path: str | None = path, memory: int = memory, stores: list[SessionStore] = stores):
                stores.append(SessionStore(tokenizer, path, max_bytes=memory))
                return stores[-1]

            reopen = open_store if path else None
            draw = random.Random(f"{seed} {name} {round_}")
            try:
                done += walk(open_store(), reopen, encode, draw, count, most=most, spans_every=spans_every)[0]
            except Difference as error:
                found["difference"] = f"seed {seed}, round {round_}: {error}"
                break
            finally:
                for store in stores:
                    changes.update(store.stats()["changes"])
                    store.close()
            spans += -(-count // spans_every)
    return {
        **found,
        "steps": sum(done.values()),
        "compared": spans,
        "kinds": dict(done),
        "changes": dict(changes),
        "seconds": round(time.monotonic() - begin, 1),
    }


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


if __name__ == "__main__":
    sys.exit(main())
