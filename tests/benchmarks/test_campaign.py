"""The campaign's counts, and what becomes of a difference."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import campaign, worker

ROW = {"texts": 3, "characters": 100, "positions": 90, "pieces": 40, "ids": 50, "spans": 50}


def test_rows_are_summed_and_not_checked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def call(task: str, arguments: dict[str, Any], **_: Any) -> dict[str, Any]:
        asked.append(arguments["tokenizer"])
        return {"missing": "not installed"} if arguments["tokenizer"] == "b" else ROW

    monkeypatch.setattr(worker, "call", call)
    for names in ("a,b", "a,b,c"):
        assert campaign.main(["--tokenizers", names, "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "campaign.json").read_text())
    assert asked == ["a", "b", "c"]
    assert results["totals"]["positions"] == 180
    assert results["totals"]["tokenizers"] == 2
    assert results["rows"]["b"] == {"missing": "not installed"}


@pytest.mark.parametrize("fault", [{"difference": "ids at 3"}, RuntimeError("the child died")])
def test_a_difference_and_a_crash_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: Any
) -> None:
    def call(task: str, arguments: dict[str, Any], **_: Any) -> dict[str, Any]:
        if isinstance(fault, Exception):
            raise fault
        return ROW | fault

    monkeypatch.setattr(worker, "call", call)
    assert campaign.main(["--tokenizers", "a", "--out", str(tmp_path)]) == 1
    assert "error: a: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_campaign_ends_after_its_characters() -> None:
    row = campaign.check("gpt2", 300, 0)
    assert 300 <= row["characters"] < 10_000
    assert row["positions"] > 0
    assert "difference" not in row
