"""The differential campaign over all tokenizers of the tests: pieces, ids and spans against the reference.

    python -m benchmarks.campaign [--characters 21000000] [--tokenizers a,b] [--workers 1] [--resume] [--small]

Every tokenizer is checked in a process of its own on its share of the characters; what texts these are is said in
toktier_jax/verify/campaign.py. Prints and writes what was counted, by tokenizer as it is done, with the commit that was
checked; ends with an error where there is a difference. `--resume` keeps the tokenizers that the results hold of this
commit and seed, but those that failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests import artifacts
from toktier_jax.errors import UnsupportedError
from toktier_jax.verify.campaign import run_campaign

from . import report, worker

COUNTS = ("texts", "characters", "positions", "pieces", "ids", "spans", "refused", "skipped", "unseen")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tests the script")
    parser.add_argument("--characters", type=int, default=21_000_000, help="of all tokenizers together")
    parser.add_argument("--tokenizers", default="", help="names, with commas; all by default")
    parser.add_argument("--workers", type=int, default=1, help="processes at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="keep what the results hold of this commit and seed")
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    arguments = parser.parse_args(argv)
    names = arguments.tokenizers.split(",") if arguments.tokenizers else list(artifacts.NAMES)
    share = arguments.characters // len(names)
    if arguments.small:
        names, share = ["gpt2"], 5_000
    file = arguments.out / "campaign.json"
    known = report.kept(file, "rows", arguments.seed) if arguments.resume else {}
    rows = {name: row for name, row in known.items() if "failed" not in row}
    asked = len({*names, *rows})
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(arguments.workers) as pool:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", cache)
        jobs = [name for name in names if name not in rows]
        for name, row in zip(jobs, pool.map(lambda name: checked(name, share, arguments.seed), jobs), strict=True):
            rows[name] = row
            print(f"{name}: {json.dumps(row, ensure_ascii=False)}", file=sys.stderr, flush=True)
            write(rows, arguments.seed, asked, arguments.out)
        results = write(rows, arguments.seed, asked, arguments.out)
    wrong = {name: row for name, row in rows.items() if "difference" in row or "failed" in row}
    print(json.dumps(results["totals"], indent=1))
    for name, row in wrong.items():
        print(f"error: {name}: {row.get('difference') or row['failed']}", file=sys.stderr)
    return 1 if wrong else 0


def write(rows: Mapping[str, Mapping[str, Any]], seed: int, asked: int, folder: Path) -> dict[str, Any]:
    """Writes the rows and their sums; `asked`: tokenizers that were to be checked."""
    totals = {count: sum(row.get(count, 0) for row in rows.values()) for count in COUNTS}
    totals |= {"tokenizers": sum("texts" in row for row in rows.values()), "asked": asked}
    results = {"totals": totals, "seed": seed, "rows": rows}
    report.write("campaign", results, folder)
    return results


def checked(name: str, characters: int, seed: int) -> dict[str, Any]:
    """One row: the commit, and the counts of a tokenizer or why there are none."""
    row: dict[str, Any] = {"commit": report.commit()}
    try:
        arguments = {"tokenizer": name, "characters": characters, "seed": seed}
        return row | worker.call("campaign", arguments, timeout=7200.0)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return row | {"failed": str(error)[-2000:]}


def check(tokenizer: str, characters: int, seed: int) -> dict[str, Any]:
    """The campaign of one tokenizer, in this process."""
    try:
        loaded = artifacts.load(tokenizer).tokenizer
        found = run_campaign(loaded, seconds=float("inf"), characters=characters, seed=seed)
    except (artifacts.Missing, UnsupportedError) as error:
        return {"missing": str(error).replace(f"{report.ROOT}/", "")}
    row = {key: value for key, value in dataclasses.asdict(found).items() if key in COUNTS and value}
    if found.blind:
        row["blind"] = found.blind
    if found.reasons:
        row["reasons"] = sorted(found.reasons)
    if found.difference:
        row["difference"] = str(found.difference)
    return row


if __name__ == "__main__":
    sys.exit(main())
