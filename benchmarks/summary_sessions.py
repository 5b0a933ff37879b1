"""Summaries of sessions: random walks, appends, edits, the rate of requests, replayed transcripts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from .summary_text import characters, commits, figure, held, machine, markdown, read, without


def walks(folder: Path) -> list[str]:
    """Of all runs, walks.json and those beside it, together."""
    names = sorted(path.stem for path in folder.glob("walks*.json"))
    if not (runs := [found for name in names if (found := read(folder, name))]):
        return []
    rows = [(name, row) for run in runs for name, row in run["tokenizers"].items()]
    failed = {name: row for name, row in rows if row["failed"]}
    done = {name: row for name, row in rows if not row["skipped"] and name not in failed}
    both = {**dict(rows), **failed}
    steps, compared, spans = (sum(run[count] for run in runs) for count in ("steps", "compared", "spans"))
    differences = sum(len(run["differences"]) for run in runs)
    whole = Counter[str]()
    for name, row in rows:
        whole[name] += sum(n for way, n in row["changes"].items() if way.startswith(("full", "reference")))
    encoded = ", ".join(f"{count:,} of {name}" for name, count in whole.items() if count)
    long = sum(count for run in runs for length, count in run["lengths"].items() if int(length) > 10_000)
    longest = max(run["longest"] for run in runs)
    texts = f", {long:,} of them on texts of 10,000 to {longest:,} characters" if long else ""
    return [
        f"`python -m benchmarks.walks` ({commits(runs[0], [row for _, row in rows])}): {differences} differences in "
        f"{steps:,} random steps of sessions{texts}, over {len(done)} of {max(run['asked'] for run in runs)} "
        f"tokenizers ({without(both, 'failed')}; {without(both, 'skipped')}); ids compared with a full "
        f"encode of the reference after {compared:,} steps, spans after {spans:,}"
        f"{'' if min(compared, spans) >= 200_000 else ' (MISSED: 200,000)'}; "
        f"changes that were encoded whole, for want of a compiled pattern: {encoded or 'none'}"
        f"{''.join(f'; not repaired although there is one: {each}' for run in runs for each in run.get('whole', ()))}."
    ]


def appends(folder: Path) -> list[str]:
    """All sizes; and what they are held to, from the rows."""
    if not (found := read(folder, "append")):
        return []
    from . import append

    rows = [row for row in found["rows"] if row["delta"] == append.APPEND]
    sizes = sorted({row["context"] for row in rows})
    lines = [["ms p50", *(f"at {characters(size)}" for size in sizes)]]
    for engine in dict.fromkeys(row["engine"] for row in rows):
        times = {row["context"]: row["p50_ms"] for row in rows if row["engine"] == engine}
        lines.append([engine, *(f"{times[size]:.3g}" if size in times else "" for size in sizes)])
    title = f"Appends of {append.APPEND:,} characters to a session ({machine(found)}):"
    return [title, markdown(lines), held(append.figures(found["rows"]))]


def edits(folder: Path) -> list[str]:
    found = read(folder, "edits")
    return [f"Edits of a session ({machine(found)}):", held(found["figures"])] if found else []


def capacity(folder: Path) -> list[str]:
    if not (found := read(folder, "capacity")):
        return []
    from . import capacity

    limits = list(next(iter(found["best"].values())))
    lines = [["99% within", *(f"{float(limit):g} ms" for limit in limits)]]
    lines += [[front, *(f"{rates[limit]:g}" for limit in limits)] for front, rates in found["best"].items()]
    ratio = figure(f"sessions / stateless at {found['limit_ms']:g} ms", found["ratio"], ">=", capacity.LEAST)
    shadow = [row for row in found["rows"] if "verified" in row]
    counts = {what: sum(row[what] for row in shadow) for what in ("changes", "verified", "dropped", "mismatches")}
    verified = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    title = f"Requests a second that are answered from sessions, and by a stateless front end ({machine(found)}):"
    after = f"Sessions, all rates together: {verified}." if shadow else "This run did not count what was verified."
    return [title, markdown(lines), held([ratio]), after]


def replay(folder: Path) -> list[str]:
    if not (found := read(folder, "replay")):
        return []
    lines = [["transcript by", "turns", "MB served a second", "turn, p50 ms", "repaired at first", "fallen back"]]
    for row in found["rows"]:
        numbers = (f"{row['served_mb_s']:.0f}", f"{row['turn_p50_ms']:.2f}", f"{row['first_try']:.1%}")
        lines.append([row["tokenizer"], str(row["turns"]), *numbers, str(row["fallen_back"])])
    return [f"A transcript of {found['rows'][0]['characters']:,} characters, sent whole every turn:", markdown(lines)]
