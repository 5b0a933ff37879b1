"""The campaign's counts, and what becomes of a difference."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import campaign, report, worker

ROW = {"texts": 3, "characters": 100, "positions": 90, "pieces": 40, "ids": 50, "spans": 50}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokenizers that were checked; no child is started, and the code is that of commit "now"."""
    asked: list[str] = []

    def call(task: str, arguments: dict[str, Any], **_: Any) -> dict[str, Any]:
        asked.append(arguments["tokenizer"])
        return {"missing": "not installed"} if arguments["tokenizer"] == "b" else ROW

    monkeypatch.setattr(worker, "call", call)
    monkeypatch.setattr(report, "commit", lambda: "now")
    return asked


def test_rows_are_summed_and_kept_on_resume(tmp_path: Path, asked: list[str]) -> None:
    for more in (["a,b"], ["a,b,c", "--resume"]):
        assert campaign.main(["--out", str(tmp_path), "--tokenizers", *more]) == 0
    results = json.loads((tmp_path / "campaign.json").read_text())
    assert asked == ["a", "b", "c"]
    assert results["totals"]["positions"] == 180
    assert results["totals"]["tokenizers"] == 2
    assert results["totals"]["asked"] == 3
    assert results["rows"]["a"] == {"commit": "now", **ROW}
    assert results["rows"]["b"] == {"commit": "now", "missing": "not installed"}


def test_without_resume_it_begins_anew(tmp_path: Path, asked: list[str]) -> None:
    for names in ("a,c", "a"):
        assert campaign.main(["--out", str(tmp_path), "--tokenizers", names]) == 0
    assert asked == ["a", "c", "a"]
    assert list(json.loads((tmp_path / "campaign.json").read_text())["rows"]) == ["a"]


def test_rows_of_another_commit_or_seed_are_checked_again(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def resume(*more: str) -> list[str]:
        asked.clear()
        assert campaign.main(["--out", str(tmp_path), "--tokenizers", "a,c", "--resume", *more]) == 0
        return list(asked)

    assert resume() == ["a", "c"]
    assert resume() == []
    assert resume("--seed", "1") == ["a", "c"]
    for commit in ("later", "later+", "later+", "unknown", "unknown"):  # two states of changed code have one name
        monkeypatch.setattr(report, "commit", lambda commit=commit: commit)
        assert resume("--seed", "1") == ["a", "c"]
        rows = json.loads((tmp_path / "campaign.json").read_text())["rows"]
        assert {row["commit"] for row in rows.values()} == {commit}


def test_what_failed_is_checked_again(tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(task: str, arguments: dict[str, Any], **_: Any) -> dict[str, Any]:
        raise RuntimeError("the child died")

    with monkeypatch.context() as context:
        context.setattr(worker, "call", fail)
        assert campaign.main(["--out", str(tmp_path), "--tokenizers", "a"]) == 1
    assert campaign.main(["--out", str(tmp_path), "--tokenizers", "a", "--resume"]) == 0
    assert asked == ["a"]


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
