"""Writes the measured results into README.md and the pages, between their results markers.

    python -m benchmarks.summary [--results DIR] [FILE ...]

`<!-- results:begin ... -->` opens the block of all results, `<!-- results:NAME -->` one part of them (`NAMED`);
`<!-- results:end -->` ends both.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import report

BLOCK = re.compile(r"(<!-- results:(\w+)[^>]*-->)(.*?)(<!-- results:end -->)", re.DOTALL)
PAGES = ("README.md", "docs/benchmarks.md", "docs/index.md", "docs/sampling.md", "docs/sessions.md")
NOTHING = "not measured yet on this revision"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=report.RESULTS)
    parser.add_argument("files", nargs="*", type=Path, default=[report.ROOT / page for page in PAGES])
    arguments = parser.parse_args(argv)
    for file in arguments.files:
        insert(file, arguments.results)
    return 0


def insert(file: Path, folder: Path) -> None:
    """Puts the results between the file's markers."""
    file.write_text(filled(file, folder), encoding="utf-8")


def filled(file: Path, folder: Path) -> str:
    """The file's text with the results between its markers; those of one line stay on it."""

    def block(match: re.Match[str]) -> str:
        begin, name, old, end = match.groups()
        if name == "begin":
            return f"{begin}\n{render(folder, brief=file.name == 'README.md')}{end}"
        text = "\n\n".join(NAMED[name](folder)) or NOTHING
        return f"{begin}\n{text}\n{end}" if "\n" in old else f"{begin}{text}{end}"

    return BLOCK.sub(block, file.read_text(encoding="utf-8"))


def render(folder: Path, *, brief: bool = False) -> str:
    """Markdown of whatever results lie in `folder`; `brief`: the counts and the encode's speed alone."""
    parts = [*campaign(folder), *walks(folder), *boundary(folder), *encode(folder)]
    if not brief:
        parts += [*figures(folder), *appends(folder), *edits(folder)]
        parts += [*batch(folder), *capacity(folder), *replay(folder), *loop(folder), *aot(folder)]
    return "\n\n".join(parts or [NOTHING.capitalize() + "."]) + "\n"


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


def walks(folder: Path) -> list[str]:
    if not (found := read(folder, "walks")):
        return []
    rows = found["tokenizers"]
    walked = sum(not (row["skipped"] or row.get("failed")) for row in rows.values())
    compared = found["compared"] if "spans" in found else found["steps"]  # files without "spans" hold theirs there
    whole = [
        f"{count:,} of {name}"
        for name, row in rows.items()
        for way, count in row.get("changes", {}).items()
        if way.startswith(("full", "reference"))
    ]
    long = sum(steps for length, steps in found.get("lengths", {}).items() if int(length) > 10_000)
    texts = f", {long:,} of them on texts of 10,000 to {found['longest']:,} characters" if long else ""
    return [
        f"`python -m benchmarks.walks` ({commits(found, rows.values())}): {len(found['differences'])} differences in "
        f"{found['steps']:,} random steps of sessions{texts}, over {walked} of {found.get('asked', len(rows))} "
        f"tokenizers ({without(rows, 'failed')}; {without(rows, 'skipped')}); ids compared with a full encode of the "
        f"reference after {compared:,} steps, spans after {found.get('spans', found['compared']):,}; "
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
    return [f"`python -m benchmarks.boundary` ({commits(found, [found])}): {'; '.join(parts)}."]


def loop(folder: Path) -> list[str]:
    if not (found := read(folder, "loop")):
        return []
    row = found["row"]
    return [
        f"`python -m benchmarks.loop` ({commits(found)}), {found['model']}, one row: a Python loop over the jitted "
        f"step takes {row['steps / loop']:.2f} times as long as the jitted loop, a loop over the model not jitted, "
        f"with the same cache, {row['eager / loop']:.1f} times."
    ]


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
    """Seconds of each capacity that was compiled. Earlier files hold larger ones too, for which nothing was: they took
    hundredths."""
    times = [row["detail"] for row in found["figures"] if _compiles(row)]
    return [seconds for each in times for seconds in each["seconds"] if seconds > 0.1]


def compiling(folder: Path) -> list[str]:
    """How long a compilation takes, in words."""
    found = read(folder, "figures")
    seconds = compiled(found) if found else []
    return [f"{min(seconds):.1f} to {max(seconds):.1f} seconds"] if seconds else []


def appends(folder: Path) -> list[str]:
    """All sizes; and what they are held to, from the rows."""
    if not (found := read(folder, "append")):
        return []
    from . import append

    rows = [row for row in found["rows"] if row["delta"] == append.APPEND]
    sizes = sorted({row["context"] for row in rows})
    lines = [["ms p50", *(f"at {_characters(size)}" for size in sizes)]]
    for engine in dict.fromkeys(row["engine"] for row in rows):
        times = {row["context"]: row["p50_ms"] for row in rows if row["engine"] == engine}
        lines.append([engine, *(f"{times[size]:.3g}" if size in times else "" for size in sizes)])
    title = f"Appends of {append.APPEND:,} characters to a session ({machine(found)}):"
    return [title, markdown(lines), held(append.figures(found["rows"]))]


def _characters(count: int) -> str:
    return f"{count / 1e6:g} M" if count >= 10**6 else f"{count / 1e3:g} K"


def edits(folder: Path) -> list[str]:
    found = read(folder, "edits")
    return [f"Edits of a session ({machine(found)}):", held(found["figures"])] if found else []


def held(rows: Iterable[Mapping[str, Any]]) -> str:
    """A table of figures, and of what they are held to."""
    lines = [["figure", "measured", "held to", ""]]
    for row in rows:
        value = "" if row["value"] is None else f"{row['value']:.3g}"
        limit = "" if row["limit"] is None else f"{row['sign']} {row['limit']}"
        lines.append([row["figure"], value, limit, "" if row["ok"] in ("yes", "ok") else row["ok"]])
    return markdown(lines)


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
    shadow = [row for row in found.get("rows", []) if "verified" in row]
    counts = {what: sum(row[what] for row in shadow) for what in ("changes", "verified", "dropped", "mismatches")}
    verified = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    return [
        f"Requests a second with 99% answered in {found['limit_ms']:g} ms, two worker threads ({machine(found)}): "
        f"sessions {best['sessions']:g}, a stateless front end on `tokenizers` {best['stateless']:g}: "
        f"{found['ratio']:.3g} x." + (f" All rates together: {verified}." if shadow else "")
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


NAMED: Mapping[str, Callable[[Path], list[str]]] = {
    "appends": appends,
    "compiling": compiling,
    "loop": loop,
    "walks": walks,
}
"""Parts that pages show by themselves."""


def commits(found: Mapping[str, Any], rows: Iterable[Mapping[str, Any]] = ()) -> str:
    """The commits that the rows name, that of the file where there are none; a '+' says that code differed from it."""
    named, written = [row.get("commit") for row in rows], found["environment"]["commit"]
    if not named or all(named):
        return f"commit {', '.join(dict.fromkeys(map(str, named))) or written}"
    return f"commit {written} or earlier"  # rows of earlier runs were kept without theirs


def without(rows: Mapping[str, Mapping[str, Any]], why: str) -> str:
    """Tokenizers that have no counts for a reason."""
    names = [name for name, row in rows.items() if row.get(why) and not isinstance(row[why], int)]
    return f"{why}: {len(names)}" + (f", {', '.join(names)}" if names else "")


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
