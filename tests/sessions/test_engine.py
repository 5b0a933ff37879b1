"""The engine of real tokenizers: routes, and the start of a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import artifacts
from tests.sessions.walks import reference
from toktier_jax.sessions import Policy, SessionStore


@pytest.mark.parametrize("subject", ["trained-llama", "qwen-3"])
def test_large_texts_are_routed_to_the_device(subject: str) -> None:
    tokenizer = _tokenizer(subject)
    policy = Policy(cold_device_from=1000, append_device_from=500)
    store, encode = SessionStore(tokenizer, policy=policy), reference(tokenizer)
    session = store.open("a", "some words, 12345 and\u00e9 more. " * 50)
    assert session.explain()["opened"] == "by the device"
    session.append("a few words")
    assert session.explain()["changes"] == {"append": 1}
    session.append("many e\u0301 words <s> 678 " * 100)
    session.replace(20, 30, "other words \u4e2d\u6587 " * 60)
    assert session.explain()["changes"]["by the device"] >= 2
    assert np.array_equal(session.ids, encode(session.text).ids)
    assert store.open("b", "short").explain()["opened"] == "by the host"
    assert store.stats()["changes"]["by the device"] >= 2


@pytest.mark.parametrize(
    ("text", "start", "stop", "new"),
    [
        ("A\u3000art", 0, 1, ""),
        ("\u3000art", 0, 0, "A"),
    ],
)
def test_the_start_of_a_text_is_no_place_to_couple(text: str, start: int, stop: int, new: str) -> None:
    """What is prepended to a text belongs to its first token."""
    tokenizer = _tokenizer("mistral-v1")
    session = SessionStore(tokenizer).open("a", text)
    session.replace(start, stop, new)
    assert np.array_equal(session.ids, reference(tokenizer)(session.text).ids)


def test_stores_of_a_tokenizer_share_what_they_learn() -> None:
    tokenizer = _tokenizer("qwen-3")
    one, other = SessionStore(tokenizer).engine, SessionStore(tokenizer).engine
    assert one._encoder is other._encoder  # type: ignore[attr-defined]


def _tokenizer(name: str) -> Any:
    try:
        return artifacts.load(name).tokenizer
    except artifacts.Missing as missing:
        pytest.skip(str(missing))
