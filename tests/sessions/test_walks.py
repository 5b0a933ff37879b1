"""Sessions equal a full encode after every step of random walks: a stand-in engine, and real tokenizers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests import artifacts
from tests.sessions import standin
from tests.sessions.walks import Expected, reference, walk
from toktier_jax.sessions import SessionStore

STEPS = 250


@pytest.mark.parametrize("way", ["anchors", "black box", "full"])
def test_stand_in(way: str, scale: float) -> None:
    engine = standin.StandIn(way=way)

    def encode(text: str) -> Expected:
        return Expected(standin.expected(engine, text))

    done, store = walk(SessionStore(engine), None, encode, random.Random(way), int(STEPS * 4 * scale))
    assert done["append"] > STEPS * scale
    assert store.stats()["changes"].get("full", 0) == 0 or way != "anchors"


def test_stand_in_on_disk(tmp_path: Path, scale: float) -> None:
    engine = standin.StandIn()

    def encode(text: str) -> Expected:
        return Expected(standin.expected(engine, text))

    def reopen() -> SessionStore:
        return SessionStore(engine, tmp_path, max_bytes=20_000)

    done, _ = walk(reopen(), reopen, encode, random.Random(1), int(STEPS * 3 * scale))
    assert done["restart"]


@pytest.mark.parametrize("name", ["qwen-3", "deepseek-v3", "trained-falcon", "mistral-v1", "trained-clip"])
def test_tokenizers(name: str, scale: float) -> None:
    """Every change on a compiled pattern is repaired."""
    tokenizer = _tokenizer(name)
    store = SessionStore(tokenizer)
    walk(store, None, reference(tokenizer), random.Random(name), int(STEPS * scale), most=400, spans_every=4)
    assert set(store.stats()["changes"]) <= {"append", "edit", "widened"}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(artifacts.NAMES))
def test_all_tokenizers(name: str, scale: float) -> None:
    tokenizer = _tokenizer(name)
    if tokenizer.spec.padding or tokenizer.spec.truncation:
        pytest.skip("sessions refuse files that pad or truncate")
    walk(SessionStore(tokenizer), None, reference(tokenizer), random.Random(name), int(100 * scale), most=400)


def _tokenizer(name: str):
    try:
        return artifacts.load(name).tokenizer
    except artifacts.Missing as missing:
        pytest.skip(str(missing))
