"""The examples run."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.slow
def test_the_serving_loop_reuses_what_it_holds() -> None:
    rows = runpy.run_path(str(EXAMPLES / "serving_loop.py"))["main"](["--turns", "3"])
    assert all(row["new"] < row["ids"] / 4 for row in rows[1:])


def test_every_request_of_many_agents_is_an_append(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(runpy.run_path(str(EXAMPLES / "serving_sessions.py"))["main"]())
    out = capsys.readouterr().out
    assert "changes: {'append': 128}" in out
    assert "'mismatches': 0, 'failed': 0" in out
