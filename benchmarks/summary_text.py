"""What all parts of a summary share: reading a result, naming its machine and commits, tables of figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .consumers import verdict


def read(folder: Path, name: str) -> dict[str, Any] | None:
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def held(rows: Iterable[Mapping[str, Any]]) -> str:
    """A table of figures, of what they are held to, and of what takes most of those that are missed."""
    lines = [["figure", "measured", "held to", ""]]
    for row in rows:
        value = "" if row["value"] is None else f"{row['value']:.3g}"
        limit = "" if row["limit"] is None else f"{row['sign']} {row['limit']}"
        missed = row["ok"] == "MISSED"
        other = "" if missed or row["ok"] in ("yes", "ok") else row["ok"]  # FAILED and SKIPPED say why themselves
        lines.append([row["figure"], value, limit, other or verdict(row["figure"], missed)])
    return markdown(lines)


def figure(name: str, value: float, sign: str, limit: float) -> dict[str, Any]:
    """A row for `held`."""
    met = value >= limit if sign == ">=" else value <= limit
    return {"figure": name, "value": value, "sign": sign, "limit": limit, "ok": "ok" if met else "MISSED"}


def commits(found: Mapping[str, Any], rows: Iterable[Mapping[str, Any]] = ()) -> str:
    """The commits that the rows name, that of the file where there are none; a '+' says that code differed from it."""
    named, written = [row.get("commit") for row in rows], found["environment"]["commit"]
    if not named or all(named):
        return f"commit {', '.join(dict.fromkeys(map(str, named))) or written}"
    return f"commit {written} or earlier"  # rows of earlier runs were kept without theirs


def machine(results: Mapping[str, Any]) -> str:
    environment = results["environment"]
    peers = ", ".join(f"{name} {version}" for name, version in environment["peers"].items())
    cores = f"{environment['cores']} core{'s' * (environment['cores'] > 1)}"
    return f"{environment['cpu']}, {cores}, jax {environment['jax']}; {peers}; commit {environment['commit']}"


def without(rows: Mapping[str, Mapping[str, Any]], why: str) -> str:
    """Tokenizers that have no counts for a reason."""
    names = [name for name, row in rows.items() if row.get(why)]
    return f"{why}: {len(names)}" + (f", {', '.join(names)}" if names else "")


def characters(count: int) -> str:
    return f"{count / 1e6:g} M" if count >= 10**6 else f"{count / 1e3:g} K"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rows])
