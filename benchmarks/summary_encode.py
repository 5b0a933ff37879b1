"""Summaries of the encode: the campaign, one text and many, the figures, compiled for devices, run on one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .consumers import largest
from .summary_text import commits, held, machine, markdown, read, without

OURS = "toktier-jax"


def campaign(folder: Path) -> list[str]:
    if not (found := read(folder, "campaign")):
        return []
    total, rows = found["totals"], found["rows"]
    differences = sum("difference" in row for row in rows.values())
    return [
        f"`python -m benchmarks.campaign` ({commits(found, rows.values())}): {differences} differences from the "
        f"reference over {total['tokenizers']} of {total.get('asked', len(rows))} tokenizers "
        f"({without(rows, 'failed')}; {without(rows, 'missing')}), in {total['positions']:,} positions at which a "
        f"piece may start, {total['ids']:,} ids and {total['spans']:,} spans."
    ]


def encode(folder: Path) -> list[str]:
    found = read(folder, "encode")
    if not found or not found["rows"]:
        return []
    size, speeds = cold(found)
    texts = list(dict.fromkeys(text for cells in speeds.values() for text in cells))
    lines = [["engine", *texts]]
    for engine, cells in speeds.items():
        lines.append([engine, *(f"{cells[text]:.1f}" if text in cells else "" for text in texts)])
    return [f"MB/s, cold, of {size:,} characters, {found['tokenizer']} ({machine(found)}):", markdown(lines)]


def cold(found: Mapping[str, Any]) -> tuple[int, dict[str, dict[str, float]]]:
    """The largest size up to 1 M characters, and there MB/s by engine and text."""
    size = max(row["size"] for row in found["rows"] if row["size"] <= 10**6)
    speeds: dict[str, dict[str, float]] = {}
    for row in found["rows"]:
        if row["size"] == size:
            speeds.setdefault(row["engine"], {})[row["text"]] = row["cold_mb_s"]
    return size, speeds


def fastest(folder: Path) -> list[str]:
    """How many times as fast as ours the fastest peer is, in words: one text, and many."""
    words = []
    if (found := read(folder, "encode")) and found["rows"]:
        _, engines = cold(found)
        ours = engines.pop(OURS)
        factors = [max(cells.get(text, 0.0) for cells in engines.values()) / ours[text] for text in ours]
        words.append(f"{min(factors):.1f} to {max(factors):.1f} times as fast on one text")
    if found := read(folder, "batch"):
        speeds: dict[str, float] = {}
        for row in found["rows"]:
            speeds[row["engine"]] = max(row["mb_s"], speeds.get(row["engine"], 0.0))
        ours = max(speeds.pop(engine) for engine in ("encode_batch", "packed"))
        words.append(f"{max(speeds.values()) / ours:.1f} times in batches")
    return [", ".join(words)] if words else []


def figures(folder: Path) -> list[str]:
    if not (found := read(folder, "figures")):
        return []
    rows = found["figures"]
    if seconds := compiled(found):
        name = f"compile seconds, worst of {len(seconds)} capacities"
        rows = [row | {"figure": name} if _compiles(row) else row for row in rows]
    return [f"The encode's figures ({machine(found)}):", held(rows)]


def _compiles(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("detail"), dict) and "capacities" in row["detail"]


def compiled(found: Mapping[str, Any]) -> list[float]:
    """Seconds of each capacity that was compiled. Files may hold capacities for which nothing was: they took
    hundredths."""
    times = [row["detail"] for row in found["figures"] if _compiles(row)]
    return [seconds for each in times for seconds in each["seconds"] if seconds > 0.1]


def compiling(folder: Path) -> list[str]:
    """How long a compilation takes, in words."""
    found = read(folder, "figures")
    seconds = compiled(found) if found else []
    return [f"{min(seconds):.1f} to {max(seconds):.1f} seconds"] if seconds else []


def batch(folder: Path) -> list[str]:
    if not (found := read(folder, "batch")):
        return []
    lines = [["engine", "devices", "documents/s", "MB/s"]]
    lines += [
        [row["engine"], str(row["devices"]), f"{row['documents_s']:,.0f}", f"{row['mb_s']:.1f}"]
        for row in found["rows"]
    ]
    return [f"{found['rows'][0]['documents']:,} documents of 4 K characters ({machine(found)}):", markdown(lines)]


def aot(folder: Path) -> list[str]:
    if not (found := read(folder, "aot")):
        return []
    names = {
        "kernels": "kernels outside loops", "a_round": "a merge round", "temp_a_byte": "temporary bytes a byte",
        "compile_s": "compile s", "predicted_ms": "predicted ms",
    }  # fmt: skip
    lines = [["tokenizer", "for", "what", *names.values(), ""]]
    for row in found["rows"]:
        cells = [row.get(name) for name in names]
        shown = ["" if cell is None else f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells]
        lines.append([row["tokenizer"], row["platform"], row["what"], *shown, _missed(row.get("missed", "none"))])
    return ["1 Mi bytes compiled without a device (`make aot`; predictions are no measurements):", markdown(lines)]


def _missed(missed: str) -> str:
    """The limits that a row of aot.py misses, with the largest consumer of each."""
    return "" if missed == "none" else "; ".join(f"MISSED {each}: {largest(each)}" for each in missed.split(", "))


def device(folder: Path) -> list[str]:
    """What an accelerator took; a run on a CPU tests the script alone."""
    found = read(folder, "device")
    if not found or found["environment"]["device"].startswith("cpu"):
        return ["`python -m benchmarks.device`: not measured: no accelerator."]
    lines = [["encode", "compile s", "ms p50", "p90", "GB/s", "ids"]]
    for row in found["rows"]:
        cells = [row.get(name) for name in ("compile_s", "p50_ms", "p90_ms", "gb_s")]
        lines.append([row["row"], *("" if cell is None else f"{cell:.3g}" for cell in cells), row["ids"]])
    about = f"{found['environment']['device']}, jax {found['environment']['jax']}; {commits(found)}"
    return [f"`python -m benchmarks.device` ({about}):", markdown(lines), held(found["figures"])]
