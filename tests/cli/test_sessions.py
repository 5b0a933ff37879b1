"""`toktier-jax session …` and the demo's agent."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.sessions.standin import StandIn
from toktier_jax import Tokenizer, cli
from toktier_jax.cli.sessions import _default_folder
from toktier_jax.demo.sessions import replay_agent
from toktier_jax.sessions import Window


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["session", *arguments]) == 0
    return capsys.readouterr().out


def test_session_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = ("--store", str(tmp_path))
    for text in ("Hello ", "world é"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"))
        out = _run(capsys, "append", "a", *store)
    assert out.startswith("revision 2: keep ")
    shown = json.loads(_run(capsys, "show", "a", *store, "--json"))
    assert shown["ids"] == Tokenizer.default().encode("Hello world é", route="reference").ids.tolist()
    assert "13 characters" in _run(capsys, "show", "a", *store)
    assert _run(capsys, "list", *store) == "a\n"
    assert _run(capsys, "verify", "a", *store) == "equal\n"
    _run(capsys, "delete", "a", *store)
    assert _run(capsys, "list", *store) == ""
    with pytest.raises(SystemExit):
        cli.main(["session", "show", "a", *store])
    assert "there is no session 'a'" in capsys.readouterr().err


def test_bytes_that_are_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff"), "utf-8"))
    with pytest.raises(SystemExit):
        cli.main(["session", "append", "a", "--store", str(tmp_path)])
    assert "not UTF-8 at byte 2" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["list", "show", "delete", "verify"])
def test_a_store_that_is_not_there_is_not_made(action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "typo"
    with pytest.raises(SystemExit, match="1"):
        cli.main(["session", action, *([] if action == "list" else ["a"]), "--store", str(folder)])
    assert f"there is no session store in {folder}" in capsys.readouterr().err
    assert not folder.exists()


def test_the_default_folder_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _default_folder() == tmp_path / ".local" / "share" / "toktier_jax" / "sessions"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert _default_folder() == tmp_path / "data" / "toktier_jax" / "sessions"


def test_the_demo_agent_sees_a_lost_end() -> None:
    class Short(StandIn):
        def encode_window(self, text: bytes, *, at_start: bool, at_end: bool) -> Window:
            found = super().encode_window(text, at_start=at_start, at_end=at_end)
            return found._replace(
                ids=found.ids[:-1], byte_starts=found.byte_starts[:-1], byte_ends=found.byte_ends[:-1]
            )

    for engine, word in ((StandIn(), "yes"), (Short(), "NO")):
        out = io.StringIO()
        assert replay_agent(engine, "def f(x):\n", turns=2, out=out) == (word == "yes")
        assert out.getvalue().count(word) == 2


def test_the_demo_agent() -> None:
    out = io.StringIO()
    assert replay_agent(Tokenizer.default(), "def f(x):\n    return x + 1\n" * 300, turns=3, out=out)
    assert out.getvalue().count("yes") == 3
