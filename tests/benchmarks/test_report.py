"""The commit that results are stamped with, and the rows that are kept for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import report


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with code, a page and a result, all of them committed."""
    for name in ("toktier_jax/a.py", "benchmarks/b.py", "benchmarks/results/r.json", "docs/d.md", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["benchmarks/results/r.json", "benchmarks/results/new.json", "docs/d.md", "README.md"])
def test_results_and_pages_do_not_change_the_code(tree: Path, name: str) -> None:
    (tree / name).write_text("refreshed")
    assert report.names_code(report.commit())


@pytest.mark.parametrize("name", ["toktier_jax/a.py", "benchmarks/b.py", "toktier_jax/new.py"])
def test_changed_code_is_marked_and_said(tree: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    clean = report.commit()
    (tree / name).write_text("changed")
    assert report.commit() == clean + "+"
    assert not report.names_code(report.commit())
    written = json.loads(report.write("r", {}, tree).read_text())
    assert written["environment"]["commit"] == clean + "+"
    assert "warning:" in capsys.readouterr().err


def test_a_clean_tree_is_no_warning(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.write("r", {}, tree / "benchmarks" / "results")
    report.write("s", {}, tree / "benchmarks" / "results")
    assert not capsys.readouterr().err


def test_no_commit_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "ROOT", tmp_path)
    assert report.commit() == "unknown"
    assert not report.names_code("unknown")
