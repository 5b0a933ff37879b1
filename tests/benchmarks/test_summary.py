"""What the results' block of a page says."""

import json
from pathlib import Path

from benchmarks import report, summary

ENVIRONMENT = {"cpu": "C", "cores": 2, "jax": "0.10", "peers": {}, "commit": "old+", "device": "cpu: C"}
WALKS = {"environment": ENVIRONMENT, "steps": 200_000, "compared": 200_000, "differences": []}
SHARES = {"none": 0.088, "exact": 0.784}
TOTALS = {"tokenizers": 2, "positions": 20_000_000, "ids": 5_000_000, "spans": 4_000_000}


def write(folder: Path, name: str, results: dict[str, object]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(results))


def test_counts_and_differences_are_said(tmp_path: Path) -> None:
    rows = {"a": {"commit": "one"}, "b": {"commit": "two+", "difference": "ids at 3"}}
    write(tmp_path, "campaign", {"environment": ENVIRONMENT, "totals": TOTALS, "rows": rows})
    rows = {"a": {"skipped": None, "changes": {"append": 9, "full": 3}}, "b": {"skipped": "not installed"}}
    write(tmp_path, "walks", {**WALKS, "tokenizers": rows})
    text = summary.render(tmp_path, brief=True)
    assert "(commit one, two+): 1 differences from the reference over 2 of 2 tokenizers" in text
    assert "in 20,000,000 positions" in text
    assert "(commit old+ or earlier): 0 differences in 200,000 random steps of sessions, over 1" in text
    assert "after 200,000 steps, spans after 200,000;" in text
    assert "encoded whole instead of repaired: 3 of a." in text


def test_what_has_no_counts_is_named(tmp_path: Path) -> None:
    """A tokenizer that crashed, one that was left out, and those that nobody came to."""
    rows = {
        "a": {"commit": "c", "texts": 1},
        "b": {"commit": "c", "failed": "died"},
        "d": {"commit": "c", "missing": "x"},
    }
    totals = {**TOTALS, "tokenizers": 1, "asked": 9}
    write(tmp_path, "campaign", {"environment": ENVIRONMENT, "totals": totals, "rows": rows})
    none = {"skipped": None, "failed": None, "commit": "c"}
    rows = {"a": none, "b": none | {"failed": "died"}, "d": none | {"skipped": "pads"}, "e": none | {"skipped": "pads"}}
    counts = {"spans": 40_000, "lengths": {"100": 190_000, "100000": 6_000, "1000000": 4_000}, "longest": 210_000}
    write(tmp_path, "walks", {**WALKS, **counts, "compared": 199_000, "asked": 5, "tokenizers": rows})
    text = summary.render(tmp_path)
    assert "over 1 of 9 tokenizers (failed: 1, b; missing: 1, d)" in text
    assert "10,000 of them on texts of 10,000 to 210,000 characters, over 1 of 5 tokenizers" in text
    assert "(failed: 1, b; skipped: 2, d, e)" in text
    assert "after 199,000 steps, spans after 40,000;" in text


def test_a_part_stands_where_its_marker_is(tmp_path: Path) -> None:
    """In a line, or as lines; only capacities that are compiled count."""
    detail = {"capacities": [1 << 16, 1 << 18, 1 << 20], "seconds": [8.57, 10.7, 0.01]}
    row = {"figure": "compile seconds", "value": 10.7, "sign": "<=", "limit": 5, "ok": "MISSED", "detail": detail}
    write(tmp_path, "figures", {"environment": ENVIRONMENT, "figures": [row]})
    times = [(100_000, 0.6), (2_000_000, 0.9), (8_000_000, 0.7)]
    rows = [{"context": size, "engine": "append", "delta": 1400, "p50_ms": time} for size, time in times]
    write(tmp_path, "append", {"environment": ENVIRONMENT, "rows": rows, "figures": []})
    page = tmp_path / "page.md"
    page.write_text(
        "takes <!-- results:compiling -->5 s<!-- results:end --> each\n"
        "<!-- results:appends -->\nearlier\n<!-- results:end -->\n<!-- results:loop -->\n<!-- results:end -->\n"
    )
    summary.insert(page, tmp_path)
    text = page.read_text()
    assert "takes <!-- results:compiling -->8.6 to 10.7 seconds<!-- results:end --> each\n" in text
    assert "| ms p50 | at 100 K | at 2 M | at 8 M |\n" in text
    assert "| ours, slowest of 3 sizes / at 100 K | 1.5 | <= 1.3 | MISSED |\n<!-- results:end -->" in text
    assert "<!-- results:loop -->\nnot measured yet on this revision\n<!-- results:end -->" in text
    assert "earlier" not in text
    assert "compile seconds, worst of 2 capacities | 10.7 |" in summary.render(tmp_path)
    summary.insert(page, tmp_path)
    assert page.read_text() == text


def test_the_pages_have_the_markers_and_say_what_the_results_say() -> None:
    for name in summary.PAGES:
        page = report.ROOT / name
        assert summary.BLOCK.search(page.read_text()), name
        assert page.read_text() == summary.filled(page, report.RESULTS), f"{name}: run python -m benchmarks.summary"


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    assert summary.render(tmp_path) == "Not measured yet on this revision.\n"


def test_what_has_results_is_shown(tmp_path: Path) -> None:
    """Each renderer on what its script writes."""
    rates = {"sessions": {"50.0": 0.0, "500.0": 400.0}, "stateless": {"50.0": 0.0, "500.0": 32.0}}
    capacity = {"environment": ENVIRONMENT, "best": rates, "limit_ms": 500.0, "ratio": 12.5}
    write(tmp_path, "capacity", capacity)
    turns = {"tokenizer": "t", "turns": 9, "served_mb_s": 10.0, "turn_p50_ms": 1.25, "first_try": 1.0, "fallen_back": 0}
    write(tmp_path, "replay", {"rows": [{**turns, "characters": 400_000}]})
    row = {"tokenizer": "t", "platform": "tpu", "what": "encode", "kernels": 363, "temp_a_byte": 639, "compile_s": 1.5}
    write(tmp_path, "aot", {"rows": [row]})
    arms = {arm: {"greedy": share, "over none": 9.4, "interval": [7.8, 11.0]} for arm, share in SHARES.items()}
    write(
        tmp_path,
        "boundary",
        {"environment": ENVIRONMENT, "commit": "c", "corpora": {"code": {"prompts": 102, "arms": arms}}},
    )
    text = summary.render(tmp_path)
    assert "`python -m benchmarks.boundary` (commit c): on 102 cut prompts" in text
    assert "on 102 cut prompts of code SmolLM2-135M finds the next word in 78% instead of 9% (+9.40 nats" in text
    assert "99% answered in 500 ms" in text
    assert "sessions 400, a stateless front end on `tokenizers` 32: 12.5 x" in text
    assert "| t | 9 | 10 | 1.25 | 100.0% | 0 |" in text
    assert "| t | tpu | encode | 363 |  | 639 | 1.5 |  |  |" in text
