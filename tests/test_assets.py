"""The embedded default tokenizer: it loads, it is complete, and every text comes back."""

from __future__ import annotations

import gzip
import importlib.resources
import json

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

ASSET = importlib.resources.files("toktier_jax") / "assets" / "default.json.gz"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]


@pytest.fixture(scope="module")
def file() -> bytes:
    return gzip.decompress(ASSET.read_bytes())


@pytest.fixture(scope="module")
def reference(file: bytes) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_buffer(file)


def test_is_small_and_complete(reference: tokenizers.Tokenizer) -> None:
    assert len(ASSET.read_bytes()) < 2_000_000
    assert reference.get_vocab_size() == 32_768
    assert sorted(reference.get_vocab().values()) == list(range(32_768))


def test_special_tokens_are_the_last_ids(reference: tokenizers.Tokenizer) -> None:
    assert [reference.token_to_id(token) for token in SPECIAL] == list(range(32_762, 32_768))
    encoded = reference.encode("<|im_start|>user\nHi<|im_end|>")
    assert encoded.tokens == ["<|im_start|>", "user", "Ċ", "Hi", "<|im_end|>"]


def test_every_byte_has_a_token(file: bytes) -> None:
    vocabulary = json.loads(file)["model"]["vocab"]
    assert set(tokenizers.pre_tokenizers.ByteLevel.alphabet()) <= set(vocabulary)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_round_trip(reference: tokenizers.Tokenizer, text: str) -> None:
    ids = reference.encode(text).ids
    assert reference.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    "text",
    [
        "naïve café",
        "Straße",
        "数据库连接",
        "données",
        "Привет",
        "e\u0301 \u0000",
        "x = 12345\n\n\tif y:",
        "👩‍👩‍👧 flag 🇩🇪",
    ],
)
def test_round_trip_of_chosen_texts(reference: tokenizers.Tokenizer, text: str) -> None:
    assert reference.decode(reference.encode(text).ids) == text
