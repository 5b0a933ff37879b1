"""The session protocols run in small and say that all ids are equal."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["append", "edits", "replay", "capacity", "walks"])
def test_small(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    protocol = importlib.import_module(f"benchmarks.{name}")
    assert protocol.main(["--small", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / f"{name}.json").read_text())
    assert results["environment"]["jax"]
    assert "DIFFERENT" not in capsys.readouterr().out
