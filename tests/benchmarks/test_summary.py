"""What the results' block of a page says."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import consumers, device, report, summary, summary_encode, summary_text

ENVIRONMENT = {"cpu": "C", "cores": 2, "jax": "0.10", "peers": {}, "commit": "old+", "device": "cpu: C"}
COUNTED = {"steps": 200_000, "compared": 200_000, "spans": 200_000, "lengths": {}, "longest": 300, "asked": 2}
WALKS = {"environment": ENVIRONMENT, **COUNTED, "differences": []}
SHARES = {"none": 0.088, "back-off": None, "exact": 0.784}
TOTALS = {"tokenizers": 2, "positions": 20_000_000, "ids": 5_000_000, "spans": 4_000_000}


def write(folder: Path, name: str, results: dict[str, object]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(results))


def test_counts_and_differences_are_said(tmp_path: Path) -> None:
    rows = {"a": {"commit": "one"}, "b": {"commit": "two+", "difference": "ids at 3"}}
    write(tmp_path, "campaign", {"environment": ENVIRONMENT, "totals": TOTALS, "rows": rows})
    none = {"skipped": None, "failed": None, "commit": "one", "changes": {}}
    rows = {"a": none | {"changes": {"append": 9, "full": 3}}, "b": none | {"skipped": "not installed"}}
    rows["d"] = none | {"failed": "once"}
    write(tmp_path, "walks", {**WALKS, "tokenizers": rows})
    rows = {"a": none | {"commit": "two", "changes": {"full": 1}}, "c": none | {"commit": "two"}}
    rows["d"] = none
    write(tmp_path, "walks-again", {**WALKS, "steps": 5, "tokenizers": rows, "whole": ["c: full"]})
    text = summary.render(tmp_path, brief=True)
    assert "(commit one, two+): 1 differences from the reference over 2 of 2 tokenizers" in text
    assert "in 20,000,000 positions" in text
    assert "(commit one, two): 0 differences in 200,005 random steps of sessions, over 2 of 2" in text
    assert "(failed: 1, d; skipped: 1, b)" in text
    assert "after 400,000 steps, spans after 400,000;" in text
    assert "encoded whole, for want of a compiled pattern: 4 of a; not repaired although there is one: c: full." in text


def test_what_has_no_counts_is_named(tmp_path: Path) -> None:
    """A tokenizer that crashed, one that was left out, and those that nobody came to."""
    rows = {
        "a": {"commit": "c", "texts": 1},
        "b": {"commit": "c", "failed": "died"},
        "d": {"commit": "c", "missing": "x"},
    }
    totals = {**TOTALS, "tokenizers": 1, "asked": 9}
    write(tmp_path, "campaign", {"environment": ENVIRONMENT, "totals": totals, "rows": rows})
    none = {"skipped": None, "failed": None, "commit": "c", "changes": {}}
    rows = {"a": none, "b": none | {"failed": "died"}, "d": none | {"skipped": "pads"}, "e": none | {"skipped": "pads"}}
    counts = {"spans": 40_000, "lengths": {"100": 190_000, "100000": 6_000, "1000000": 4_000}, "longest": 210_000}
    write(tmp_path, "walks", {**WALKS, **counts, "compared": 199_000, "asked": 5, "tokenizers": rows})
    text = summary.render(tmp_path)
    assert "over 1 of 9 tokenizers (failed: 1, b; missing: 1, d)" in text
    assert "10,000 of them on texts of 10,000 to 210,000 characters, over 1 of 5 tokenizers" in text
    assert "(failed: 1, b; skipped: 2, d, e)" in text
    assert "after 199,000 steps, spans after 40,000 (MISSED: 200,000);" in text


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
    assert "| ours, slowest of 3 sizes / at 100 K | 1.5 | <= 1.3 | MISSED: encoding the window" in text
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
    rates = {"stateless": {"50.0": 0.0, "500.0": 32.0}, "sessions": {"50.0": 0.0, "500.0": 400.0}}
    counts = {"changes": 900, "verified": 40, "dropped": 2, "mismatches": 0}
    found = {"best": rates, "limit_ms": 500.0, "ratio": 12.5, "rows": [counts, counts, {"front end": "stateless"}]}
    write(tmp_path, "capacity", {"environment": ENVIRONMENT, **found})
    turns = {"tokenizer": "t", "turns": 9, "served_mb_s": 10.0, "turn_p50_ms": 1.25, "first_try": 1.0, "fallen_back": 0}
    write(tmp_path, "replay", {"rows": [{**turns, "characters": 400_000}]})
    row = {"tokenizer": "t", "platform": "tpu", "what": "encode", "kernels": 363, "temp_a_byte": 639, "compile_s": 1.5}
    write(tmp_path, "aot", {"rows": [row, row | {"platform": "cuda", "missed": "predicted_ms > 0.87"}]})
    text = summary.render(tmp_path)
    assert "| 99% within | 50 ms | 500 ms |\n|---|---|---|\n| stateless | 0 | 32 |\n| sessions | 0 | 400 |" in text
    assert "| sessions / stateless at 500 ms | 12.5 | >= 20.0 | MISSED: the Python of an append" in text
    assert "all rates together: 1,800 changes, 80 verified, 4 dropped, 0 mismatches." in text
    assert "| t | 9 | 10 | 1.25 | 100.0% | 0 |" in text
    assert "| t | tpu | encode | 363 |  | 639 | 1.5 |  |  |" in text
    assert "| MISSED predicted_ms > 0.87: starting kernels" in text


def test_all_arms_of_a_boundary_are_shown(tmp_path: Path) -> None:
    cells = {"mean": -7.0, "over none": 9.4, "interval": [7.8, 11.0], "infinite": 0}
    extra = {"extra tokens": -1, "extra calls": 0}
    arms = {arm: {**cells, **extra, "greedy": share} for arm, share in SHARES.items()}
    aligned = {"prompts": 15, "over none": -0.1, "interval": [-0.2, -0.05], "log p(b|P)": -0.11}
    check = {"aligned: mean of exact - none >= -0.05": {"value": -0.1, "ok": False}}
    corpus = {"prompts": 102, "arms": arms, "aligned": {"aligned": aligned}, "checks": check}
    write(tmp_path, "boundary", {"environment": ENVIRONMENT, "commit": "c", "corpora": {"code": corpus}})
    text = summary.render(tmp_path)
    assert "`python -m benchmarks.boundary` (commit c): on 102 cut prompts" in text
    assert "on 102 cut prompts of code SmolLM2-135M finds the next word in 78% instead of 9% (+9.40 nats" in text
    assert "| code | none | -7.00 |  |  | 9% | -1.00 | +0.00 |" in text
    assert "| code | back-off | -7.00 | +9.40 | +7.80 to +11.00 |  | -1.00 | +0.00 |" in text
    assert "| code | 15 | aligned | -0.100 | -0.200 to -0.050 | -0.110 |" in text
    assert "| code | aligned: mean of exact - none >= -0.05 | -0.1 | MISSED: the probability of tokens" in text
    assert "left out of its mean: 0 of code." in text


def test_the_mask_is_held_to_index_lists(tmp_path: Path) -> None:
    row = {"vocabulary": 50_000, "batch": 8, "plain us": 700.0, "ranges us": 1100.0, "lists us": 550.0}
    write(tmp_path, "mask", {"environment": ENVIRONMENT, "rows": [row | {"lists / ranges": 0.5}]})
    text = summary.render(tmp_path)
    assert "| 50,000 | 8 | 0.7 | 1.1 | 0.55 | 0.50 |" in text
    assert "| lists / ranges at 50,000 x 8 | 0.5 | >= 1 | MISSED" in text


def test_a_loop_that_is_missed_says_so(tmp_path: Path) -> None:
    row, checks = {"steps / loop": 0.9, "eager / loop": 8.0}, {"steps / loop >= 1": False, "eager / loop >= 3": True}
    write(tmp_path, "loop", {"environment": ENVIRONMENT, "model": "m", "row": row, "checks": checks})
    assert "8.0 times. MISSED: not profiled (steps / loop >= 1)." in summary.render(tmp_path)


@pytest.mark.parametrize("where", [None, "cpu: cpu"])
def test_without_an_accelerator_nothing_is_said_of_one(where: str | None, tmp_path: Path) -> None:
    if where:
        write(tmp_path, "device", {"environment": {**ENVIRONMENT, "device": where}, "rows": [], "figures": []})
    assert summary_encode.device(tmp_path) == ["`python -m benchmarks.device`: not measured: no accelerator."]


def test_an_accelerator_is_held_to_its_figures(tmp_path: Path) -> None:
    times = {"compile_s": 20.0, "p50_ms": 0.9, "p90_ms": 1.0, "gb_s": 1.1, "ids": "equal"}
    rows: list[dict[str, Any]] = [{"row": device.WHOLE, **times}, {"row": "late", "ids": "SKIPPED: over 280 s"}]
    draws = [{"row": "step", "step_us": 30.0, "added_us": 5.0, "limit_us": 15.0}, {"row": "draw", "step_us": 9.0}]
    found = {"rows": rows, "sampling": draws, "figures": device.figures(rows, draws)}
    write(tmp_path, "device", {"environment": {**ENVIRONMENT, "device": "gpu: H"}, **found})
    text = "\n".join(summary_encode.device(tmp_path))
    assert "(gpu: H, jax 0.10; commit old+)" in text
    assert f"| {device.WHOLE} | 20 | 0.9 | 1 | 1.1 | equal |" in text
    assert "| late |  |  |  |  | SKIPPED: over 280 s |" in text
    assert f"| {device.WHOLE}, ms p50 | 0.9 | < 0.87 | MISSED" in text
    assert "| step, us added | 5 | < 15.0 |  |" in text


def test_the_fastest_peer_is_compared_with_ours(tmp_path: Path) -> None:
    speeds = {("a", "en"): 8.0, ("a", "zh"): 9.0, ("b", "en"): 6.0}
    speeds |= {(summary_encode.OURS, "en"): 2.0, (summary_encode.OURS, "zh"): 3.0}
    rows = [{"size": 10**6, "engine": one, "text": text, "cold_mb_s": mb} for (one, text), mb in speeds.items()]
    write(tmp_path, "encode", {"environment": ENVIRONMENT, "tokenizer": "t", "rows": rows})
    batches = [("a", 30.0), ("packed", 4.0), ("packed", 5.0), ("encode_batch", 3.0)]
    rows = [{"engine": engine, "mb_s": speed} for engine, speed in batches]
    write(tmp_path, "batch", {"environment": ENVIRONMENT, "rows": rows})
    assert summary_encode.fastest(tmp_path) == ["3.0 to 4.0 times as fast on one text, 6.0 times in batches"]


def test_what_is_missed_names_its_largest_consumer() -> None:
    assert consumers.verdict("update at 1 M, ms", missed=False) == ""
    assert consumers.verdict("update at 1 M, ms", missed=True).startswith("MISSED: comparing")
    row = {"value": None, "sign": "<=", "limit": 1}
    rows = [row | {"figure": "x", "ok": "MISSED"}, row | {"figure": "x", "ok": "FAILED: no"}]
    assert "| x |  | <= 1 | MISSED: not profiled |\n| x |  | <= 1 | FAILED: no |" in summary_text.held(rows)


@pytest.mark.parametrize("name", summary.PAGES)
def test_every_miss_on_a_page_was_profiled(name: str) -> None:
    """One that was not: profile it, and say what takes most of it in benchmarks/consumers.py."""
    lines = [line for line in (report.ROOT / name).read_text().splitlines() if "MISSED" in line]
    assert not [line for line in lines if consumers.UNKNOWN in line]
