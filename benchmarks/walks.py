"""A campaign of random walks over sessions of all tokenizers: append, edit, truncate, update, fork, evict, restart.

    python -m benchmarks.walks [--steps 200000] [--seconds S] [--tokenizers a,b] [--seed N] [--out DIR]

After every step the ids are compared with a full encode of the reference, the spans after every `--spans-every`-th.
Prints and writes what was counted as JSON; ends with an error at the first difference, which it shows.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import artifacts
from tests.sessions.walks import Difference, reference, walk
from toktier_jax import SessionStore

from . import report


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tests the script")
    parser.add_argument("--steps", type=int, default=200_000, help="of all tokenizers together")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="an earlier end")
    parser.add_argument("--tokenizers", default="", help="names, with commas; all by default")
    parser.add_argument("--spans-every", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    arguments = parser.parse_args(argv)
    names = arguments.tokenizers.split(",") if arguments.tokenizers else list(artifacts.NAMES)
    steps = arguments.steps
    if arguments.small:
        names, steps = ["qwen-3"], 40
    results, end = run(names, steps, arguments.seconds, arguments.spans_every, arguments.seed)
    print(json.dumps(results, indent=1, ensure_ascii=False))
    report.write("walks", results, arguments.out)
    return end


def run(names: Sequence[str], steps: int, seconds: float, spans_every: int, seed: int) -> tuple[dict[str, Any], int]:
    """Counts of steps, of how changes were repaired, by tokenizer; and the exit code."""
    begin = time.monotonic()
    by_name: dict[str, Any] = {}
    kinds: Counter[str] = Counter()
    skipped: list[str] = []
    difference = None
    for number, name in enumerate(names):
        share = (steps - sum(kinds.values())) // (len(names) - number)
        try:
            tokenizer = artifacts.load(name).tokenizer
        except artifacts.Missing as missing:
            skipped.append(f"{name}: {missing}")
            continue
        if tokenizer.spec.padding or tokenizer.spec.truncation:
            skipped.append(f"{name}: the file pads or truncates")
            continue
        done: Counter[str] = Counter()
        changes: Counter[str] = Counter()
        encode, round_ = reference(tokenizer), 0
        while sum(done.values()) < share and time.monotonic() - begin < seconds:
            count = min(500, share - sum(done.values()))
            with tempfile.TemporaryDirectory() as folder:
                path = folder if round_ % 4 == 0 else None
                store = SessionStore(tokenizer, path)
                reopen = None if path is None else functools.partial(SessionStore, tokenizer, path)
                draw = random.Random(f"{seed} {name} {round_}")
                try:
                    steps_done, store = walk(store, reopen, encode, draw, count, most=500, spans_every=spans_every)
                except Difference as error:
                    difference = f"{name}, seed {seed}, round {round_}: {error}"
                    break
                finally:
                    changes.update(store.stats()["changes"])
                    store.close()
                done += steps_done
            round_ += 1
        kinds += done
        by_name[name] = {"steps": sum(done.values()), "changes": dict(changes)}
        print(f"{name}: {sum(done.values()):,} steps", file=sys.stderr)
        if difference:
            break
    results = {
        "steps": sum(kinds.values()),
        "kinds": dict(kinds),
        "tokenizers": by_name,
        "skipped": skipped,
        "difference": difference,
        "seconds": round(time.monotonic() - begin, 1),
    }
    return results, 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
