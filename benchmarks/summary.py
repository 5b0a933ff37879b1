"""Writes the measured results into README.md and docs/benchmarks.md, between their results markers.

python -m benchmarks.summary [--results DIR] [FILE ...]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import report

BLOCK = re.compile(r"(<!-- results:begin.*?-->\n).*?(<!-- results:end -->)", re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=report.RESULTS)
    default = [report.ROOT / "README.md", report.ROOT / "docs" / "benchmarks.md"]
    parser.add_argument("files", nargs="*", type=Path, default=default)
    arguments = parser.parse_args(argv)
    for file in arguments.files:
        insert(file, render(arguments.results, brief=file.name == "README.md"))
    return 0


def insert(file: Path, text: str) -> None:
    """Puts the text between the file's markers."""
    content = file.read_text(encoding="utf-8")
    file.write_text(BLOCK.sub(lambda match: match[1] + text + match[2], content), encoding="utf-8")


def render(folder: Path, *, brief: bool = False) -> str:
    """Markdown of whatever results lie in `folder`; `brief`: the counts and the encode's speed alone."""
    parts = [*campaign(folder), *walks(folder), *boundary(folder), *encode(folder)]
    if not brief:
        for name, title in FIGURES.items():
            parts += figures(folder, name, title)
        parts += [*batch(folder), *capacity(folder), *replay(folder), *aot(folder)]
    return "\n\n".join(parts or ["Not measured yet on this revision."]) + "\n"


FIGURES = {"figures": "The encode's figures", "append": "Appends to a session", "edits": "Edits of a session"}
"""Files of results that hold rows of figures."""


def campaign(folder: Path) -> list[str]:
    if not (found := read(folder, "campaign")):
        return []
    total, rows = found["totals"], found["rows"]
    differences = sum("difference" in row for row in rows.values())
    return [
        f"`python -m benchmarks.campaign`: {differences} differences from the reference over {total['tokenizers']} "
        f"tokenizers, in {total['positions']:,} positions at which a piece may start, {total['ids']:,} ids and "
        f"{total['spans']:,} spans."
    ]


def walks(folder: Path) -> list[str]:
    if not (found := read(folder, "walks")):
        return []
    tokenizers = sum(not row["skipped"] for row in found["tokenizers"].values())
    spans = "ids and spans" if found["compared"] == found["steps"] else "ids"
    whole = [
        f"{count:,} of {name}"
        for name, row in found["tokenizers"].items()
        for way, count in row.get("changes", {}).items()
        if way.startswith(("full", "reference"))
    ]
    return [
        f"`python -m benchmarks.walks`: {len(found['differences'])} differences in {found['steps']:,} random steps of "
        f"sessions over {tokenizers} tokenizers, {spans} compared with a full encode of the reference after each; "
        f"changes that were encoded whole instead of repaired: {', '.join(whole) or 'none'}."
    ]


def boundary(folder: Path) -> list[str]:
    if not (found := read(folder, "boundary")):
        return []
    parts = []
    for corpus, row in found["corpora"].items():
        exact, none = row["arms"]["exact"], row["arms"]["none"]
        low, high = exact["interval"]
        parts.append(
            f"on {row['prompts']} cut prompts of {corpus} SmolLM2-135M finds the next word in {exact['greedy']:.0%} "
            f"instead of {none['greedy']:.0%} ({exact['over none']:+.2f} nats, 95% interval {low:+.2f} to {high:+.2f})"
        )
    return [f"`python -m benchmarks.boundary`: {'; '.join(parts)}."]


def encode(folder: Path) -> list[str]:
    found = read(folder, "encode")
    if not found or not found["rows"]:
        return []
    size = max(row["size"] for row in found["rows"] if row["size"] <= 10**6)
    rows = [row for row in found["rows"] if row["size"] == size]
    texts = list(dict.fromkeys(row["text"] for row in rows))
    lines = [["engine", *texts]]
    for engine in dict.fromkeys(row["engine"] for row in rows):
        cells = {row["text"]: f"{row['cold_mb_s']:.1f}" for row in rows if row["engine"] == engine}
        lines.append([engine, *(cells.get(text, "") for text in texts)])
    return [f"MB/s at first sight of {size:,} characters, {found['tokenizer']} ({machine(found)}):", markdown(lines)]


def figures(folder: Path, name: str, title: str) -> list[str]:
    if not (found := read(folder, name)):
        return []
    lines = [["figure", "measured", "held to", ""]]
    for row in found["figures"]:
        value = "" if row["value"] is None else f"{row['value']:.3g}"
        limit = "" if row["limit"] is None else f"{row['sign']} {row['limit']}"
        lines.append([row["figure"], value, limit, "" if row["ok"] in ("yes", "ok") else row["ok"]])
    return [f"{title} ({machine(found)}):", markdown(lines)]


def batch(folder: Path) -> list[str]:
    if not (found := read(folder, "batch")):
        return []
    lines = [["engine", "devices", "documents/s", "MB/s"]]
    lines += [
        [row["engine"], str(row["devices"]), f"{row['documents_s']:,.0f}", f"{row['mb_s']:.1f}"]
        for row in found["rows"]
    ]
    return [f"{found['rows'][0]['documents']:,} documents of 4 K characters ({machine(found)}):", markdown(lines)]


def capacity(folder: Path) -> list[str]:
    if not (found := read(folder, "capacity")):
        return []
    best = {front: rates[str(found["limit_ms"])] for front, rates in found["best"].items()}
    return [
        f"Requests a second with 99% answered in {found['limit_ms']:g} ms, two worker threads ({machine(found)}): "
        f"sessions {best['sessions']:g}, a stateless front end on `tokenizers` {best['stateless']:g}: "
        f"{found['ratio']:.3g} x."
    ]


def replay(folder: Path) -> list[str]:
    if not (found := read(folder, "replay")):
        return []
    lines = [["transcript by", "turns", "MB served a second", "turn, p50 ms", "repaired at first", "fallen back"]]
    for row in found["rows"]:
        numbers = (f"{row['served_mb_s']:.0f}", f"{row['turn_p50_ms']:.2f}", f"{row['first_try']:.1%}")
        lines.append([row["tokenizer"], str(row["turns"]), *numbers, str(row["fallen_back"])])
    return [f"A transcript of {found['rows'][0]['characters']:,} characters, sent whole every turn:", markdown(lines)]


def aot(folder: Path) -> list[str]:
    if not (found := read(folder, "aot")):
        return []
    names = {
        "kernels": "kernels outside loops", "a_round": "a merge round", "temp_a_byte": "temporary bytes a byte",
        "compile_s": "compile s", "predicted_ms": "predicted ms", "missed": "missed",
    }  # fmt: skip
    lines = [["tokenizer", "for", "what", *names.values()]]
    for row in found["rows"]:
        cells = [row.get(name) for name in names]
        shown = ["" if cell is None else f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells]
        lines.append([row["tokenizer"], row["platform"], row["what"], *shown])
    return ["1 Mi bytes compiled without a device (`make aot`; predictions are no measurements):", markdown(lines)]


def read(folder: Path, name: str) -> dict[str, Any] | None:
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def machine(results: dict[str, Any]) -> str:
    environment = results["environment"]
    peers = ", ".join(f"{name} {version}" for name, version in environment["peers"].items())
    cores = f"{environment['cores']} core{'s' * (environment['cores'] > 1)}"
    return f"{environment['cpu']}, {cores}, jax {environment['jax']}; {peers}; commit {environment['commit']}"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *rows = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rows])


if __name__ == "__main__":
    sys.exit(main())
