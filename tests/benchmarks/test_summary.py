"""What the results' block of a page says."""

import json
from pathlib import Path

from benchmarks import summary

TOTALS = {"tokenizers": 2, "positions": 20_000_000, "ids": 5_000_000, "spans": 4_000_000}


def write(folder: Path, name: str, results: dict[str, object]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(results))


def test_counts_and_differences_are_said(tmp_path: Path) -> None:
    write(tmp_path, "campaign", {"totals": TOTALS, "rows": {"a": {}, "b": {"difference": "ids at 3"}}})
    rows = {"a": {"skipped": None}, "b": {"skipped": "not installed"}}
    write(tmp_path, "walks", {"steps": 200_000, "differences": [], "tokenizers": rows})
    text = summary.render(tmp_path, brief=True)
    assert "1 differences from the reference over 2 tokenizers, in 20,000,000 positions" in text
    assert "0 differences in 200,000 random steps of sessions over 1 tokenizers" in text


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    assert summary.render(tmp_path) == "Not measured yet on this revision.\n"
