"""Compiling for devices that are not here: in a process of its own, where the compilers are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import aot, hlo, report
from benchmarks.rounds import Rounds


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_the_split_compiles_for(platform: aot.Platform, tmp_path: Path):
    """Kernels by the level of composition, not by the pattern; few temporaries."""
    if reason := aot.missing(platform):
        pytest.skip(reason)
    command = ["--tokenizers", "gpt2", "--what", "split", "--platforms", platform, "--bytes", str(1 << 12)]
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.aot", *command, "--out", str(tmp_path)],
        cwd=report.ROOT,
        env={**os.environ, **aot.ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-4000:]
    (row,) = json.loads((tmp_path / "aot.json").read_text())["rows"]
    assert row["platform"] == platform
    if platform == "cuda":
        assert row["kernels"] <= 20
        assert row["temp_a_byte"] <= 20
        assert row["predicted_ms"] < 0.2


def cost(launches: int, origin: str = "") -> hlo.Cost:
    return hlo.Cost(kernels=hlo.Counter(fusion=launches), origins=hlo.Counter({origin: launches}))


def report_of(*loops: hlo.Loop) -> aot.Report:
    return aot.Report("cuda", hlo.Module(cost(10), list(loops)), temporary=0, trace_s=0.0, compile_s=0.0, cpu_s=0.0)


def test_loops_are_priced_by_their_rounds():
    compiled = report_of(hlo.Loop("outer", cost(1), None, [hlo.Loop("inner", cost(2), None, [])]))
    turns = [Rounds(5, [Rounds(30)])]
    assert (compiled.kernels, compiled.launches(turns)) == (10, 10 + 5 * 1 + 30 * 2)
    assert compiled.predicted_s(turns) == pytest.approx((10 + 5 * 1 + 30 * 2) * aot.LAUNCH)


def test_a_round_is_the_largest_of_those_that_merge():
    rounds = [hlo.Loop("", cost(4, "merge_rounds.py"), None, []), hlo.Loop("", cost(5, "merge_far.py"), None, [])]
    assert report_of(hlo.Loop("batches", cost(30, "tokenize.py"), None, rounds)).kernels_a_round == 5


def test_other_loops_than_counted_give_no_prediction():
    assert report_of().predicted_s([Rounds(5)]) is None
    assert report_of().launches([Rounds(5)]) is None


def test_a_compiler_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(aot.PACKAGES, "cuda", ("no_such_module", "the plugin"))
    assert aot.missing("cuda") == "the plugin is not installed (make aot brings it)"
