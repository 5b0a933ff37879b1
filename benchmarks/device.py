"""One short script for a machine with a GPU or TPU: five minutes, one table. `--small` tests it on a CPU.

    python -m benchmarks.device                       # where tokenizers and the texts' packages are installed
    python -m benchmarks.device --prepare FILE        # here: program, texts and expected ids into one file, then
    python -m benchmarks.device --prepared FILE       # there: needs jax, NumPy and jaxtyping alone

Encode of 1 K to 4 M bytes, p50 and p90 of 50 calls: ids left on the device, ids and spans left on the device, and from
host bytes to ids and spans on the host. Then packed documents. All ids are compared with the reference's. Last, what a
draw costs where a prompt's boundary is repaired (device_sampling.py).
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CALLS = 50
SECONDS = 280.0
"""After so long no further row is begun; what is left out is said."""
WHOLE, WHOLE_MS = f"english {1 << 20:,}, ids and spans on device", 0.87
"""The row that is held to a time, and to which."""
COLUMNS = ("row", "bytes", "tokens", "compile_s", "p50_ms", "p90_ms", "gb_s", "ids")


@dataclass(frozen=True)
class Case:
    """One text in a buffer of N bytes: data uint8 [N], its documents' starts int32 [S], expected ids int32 [n]."""

    name: str
    data: np.ndarray
    length: int
    starts: np.ndarray
    expected: np.ndarray


@dataclass(frozen=True)
class Work:
    """What the device needs: the program's tables and the cases."""

    tokenizer: str
    program: Any
    cases: tuple[Case, ...]


def prepare(tokenizer: str, *, small: bool) -> Work:
    """Texts and the reference's ids. Needs the packages of the `bench` extra, but no device."""
    import jax

    from tests import artifacts

    from . import texts

    artifact = artifacts.load(tokenizer)
    reference = artifact.reference
    shifts = (10, 12) if small else range(10, 23, 2)

    def case(name: str, documents: Sequence[str], capacity: int) -> Case:
        encoded = [document.encode() for document in documents]
        joined = b"".join(encoded)
        data = np.zeros(capacity, np.uint8)
        data[: len(joined)] = np.frombuffer(joined, np.uint8)
        starts = np.cumsum([0, *map(len, encoded)])[:-1].astype(np.int32)
        ids = [reference.encode(document, add_special_tokens=False).ids for document in documents]
        return Case(name, data, len(joined), starts, np.concatenate([np.asarray(one, np.int32) for one in ids]))

    def fitting(name: str, capacity: int) -> str:
        return texts.make(name, capacity).encode()[:capacity].decode(errors="ignore")

    cases = [case(f"english {1 << shift:,}", [fitting("english", 1 << shift)], 1 << shift) for shift in shifts]
    large = 1 << (12 if small else 20)
    cases += [case(f"{name} {large:,}", [fitting(name, large)], large) for name in ("code", "chat", "letters")]
    packed = fitting("english", large)
    pieces = [packed[at : at + 4096] for at in range(0, len(packed), 4096)]
    cases.append(case(f"packed, {len(pieces)} documents", pieces, large))
    return Work(tokenizer, jax.device_get(artifact.tokenizer.program), tuple(cases))


def measure(work: Work, *, calls: int, seconds: float) -> Iterator[dict[str, Any]]:
    """One row for each case and each way of delivering the ids."""
    import jax

    from toktier_jax import ops

    begun = time.monotonic()
    program = jax.device_put(work.program)

    @jax.jit
    def ids_only(program: Any, data: jax.Array, length: jax.Array, starts: jax.Array) -> Any:
        out = ops.encode_bytes(program, data, length, segment_starts=starts)
        return {"ids": out.ids, "count": out.count, "status": out.status}

    @jax.jit
    def with_spans(program: Any, data: jax.Array, length: jax.Array, starts: jax.Array) -> Any:
        out = ops.encode_bytes(program, data, length, segment_starts=starts)
        spans = {"starts": out.byte_starts, "ends": out.byte_ends}
        return {"ids": out.ids, "count": out.count, "status": out.status, **spans}

    for case in work.cases:
        host = (case.data, np.int32(case.length), case.starts)
        resident = jax.device_put(host)
        ways: dict[str, Callable[[], Any]] = {
            "ids on device": lambda at=resident: jax.block_until_ready(ids_only(program, *at)),
            "ids and spans on device": lambda at=resident: jax.block_until_ready(with_spans(program, *at)),
            "host to host": lambda at=host: jax.device_get(with_spans(program, *at)),
        }
        for way, run in ways.items():
            name = f"{case.name}, {way}"
            if time.monotonic() - begun > seconds:
                yield {"row": name, "ids": f"SKIPPED: over {seconds:.0f} s"}
                continue
            start = time.perf_counter()
            out = run()
            compiled = time.perf_counter() - start
            times = [_seconds(run) for _ in range(calls)]
            middle, high = np.percentile(times, [50, 90])
            yield {
                "row": name,
                "bytes": case.length,
                "tokens": len(case.expected),
                "compile_s": compiled - float(middle),
                "p50_ms": float(middle) * 1e3,
                "p90_ms": float(high) * 1e3,
                "gb_s": case.length / float(middle) / 1e9,
                "ids": verdict(out, case),
            }


def verdict(out: dict[str, Any], case: Case) -> str:
    """Whether a result holds the reference's ids."""
    status, count = int(out["status"]), int(out["count"])
    if status:
        return f"STATUS {status}"
    return "equal" if np.array_equal(np.asarray(out["ids"])[:count], case.expected) else "DIFFERENT"


def figures(rows: Sequence[dict[str, Any]], draws: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the device is held to, for those rows that were measured."""
    checks = [(f"{WHOLE}, ms p50", row["p50_ms"], WHOLE_MS) for row in rows if row["row"] == WHOLE and "p50_ms" in row]
    checks += [(f"{row['row']}, us added", row["added_us"], row["limit_us"]) for row in draws if "limit_us" in row]
    return [
        {"figure": name, "value": value, "sign": "<", "limit": limit, "ok": "ok" if value < limit else "MISSED"}
        for name, value, limit in checks
    ]


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="two sizes and few calls: tests the script on a CPU")
    parser.add_argument("--tokenizer", default="qwen-3")
    parser.add_argument("--prepare", type=Path, metavar="FILE", help="write the work to FILE and stop")
    parser.add_argument("--prepared", type=Path, metavar="FILE", help="read the work from FILE (made by --prepare)")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(argv)
    from . import device_sampling, report

    if arguments.prepared:
        work = pickle.loads(arguments.prepared.read_bytes())
    else:
        work = prepare(arguments.tokenizer, small=arguments.small)
    if arguments.prepare:
        arguments.prepare.parent.mkdir(parents=True, exist_ok=True)
        arguments.prepare.write_bytes(pickle.dumps(work))
        print(f"{arguments.prepare}: {arguments.prepare.stat().st_size:,} bytes")
        return 0
    rows = []
    for row in measure(work, calls=3 if arguments.small else CALLS, seconds=SECONDS):
        rows.append(row)
        print(report.table([row], COLUMNS).splitlines()[-1], file=sys.stderr, flush=True)
    print(report.table(rows, COLUMNS))
    draws = list(device_sampling.measure(small=arguments.small))
    print(report.table(draws, device_sampling.COLUMNS))
    checks = figures(rows, draws)
    print(report.table(checks, ("figure", "value", "sign", "limit", "ok")))
    results = {"tokenizer": work.tokenizer, "calls": CALLS, "rows": rows, "sampling": draws, "figures": checks}
    report.write("device", results, arguments.out)
    wrong = [row["row"] for row in rows if row["ids"] != "equal" and not row["ids"].startswith("SKIPPED")]
    if wrong:
        print(f"error: other ids than the reference: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
