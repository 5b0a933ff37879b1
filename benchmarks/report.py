"""What every protocol shares: timing, the machine's description, the table, the JSON file, and the plot's looks."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CODE = ("toktier_jax", "benchmarks", "tests", "pyproject.toml", ":!benchmarks/results")
"""What a measurement depends on, as git names it; results and pages are refreshed between two of them."""
REPEATS = 5
PEERS = ("tokenizers", "tiktoken", "fastokens", "gigatoken", "toktier")

Row = Mapping[str, Any]


def seconds_of(run: Callable[[], Any], repeats: int = REPEATS) -> list[float]:
    """Wall seconds of each of `repeats` calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def median(times: Sequence[float]) -> float:
    return statistics.median(times)


def percentile(times: Sequence[float], percent: float) -> float:
    return float(np.percentile(np.asarray(times), percent))


def digest(ids: np.ndarray) -> str:
    """A name for an id sequence: two runs are compared by it."""
    return hashlib.sha256(np.ascontiguousarray(ids, dtype="<i4").tobytes()).hexdigest()[:16]


def environment() -> dict[str, Any]:
    """Versions, device, machine and commit. Starts a JAX backend."""
    import jax

    device = jax.devices()[0]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "numpy": np.__version__,
        "peers": {name: version(name) for name in PEERS},
        "device": f"{device.platform}: {device.device_kind}",
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """The commit of the working tree, with '+' where code differs from it; 'unknown' without git."""
    try:
        run = ["git", "-C", str(ROOT)]
        name = subprocess.run([*run, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        status = [*run, "status", "--porcelain", "--", *CODE]
        changed = subprocess.run(status, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name.stdout.strip() + ("+" if changed.stdout.strip() else "")


def names_code(commit: str) -> bool:
    """Whether the commit says which code ran: what was measured at it may be kept, and joined by more."""
    return commit != "unknown" and not commit.endswith("+")


def kept(file: Path, rows: str, seed: int) -> dict[str, dict[str, Any]]:
    """Of the rows of an earlier run with this seed those of the present commit; none where code differs from it."""
    if not file.exists() or not names_code(now := commit()):
        return {}
    found = json.loads(file.read_text())
    return {name: row for name, row in found[rows].items() if found.get("seed") == seed and row.get("commit") == now}


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Rows as aligned text: numbers to the right, words to the left."""
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[at]) for line in cells), 0) for at, column in enumerate(columns)]
    right = [any(isinstance(row.get(column), int | float) for row in rows) for column in columns]

    def line(values: Sequence[str]) -> str:
        cells = zip(values, widths, right, strict=True)
        padded = (value.rjust(width) if number else value.ljust(width) for value, width, number in cells)
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *map(line, cells)])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def write(name: str, results: Mapping[str, Any], folder: Path | None = None) -> Path:
    """Writes results/NAME.json with the environment in front; warns where its commit does not say which code ran."""
    path = (folder or RESULTS) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    about = environment()
    if not names_code(about["commit"]):
        print(f"warning: {path} is of commit {about['commit']}: code that no commit holds", file=sys.stderr)
    path.write_text(json.dumps({"environment": about, **results}, indent=1) + "\n")
    return path


def figure(width: float = 8.0, height: float = 4.5) -> tuple[Any, Any]:
    """A Matplotlib figure and axes in the style of all plots; no display is needed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    drawing, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
    axes.grid(True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return drawing, axes


def save(drawing: Any, name: str, folder: Path | None = None) -> Path:
    path = (folder or RESULTS) / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, metadata={"Date": None})
    return path
