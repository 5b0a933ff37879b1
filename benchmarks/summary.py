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
    text = render(arguments.results)
    for file in arguments.files:
        content = file.read_text(encoding="utf-8")
        file.write_text(BLOCK.sub(lambda match: match[1] + text + match[2], content), encoding="utf-8")
    return 0


def render(folder: Path) -> str:
    """Markdown of whatever results lie in `folder`."""
    parts = []
    if (encode := read(folder, "encode")) and encode["rows"]:
        rows = [
            row for row in encode["rows"] if row["size"] == max(r["size"] for r in encode["rows"] if r["size"] <= 10**6)
        ]
        parts.append(
            f"MB/s at first sight of {rows[0]['size']:,} characters, {encode['tokenizer']} ({machine(encode)}):"
        )
        texts = list(dict.fromkeys(row["text"] for row in rows))
        lines = [["engine", *texts]]
        for engine in dict.fromkeys(row["engine"] for row in rows):
            cells = {row["text"]: f"{row['cold_mb_s']:.1f}" for row in rows if row["engine"] == engine}
            lines.append([engine, *(cells.get(text, "") for text in texts)])
        parts.append(markdown(lines))
    if figures := read(folder, "figures"):
        lines = [["figure", "measured", "held to", ""]]
        for row in figures["figures"]:
            value = "" if row["value"] is None else f"{row['value']:.3g}"
            lines.append(
                [row["figure"], value, f"{row['sign']} {row['limit']}", "" if row["ok"] == "yes" else row["ok"]]
            )
        parts += [f"The encode's figures ({machine(figures)}):", markdown(lines)]
    if batch := read(folder, "batch"):
        lines = [["engine", "devices", "documents/s", "MB/s"]]
        lines += [
            [r["engine"], str(r["devices"]), f"{r['documents_s']:,.0f}", f"{r['mb_s']:.1f}"] for r in batch["rows"]
        ]
        parts += [f"{batch['rows'][0]['documents']:,} documents of 4 K characters ({machine(batch)}):", markdown(lines)]
    return "\n\n".join(parts or ["Not measured yet on this revision."]) + "\n"


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
