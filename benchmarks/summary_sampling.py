"""Summaries of sampling: the prompt's boundary, the first step's mask, the decode loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .consumers import verdict
from .summary_text import commits, figure, held, machine, markdown, read


def boundary(folder: Path) -> list[str]:
    """What exact is worth, in a sentence."""
    if not (found := read(folder, "boundary")):
        return []
    parts = []
    for corpus, row in found["corpora"].items():
        if "exact" not in row["arms"]:
            continue
        exact, none = row["arms"]["exact"], row["arms"]["none"]
        low, high = exact["interval"]
        parts.append(
            f"on {row['prompts']} cut prompts of {corpus} SmolLM2-135M finds the next word in {exact['greedy']:.0%} "
            f"instead of {none['greedy']:.0%} ({exact['over none']:+.2f} nats, 95% interval {low:+.2f} to {high:+.2f})"
        )
    return [f"`python -m benchmarks.boundary` ({commits(found, [found])}): {'; '.join(parts)}."]


def arms(folder: Path) -> list[str]:
    """All arms on cut prompts, exact on aligned ones, and what they are held to."""
    if not (found := read(folder, "boundary")):
        return []
    corpora = found["corpora"]
    counts = " and ".join(f"{row['prompts']} of {corpus}" for corpus, row in corpora.items())
    return [
        f"SmolLM2-135M on cut prompts, {counts} ({commits(found, [found])}):",
        markdown(list(_cut(corpora))),
        f"Prompts with an infinite value in some arm are left out of its mean: {_infinite(corpora)}.",
        *(f"Skipped: {reason}." for reason in found.get("skipped", ())),
        "Exact on aligned prompts, which end where a token of the real text does:",
        markdown(list(_aligned(corpora))),
        "What this is held to:",
        markdown(list(_checks(corpora))),
    ]


def _cut(corpora: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    yield "text", "arm", "log p, nats", "over none", "95% interval", "next word", "extra tokens", "extra calls"
    for corpus, row in corpora.items():
        for arm, cells in row["arms"].items():
            word = "" if cells["greedy"] is None else f"{cells['greedy']:.0%}"
            paired = ("", "") if arm == "none" else (f"{cells['over none']:+.2f}", _interval(cells, 2))
            extra = f"{cells['extra tokens']:+.2f}", f"{cells['extra calls']:+.2f}"
            yield corpus, arm, f"{cells['mean']:.2f}", *paired, word, *extra


def _infinite(corpora: Mapping[str, Any]) -> str:
    return ", ".join(f"{max(a['infinite'] for a in row['arms'].values())} of {name}" for name, row in corpora.items())


def _aligned(corpora: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    yield "text", "prompts", "", "exact - none", "95% interval", "log p(b|P)"
    for corpus, row in corpora.items():
        for ends, cells in row["aligned"].items():
            means = f"{cells['over none']:+.3f}", _interval(cells, 3), f"{cells['log p(b|P)']:+.3f}"
            yield corpus, str(cells["prompts"]), ends, *means


def _checks(corpora: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    yield "text", "check", "measured", ""
    for corpus, row in corpora.items():
        for name, check in row["checks"].items():
            yield corpus, name, f"{check['value']:.3g}", verdict(name, not check["ok"])


def _interval(cells: Mapping[str, Any], digits: int) -> str:
    low, high = cells["interval"]
    return f"{low:+.{digits}f} to {high:+.{digits}f}"


def mask(folder: Path) -> list[str]:
    if not (found := read(folder, "mask")):
        return []
    lines = [["vocabulary", "rows", "no mask", "ranges", "index lists", "lists / ranges"]]
    for row in found["rows"]:
        times = (f"{row[way] / 1e3:.3g}" for way in ("plain us", "ranges us", "lists us"))
        lines.append([f"{row['vocabulary']:,}", str(row["batch"]), *times, f"{row['lists / ranges']:.2f}"])
    last = found["rows"][-1]
    name = f"lists / ranges at {last['vocabulary']:,} x {last['batch']}"
    return [
        f"Milliseconds of a greedy step: without a mask, masked by vocabulary ranges, and by a scatter of padded lists "
        f"of indices, which are built for the step ({machine(found)}):",
        markdown(lines),
        held([figure(name, last["lists / ranges"], ">=", 1)]),
    ]


def loop(folder: Path) -> list[str]:
    if not (found := read(folder, "loop")):
        return []
    row = found["row"]
    missed = [f" {verdict(name, True)} ({name})." for name, ok in found["checks"].items() if not ok]
    return [
        f"`python -m benchmarks.loop` ({commits(found)}), {found['model']}, one row: a Python loop over the jitted "
        f"step takes {row['steps / loop']:.2f} times as long as the jitted loop, a loop over the model not jitted, "
        f"with the same cache, {row['eager / loop']:.1f} times." + "".join(missed)
    ]
