"""Windows that are scanned by regular expressions equal those that are walked, in all that they say."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests import artifacts
from tests.sessions.walks import PARTS
from toktier_jax.host import window
from toktier_jax.host.window import HostWindow, WindowEncoder
from toktier_jax.session_engine import TokenizerEngine
from toktier_jax.sessions.policy import Policy

NAMES = ("qwen-3", "deepseek-v3", "deepseek-llm-7b-base", "gpt2", "cl100k_base", "o200k_base", "trained-starcoder")
ASCII = tuple(part for part in PARTS if part.isascii())


@pytest.mark.parametrize("subject", NAMES)
def test_scanned_equals_walked(subject: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = _encoder(subject)
    assert encoder._scan is not None
    draw = random.Random(subject)
    texts = ["", " ", "  ", "\n", " \n \n", "'", "x" * 9000, "".join(map(chr, range(128)))]
    for number in range(int(150 * scale)):
        texts.append("".join(draw.choices(ASCII if number % 2 else PARTS, k=draw.randrange(1, 40))))
    scanned = [encoder.encode(text.encode(), checked=True) for text in texts]
    monkeypatch.setattr(window, "SCANNED", -1)
    for text, found in zip(texts, scanned, strict=True):
        _equal(text, found, encoder.encode(text.encode(), checked=True))


def _encoder(name: str) -> WindowEncoder:
    try:
        engine = TokenizerEngine(artifacts.load(name).tokenizer, Policy())
    except artifacts.Missing as missing:
        pytest.skip(str(missing))
    encoder = engine._encoder
    assert isinstance(encoder, WindowEncoder)
    return encoder


def _equal(text: str, one: HostWindow, other: HostWindow) -> None:
    for field, mine, theirs in zip(HostWindow._fields, one, other, strict=True):
        assert np.array_equal(mine, theirs), (field, text)
