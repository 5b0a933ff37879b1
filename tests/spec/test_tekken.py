"""tekken.json: the converted tokenizer gives the ids of mistral-common's own."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest
import tokenizers

from tests import artifacts, corpus
from toktier_jax.errors import SpecError
from toktier_jax.spec.source import from_bytes
from toktier_jax.spec.tekken import rank_merges, tekken_to_tokenizer_json


def small(**parts: Any) -> dict[str, Any]:
    tokens = [bytes([i]) for i in range(256)] + [b"ab", b"abc", b"bc", b"left out"]
    vocab = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(tokens)]
    config = {
        "pattern": r"\p{L}+|\s+|[^\s\p{L}]",
        "num_vocab_tokens": len(vocab),
        "default_vocab_size": 262,
        "default_num_special_tokens": 3,
        "version": "v11",
    }
    specials = [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(["<unk>", "<s>"])]
    return {"config": config, "vocab": vocab, "special_tokens": specials, **parts}


def convert(whole: dict[str, Any]) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_buffer(tekken_to_tokenizer_json(json.dumps(whole).encode()))


def test_special_tokens_come_first() -> None:
    tokenizer = convert(small())
    assert tokenizer.get_vocab_size() == 262
    assert tokenizer.encode("<s>abc<SPECIAL_2>bc").ids == [1, 1, 3 + 257, 2, 3 + 258]
    assert tokenizer.encode("left out", add_special_tokens=False).ids == [3 + byte for byte in b"left out"]
    assert tokenizer.decode(tokenizer.encode("é abc").ids) == "é abc"


def test_merges_are_by_the_rank_of_what_they_form() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"abc": 5}
    assert rank_merges(ranks) == [(b"b", b"c"), (b"a", b"b"), (b"a", b"bc"), (b"ab", b"c")]


def test_source() -> None:
    data = json.dumps(small()).encode()
    source = from_bytes(data)
    assert source.kind == source.spec.source == "tekken"
    assert source.spec.fingerprint == source.fingerprint != from_bytes(source.tokenizer_json).fingerprint
    assert source.spec.post_processor.before == (1,)


@pytest.mark.parametrize(
    ("whole", "says"),
    [
        (small(config={}), "default_vocab_size"),
        (small(vocab=small()["vocab"][1:]), "different tokens"),
        (small(vocab=[{"rank": 0, "token_bytes": "?"}]), r"vocab\[0\]\.token_bytes: is not base64"),
        (small(special_tokens=[{"rank": 9, "token_str": "x"}]), "ranks from 0 to 2"),
        (small(special_tokens=[{"rank": 0, "token_str": "abc"}]), "spelled like"),
    ],
)
def test_errors(whole: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        tekken_to_tokenizer_json(json.dumps(whole).encode())


def test_a_byte_without_a_token_is_an_error() -> None:
    whole = small()
    whole["vocab"][65]["token_bytes"] = base64.b64encode(b"zz").decode()
    with pytest.raises(SpecError, match="0x41"):
        tekken_to_tokenizer_json(json.dumps(whole).encode())


def test_equals_mistral_common() -> None:
    tekken = pytest.importorskip("mistral_common.tokens.tokenizers.tekken", reason="mistral-common is not installed")
    path = artifacts.load("tekken").source
    theirs = tekken.Tekkenizer.from_file(str(path))
    ours = tokenizers.Tokenizer.from_buffer(tekken_to_tokenizer_json(path.read_bytes()))
    ours.encode_special_tokens = True  # mistral-common never reads special tokens out of text
    rng = random.Random(0)
    letters = "abaABa  \n\r\t12.,<s>[INST]éß而日本語한국ไทย\u0301\u0301😀\0"
    texts = ["".join(rng.choices(letters, k=rng.randrange(1, 40))) for _ in range(400)]
    texts += ["".join(rng.choices("ab", k=rng.randrange(1, 60))) for _ in range(200)]
    texts += [part for text in corpus.udhr().values() for part in text.split("\n")[:3]]
    texts.append(corpus.python_source(20_000))
    for text in texts:
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text, bos=False, eos=False), text
    assert ours.encode("hi").ids == theirs.encode("hi", bos=True, eos=False)
