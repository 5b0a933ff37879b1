"""The engine of real tokenizers: routes, the start of a text, and what goes to the reference; what an engine needs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from tests import artifacts
from tests.sessions.standin import StandIn
from tests.sessions.walks import reference
from tests.tokenizer_files import bpe, byte_level, tokenizer_json
from toktier_jax import InputError, Tokenizer, UnsupportedError
from toktier_jax.host import fork, window
from toktier_jax.sessions import Policy, SessionStore
from toktier_jax.spec.byte_alphabet import ALPHABET


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
    assert one._encoder is other._encoder  # type: ignore[attr-defined]  # of TokenizerEngine


def test_why_a_new_text_went_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SessionStore(_small())

    def refuse(*_: object) -> None:
        raise UnsupportedError("refused here")

    monkeypatch.setattr(store.engine, "_encode", refuse)
    session = store.open("a", "ab")
    assert session.explain()["opened"] == "by the reference: refused here"
    assert session.ids.tolist() == [ALPHABET.index(letter) for letter in "ab"]


def test_a_forked_child_goes_on_by_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX would hang in it."""
    monkeypatch.setattr(fork, "_forked_after_jax", True)
    session = SessionStore(_small(), policy=Policy(append_device_from=0)).open("a", "a")
    assert "forked after JAX" in session.explain()["opened"]
    session.append("b")
    ((reason, times),) = session.explain()["changes"].items()
    assert reason.startswith("reference: this process was forked after JAX")
    assert times == 1
    assert session.ids.tolist() == [ALPHABET.index(letter) for letter in "ab"]


def test_an_engine_needs_two_methods() -> None:
    whole = StandIn()

    class Least:
        info = whole.info
        encode_full, encode_window = whole.encode_full, whole.encode_window

    store = SessionStore(Least(), shadow=1.0)
    session, other = store.open("a", "word \u00e9 "), SessionStore(whole).open("a", "word \u00e9 ")
    for each in (session, other):
        each.append("\u4e2d\u6587 12345")
    assert session.ids.tolist() == other.ids.tolist()
    assert session.char_spans.tolist() == other.char_spans.tolist()
    assert store._verifier.drain()
    assert store.stats()["shadow"]["verified"] == 1
    store.close()


@pytest.mark.parametrize("value", [None, "name", type("Half", (), {"info": 0, "encode_window": 0})()])
def test_what_is_no_engine_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"a toktier_jax\.Tokenizer or an Engine"):
        SessionStore(value)


_TRUNCATION = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
_PADDING = {
    "strategy": "BatchLongest",
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "!",
}


@pytest.mark.parametrize(
    ("name", "options", "parts"),
    [
        ("truncation", {}, {"truncation": _TRUNCATION}),
        ("padding", {}, {"padding": _PADDING}),
        (r"model\.dropout", {"dropout": 0.1}, {}),
    ],
)
def test_files_whose_ids_do_not_grow_with_the_text_are_refused(name: str, options: Any, parts: Any) -> None:
    with pytest.raises(UnsupportedError, match=f"sessions: the tokenizer file sets {name}; remove it from the file"):
        SessionStore(_small(parts, **options))


def test_a_dropout_of_zero_is_none() -> None:
    assert SessionStore(_small(dropout=0.0)).open("a", "ab").ids.tolist() == [ALPHABET.index(each) for each in "ab"]


def _small(parts: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> Tokenizer:
    """`options` of the model, `parts` of the file."""
    vocab = {token: id for id, token in enumerate(ALPHABET)}
    return Tokenizer.from_bytes(tokenizer_json(bpe(vocab, [], **options), pre_tokenizer=byte_level(), **parts))


def _tokenizer(name: str) -> Any:
    try:
        return artifacts.load(name).tokenizer
    except artifacts.Missing as missing:
        pytest.skip(str(missing))


def test_a_long_piece_is_repaired() -> None:
    """While it grows, where it is edited, and once it is complete."""
    tokenizer = Tokenizer.default()
    encode, draw = reference(tokenizer), random.Random(1)
    session = SessionStore(tokenizer).open("a", "x " + "".join(draw.choices("aeo", k=40_000)))
    assert session.explain()["opened"] == "by the host"
    for start, stop, new in ((40_002, 40_002, "aeo" * 400), (20_000, 20_003, "ee"), (41_201, 41_201, " and words 12")):
        session.replace(start, stop, new)
        assert np.array_equal(session.ids, encode(session.text).ids)
    session.append("more")
    assert session.explain()["resume"] > 41_000
    assert session.explain()["changes"].keys() == {"append", "edit", "widened"}


def test_a_piece_that_is_long_to_merge_goes_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change would merge all of it again, a step at a time."""
    monkeypatch.setattr(window, "LONGEST", 256)
    tokenizer, letters = Tokenizer.default(), "a" * 600
    encode = reference(tokenizer)
    session = SessionStore(tokenizer).open("a", f"before {letters}")
    assert session.explain()["opened"] == "by the reference: a piece of the text has more than 256 bytes to merge"
    for start, stop, new in ((300, 300, "Z"), (5, 7, "é "), (100, 700, ""), (50, 60, " words 12")):
        session.replace(start, min(stop, session._entry.record.text.length), new)
        assert np.array_equal(session.ids, encode(session.text).ids)
    changes = session.explain()["changes"]
    assert changes.pop("reference: a piece of the text has more than 256 bytes to merge") == 2
    assert changes["edit"] == 2
