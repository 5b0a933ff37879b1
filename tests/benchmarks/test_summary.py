"""What the results' block of a page says."""

import json
from pathlib import Path

from benchmarks import summary

WALKS = {"steps": 200_000, "compared": 200_000, "differences": []}
SHARES = {"none": 0.088, "exact": 0.784}
TOTALS = {"tokenizers": 2, "positions": 20_000_000, "ids": 5_000_000, "spans": 4_000_000}


def write(folder: Path, name: str, results: dict[str, object]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(results))


def test_counts_and_differences_are_said(tmp_path: Path) -> None:
    write(tmp_path, "campaign", {"totals": TOTALS, "rows": {"a": {}, "b": {"difference": "ids at 3"}}})
    rows = {"a": {"skipped": None, "changes": {"append": 9, "full": 3}}, "b": {"skipped": "not installed"}}
    write(tmp_path, "walks", {**WALKS, "tokenizers": rows})
    text = summary.render(tmp_path, brief=True)
    assert "1 differences from the reference over 2 tokenizers, in 20,000,000 positions" in text
    assert "0 differences in 200,000 random steps of sessions over 1 tokenizers, ids and spans compared" in text
    assert "encoded whole instead of repaired: 3 of a." in text


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    assert summary.render(tmp_path) == "Not measured yet on this revision.\n"


def test_what_has_results_is_shown(tmp_path: Path) -> None:
    """Each renderer on what its script writes."""
    environment = {"cpu": "C", "cores": 2, "jax": "0.10", "peers": {}, "commit": "abc"}
    rates = {"sessions": {"50.0": 0.0, "500.0": 400.0}, "stateless": {"50.0": 0.0, "500.0": 32.0}}
    capacity = {"environment": environment, "best": rates, "limit_ms": 500.0, "ratio": 12.5}
    write(tmp_path, "capacity", capacity)
    turns = {"tokenizer": "t", "turns": 9, "served_mb_s": 10.0, "turn_p50_ms": 1.25, "first_try": 1.0, "fallen_back": 0}
    write(tmp_path, "replay", {"rows": [{**turns, "characters": 400_000}]})
    row = {"tokenizer": "t", "platform": "tpu", "what": "encode", "kernels": 363, "temp_a_byte": 639, "compile_s": 1.5}
    write(tmp_path, "aot", {"rows": [row]})
    arms = {arm: {"greedy": share, "over none": 9.4, "interval": [7.8, 11.0]} for arm, share in SHARES.items()}
    write(tmp_path, "boundary", {"corpora": {"code": {"prompts": 102, "arms": arms}}})
    text = summary.render(tmp_path)
    assert "on 102 cut prompts of code SmolLM2-135M finds the next word in 78% instead of 9% (+9.40 nats" in text
    assert "99% answered in 500 ms" in text
    assert "sessions 400, a stateless front end on `tokenizers` 32: 12.5 x" in text
    assert "| t | 9 | 10 | 1.25 | 100.0% | 0 |" in text
    assert "| t | tpu | encode | 363 |  | 639 | 1.5 |  |  |" in text
