"""The encode protocol in small: texts, one cell, the table, the figures' verdicts, the results block."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import encode, figures, peers, report, summary, texts, worker
from tests import artifacts

TOKENIZER = "gpt2"
"""Small, so that loading it costs little."""


@pytest.fixture(autouse=True)
def _needs_artifact() -> None:
    try:
        artifacts.load(TOKENIZER)
    except artifacts.Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(task: str, arguments: dict[str, Any], environment: dict[str, str] | None = None) -> dict[str, Any]:
        return json.loads(json.dumps(worker.main(task, arguments)))

    monkeypatch.setattr(worker, "call", call)


@pytest.mark.parametrize("name", ["english", "code", "chat", *texts.PATHOLOGICAL])
def test_texts_have_their_length_and_are_repeatable(name: str) -> None:
    first = texts.make(name, 3000)
    assert len(first) == 3000
    assert first == texts.make(name, 3000)


def test_parts_of_a_text_do_not_overlap() -> None:
    assert texts.make("code", 1000, 0) + texts.make("code", 1000, 1) == texts.make("code", 2000)


def test_a_short_source_is_read_round() -> None:
    assert texts.take("abc", 7, 0) == "abcabca"
    assert texts.take("abc", 2, 1) == "ca"


def test_chat_holds_added_tokens() -> None:
    assert texts.make("chat", 20_000).count("<|im_start|>") >= 9


@pytest.mark.parametrize("engine", [peers.REFERENCE, peers.OURS])
def test_a_cell_measures_and_names_its_ids(engine: str) -> None:
    row = worker.run(worker.Job(engine, TOKENIZER, "code", 2000, repeats=1))
    expected = artifacts.load(TOKENIZER).reference.encode(texts.make("code", 2000), add_special_tokens=False).ids
    assert row["digest"] == report.digest(np.asarray(expected))
    assert row["cold_ms"] > 0


@pytest.mark.slow  # a compile for what other tests compile
def test_the_grid_in_small(in_this_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="plots need the bench extra")
    assert encode.main(["--small", "--only", "grid", "--tokenizer", TOKENIZER, "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "encode.json").read_text())
    assert written["rows"][0]["engine"] == peers.REFERENCE
    assert written["rows"][-1]["engine"] == peers.OURS
    assert written["environment"]["commit"]
    assert all("SKIPPED " + reason in capsys.readouterr().out for reason in written["skipped"][:1])
    assert (tmp_path / "encode-english.svg").exists()


def test_a_row_with_other_ids_is_an_error(
    in_this_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "of", lambda artifact: (peers.REFERENCE, peers.OURS))
    monkeypatch.setattr(encode, "plot", lambda rows, folder: None)
    honest = worker.run
    monkeypatch.setattr(
        worker, "run", lambda job: honest(job) | ({"digest": "other"} if job.engine == peers.OURS else {})
    )
    assert encode.main(["--small", "--only", "grid", "--tokenizer", TOKENIZER, "--out", str(tmp_path)]) == 1
    assert "other ids" in capsys.readouterr().err


def test_figures_are_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def call(task: str, arguments: dict[str, Any], environment: dict[str, str] | None = None) -> dict[str, Any]:
        if task == "memory":
            return {**arguments, "skipped": "no such peak here"}
        if task == "compile_times":
            raise RuntimeError("child failed:\nTraceback\nValueError: why")
        return {"ratio": 5.0, "compiles": 0, "seconds": 0.1}

    monkeypatch.setattr(worker, "call", call)
    rows = {row["figure"]: row for row in figures.run_all(small=True, say=lambda line: None)}
    assert rows["1 M characters of mixed text, x reference"]["ok"] == "MISSED"
    assert rows["chat transcript over plain text"]["ok"] == "MISSED"
    assert rows["a million of 'a', x reference"]["ok"] == "yes"
    assert rows["compiles in 1,000 random lengths"]["ok"] == "yes"
    assert rows["peak memory growth at 4 MB, bytes a byte"]["ok"] == "SKIPPED: no such peak here"
    assert rows["compile seconds, worst"]["ok"] == "FAILED: ValueError: why"
    report.write("figures", {"figures": list(rows.values())}, tmp_path)
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- results:begin -->\nold\n<!-- results:end -->\nz\n")
    assert summary.main(["--results", str(tmp_path), str(page)]) == 0
    assert "| chat transcript over plain text | 5 | <= 1.3 | MISSED: " in page.read_text()
    assert "old" not in page.read_text()
    assert page.read_text().endswith("<!-- results:end -->\nz\n")


def test_only_capacities_that_are_compiled_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: dict[str, int] = {}

    def encode(text: str) -> None:
        block = min(len(text), 200_000)  # blocks of longer texts
        compiled.setdefault(f"encode {block}", 1)

    tokenizer = SimpleNamespace(explain=lambda: SimpleNamespace(compiles=dict(compiled)))
    monkeypatch.setattr(figures, "device_engine", lambda name: peers.Engine(encode, lambda out: out, tokenizer))
    found = figures.compile_times(TOKENIZER)
    assert found["capacities"] == [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18]
    assert len(found["seconds"]) == 5
    others = {"ratio": 5.0, "compiles": 0, "bytes_a_byte": 2, "seconds": 0.1}
    monkeypatch.setattr(worker, "call", lambda task, *_: found if task == "compile_times" else others)
    rows = figures.run_all(small=True, say=lambda line: None)
    assert "compile seconds, worst of 5 capacities" in [row["figure"] for row in rows]


def test_a_figure_beside_the_reference() -> None:
    measured = figures.against_reference(TOKENIZER, "code", 2000, repeats=1)
    assert measured["ratio"] == pytest.approx(measured["reference_ms"] / measured["ours_ms"])


def test_loading_is_timed() -> None:
    assert figures.loading(TOKENIZER)["seconds"] > 0


def test_a_difference_is_located() -> None:
    with pytest.raises(AssertionError, match="first at 1"):
        figures.require_equal(np.array([1, 2, 3]), np.array([1, 9, 3]), "here")


def test_table_aligns() -> None:
    printed = report.table([{"a": "x", "n": 1234567, "f": 0.5}, {"a": "long", "n": 1, "f": None}], ("a", "n", "f"))
    assert printed.splitlines()[2:] == ["x     1,234,567  0.5", "long          1"]
