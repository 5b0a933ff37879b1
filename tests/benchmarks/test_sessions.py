"""The session protocols run in small and say that all ids are equal."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import capacity, report, walks
from tests import artifacts
from tests.sessions.walks import Difference, Walked
from toktier_jax import Tokenizer


@pytest.mark.parametrize("name", ["append", "edits", "replay", "capacity", "walks"])
def test_small(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    protocol = importlib.import_module(f"benchmarks.{name}")
    assert protocol.main(["--small", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / f"{name}.json").read_text())
    assert results["environment"]["jax"]
    assert "DIFFERENT" not in capsys.readouterr().out


def test_walks_keep_what_is_of_this_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row: dict[str, Any] = {"steps": 5, "compared": 5, "spans": 5, "longest": 9, "kinds": {}, "lengths": {}}
    row |= {"changes": {}, "whole": {}, "difference": None, "failed": None, "skipped": None}
    asked: list[str] = []

    def walks_of(name: str, *_: Any) -> dict[str, Any]:
        asked.append(name)
        return row | ({"failed": "it raised"} if name == "b" else {})

    monkeypatch.setattr(walks, "walks_of", walks_of)
    arguments = ["--out", str(tmp_path), "--resume", "--tokenizers"]
    for commit, names, status in (("one", "a,b", 1), ("one", "a,b,c", 1), ("two", "a", 0), ("two+", "a", 0)):
        monkeypatch.setattr(report, "commit", lambda commit=commit: commit)
        assert walks.main([*arguments, names]) == status
    assert asked == ["a", "b", "b", "c", "a", "a"]
    results = json.loads((tmp_path / "walks.json").read_text())
    assert results["tokenizers"] == {"a": {"commit": "two+", **row}}
    assert (results["steps"], results["longest"], results["asked"]) == (5, 9, 1)


def test_walks_fail_where_a_change_was_encoded_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row: dict[str, Any] = {"steps": 5, "compared": 5, "spans": 5, "longest": 9, "kinds": {}, "lengths": {}}
    row |= {"changes": {"full": 2}, "whole": {"full": 2}, "difference": None, "failed": None, "skipped": None}
    monkeypatch.setattr(walks, "walks_of", lambda *_: row)
    assert walks.main(["--out", str(tmp_path), "--tokenizers", "a"]) == 1
    assert json.loads((tmp_path / "walks.json").read_text())["whole"] == ["a: {'full': 2}"]


@pytest.mark.parametrize(("error", "key"), [(Difference("ids"), "difference"), (ValueError("odd"), "failed")])
def test_walks_count_lengths_and_tell_a_difference_from_a_crash(
    error: Exception, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        artifacts.load("gpt2")
    except artifacts.Missing as missing:
        pytest.skip(str(missing))
    starts: list[int] = []

    def walk(store: Any, reopen: Any, encode: Any, draw: Any, steps: int, *, start: str, **_: Any) -> Walked:
        starts.append(len(start))
        assert (reopen is None) == (len(starts) == 3)
        if len(starts) == 4:
            raise error
        counts = Counter(append=steps)
        return Walked(store, counts, 2, 1, Counter({10 ** len(str(len(start))): steps}), len(start))

    monkeypatch.setattr(walks, "walk", walk)
    found = walks.walks_of("gpt2", 100, walks.SMALL, 1, 0)
    assert starts == [0, 20_000, 200_000, 0]
    assert (found["steps"], found["compared"], found["spans"], found["longest"]) == (30, 6, 3, 200_000)
    assert found["lengths"] == {"10": 20, "100000": 5, "1000000": 5}
    assert [what for what in ("difference", "failed", "skipped") if found[what]] == [key]
    assert "seed 0, round 3" in found[key]


class Front:
    """Answers with what `serve` does; counts what was closed."""

    closed = 0

    def __init__(self, serve: Callable[[capacity.Request], None]) -> None:
        self.serve = serve

    def warm(self, contexts: Sequence[capacity.Request]) -> None:
        pass

    def close(self) -> dict[str, int]:
        self.closed += 1
        return {}


def test_a_worker_that_raises_fails_the_run() -> None:
    def serve(request: capacity.Request) -> None:
        raise ValueError("no answer")

    front = Front(serve)
    with pytest.raises(ValueError, match="no answer"):
        capacity.climb([], "sessions", (200.0,), 0.2, lambda: front)
    assert front.closed == 1


def test_requests_and_answers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = []
    served: list[capacity.Request] = []
    capacity.climb(rows, "sessions", (200.0,), 0.2, lambda: Front(served.append))
    assert rows[0]["sent"] == rows[0]["answered"] == len(served) > 0
    monkeypatch.setattr(capacity, "run", lambda *_: (3, [0.1, 0.1]))
    with pytest.raises(RuntimeError, match="3 requests were sent, 2 answered"):
        capacity.climb(rows, "sessions", (200.0,), 0.2, lambda: Front(served.append))


def test_what_was_verified_is_counted() -> None:
    front = capacity.Stateful(Tokenizer.default())
    front._store._verifier._rate = 1.0
    with front._store.open("a", "a text") as session:
        session.append(" and more")
        session.append(" and more")
    found = front.close()
    assert found == {"changes": 2, "sampled": 2, "dropped": 0, "verified": 2, "mismatches": 0, "failed": 0}
