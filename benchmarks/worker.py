"""One measurement in a process of its own: `python -m benchmarks.worker '{"engine": ..., ...}'` prints one JSON line.

Cold means: a fresh process in which the engine was loaded and has encoded one other text of the same size (so that
programs are compiled and lazy parts started), and then sees the text for the first time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from tests import artifacts
from toktier_jax.errors import UnsupportedError

from . import peers, report, texts

TIMEOUT = 600.0
PANGRAM = "The quick brown fox jumps over the lazy dog, 1234 times. "


@dataclass(frozen=True)
class Job:
    engine: str
    tokenizer: str
    text: str
    size: int
    repeats: int = report.REPEATS


def run(job: Job) -> dict[str, Any]:
    """The measurements of one job, in this process."""
    text = texts.make(job.text, job.size)
    size = len(text.encode())
    start = time.perf_counter()
    engine = peers.load(job.engine, artifacts.load(job.tokenizer))
    loaded = time.perf_counter()
    engine.encode(texts.take(PANGRAM, size, 0))
    ready = time.perf_counter()
    result = engine.encode(text)
    cold = time.perf_counter() - ready
    warm = report.median(report.seconds_of(lambda: engine.encode(text), job.repeats))
    ids = engine.ids(result)
    return {
        **asdict(job),
        "bytes": size,
        "load_s": loaded - start,
        "ready_s": ready - loaded,
        "cold_ms": cold * 1e3,
        "warm_ms": warm * 1e3,
        "cold_mb_s": size / cold / 1e6,
        "warm_mb_s": size / warm / 1e6,
        "tokens": len(ids),
        "digest": report.digest(ids),
        "route": getattr(result, "route", None),
        "fallback_reason": getattr(result, "fallback_reason", None),
    }


def in_fresh_process(job: Job) -> dict[str, Any]:
    """`run(job)` in a child. A child that cannot run the job gives {'skipped': reason}."""
    return call("job", asdict(job))


def call(
    task: str, arguments: dict[str, Any], environment: dict[str, str] | None = None, timeout: float = TIMEOUT
) -> dict[str, Any]:
    """Runs a task (see `main`) in a child and returns what it printed."""
    command = [sys.executable, "-m", "benchmarks.worker", task, json.dumps(arguments)]
    child = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=report.ROOT,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    if child.returncode:
        raise RuntimeError(f"{task} {arguments} failed:\n{child.stderr[-4000:]}")
    return json.loads(child.stdout.splitlines()[-1])


def main(task: str, arguments: dict[str, Any]) -> dict[str, Any]:
    from . import batch, campaign, figures

    tasks = {
        "campaign": campaign.check,
        "job": lambda **fields: run(Job(**fields)),
        "batch": batch.measure,
        **figures.TASKS,
    }
    try:
        return tasks[task](**arguments)
    except (UnsupportedError, artifacts.Missing) as error:
        return {**arguments, "skipped": str(error)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
