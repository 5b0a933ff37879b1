"""The tokenizer inside a GGUF: the format, byte-level and SentencePiece models, and errors with the offset."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests import artifacts, corpus
from toktier_jax.errors import SpecError
from toktier_jax.spec.byte_alphabet import ALPHABET
from toktier_jax.spec.gguf import gguf_to_tokenizer_json, special_tokens
from toktier_jax.spec.gguf_metadata import read_metadata
from toktier_jax.spec.gguf_pre import PRE
from toktier_jax.spec.source import from_file

LETTERS = [*ALPHABET, "Ġa", "ab", "<|end|>", "<user>"]
BYTE_LEVEL: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": LETTERS,
    "tokenizer.ggml.token_type": tuple([1] * 258 + [3, 4]),
    "tokenizer.ggml.merges": ["Ġ a", "a b"],
    "tokenizer.ggml.bos_token_id": 258,
}


def convert(metadata: dict[str, Any]) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_buffer(gguf_to_tokenizer_json(metadata))


def write(path: Path, metadata: dict[str, Any]) -> Path:
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        kinds = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}
        kinds.get(type(value), writer.add_array)(key, list(value) if isinstance(value, tuple) else value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_as_the_gguf_package_writes_it(tmp_path: Path) -> None:
    extra = {"x.flag": True, "x.floats": (0.5, -1.5), "x.text": "é" * 1000, "tokenizer.chat_template": "{{ 1 }}"}
    path = write(tmp_path / "t.gguf", {**BYTE_LEVEL, **extra})
    metadata, end = read_metadata(path.read_bytes())
    assert {key: metadata[key] for key in (*BYTE_LEVEL, *extra)} == {**BYTE_LEVEL, **extra}
    source = from_file(path)
    assert (source.kind, len(source.data)) == ("gguf", end)
    assert source.chat.templates == {"default": "{{ 1 }}"}
    assert source.chat.special_tokens == {"bos_token": "<|end|>"}
    assert source.spec.source == "gguf"


def test_damage_names_the_byte(tmp_path: Path) -> None:
    data = write(tmp_path / "t.gguf", BYTE_LEVEL).read_bytes()
    end = read_metadata(data)[1]
    for size in (5, 30, 200, end - 1):
        with pytest.raises(SpecError, match=f"at byte {size}"):
            read_metadata(data[:size])
        (tmp_path / "short.gguf").write_bytes(data[:size])
        with pytest.raises(SpecError, match=r"short\.gguf: .* at byte"):
            from_file(tmp_path / "short.gguf")
    with pytest.raises(SpecError, match="version 16777216 at byte 4"):
        read_metadata(b"GGUF" + (16777216).to_bytes(4, "little") + data[8:])
    at = data.index(b"gpt2") - 12
    with pytest.raises(SpecError, match=f"unknown value type 99 at byte {at}"):
        read_metadata(data[:at] + bytes([99]) + data[at + 1 :])
    at = data.index(b"gpt2")
    with pytest.raises(SpecError, match=f"a string at byte {at} is not UTF-8"):
        read_metadata(data[:at] + b"\xff" + data[at + 1 :])


def test_byte_level() -> None:
    tokenizer = convert(BYTE_LEVEL)
    assert tokenizer.encode(" ab 12<|end|> <user>a").tokens == ["Ġa", "b", "Ġ", "1", "2", "<|end|>", "Ġ", "<user>", "a"]
    assert tokenizer.decode([256, 258, 259]) == " a<user>"
    assert tokenizer.decode([256, 258], skip_special_tokens=False) == " a<|end|>"


def test_bos_and_eos() -> None:
    asked = {**BYTE_LEVEL, "tokenizer.ggml.add_bos_token": True}
    assert convert(asked).encode("ab").ids == [258, 257]
    both = {**asked, "tokenizer.ggml.add_eos_token": True, "tokenizer.ggml.eos_token_id": 259}
    assert convert(both).encode("ab").ids == [258, 257, 259]
    assert convert({**BYTE_LEVEL, "tokenizer.ggml.pre": "llama-bpe"}).encode("ab").ids == [258, 257]


def test_every_pre_tokenizer_loads() -> None:
    assert {"smollm", "gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "deepseek-coder", "deepseek-v3"} < set(PRE)
    assert {"tekken", "gpt-4o"} < set(PRE)
    text = "Hello, World's 1234\n\n  naïve 日本語😀 {x}\t\r\n end  "
    for name in PRE:
        encoding = convert({**BYTE_LEVEL, "tokenizer.ggml.pre": name}).encode(text, add_special_tokens=False)
        assert "".join(encoding.tokens) == "".join(ALPHABET[byte] for byte in text.encode())


@pytest.mark.parametrize(
    ("pre", "name"),
    [
        ("qwen2", "qwen-2.5"),
        ("llama-bpe", "deepseek-r1-distill-llama-8b"),
        ("deepseek-v3", "deepseek-v3"),
        ("deepseek-coder", "deepseek-coder-33b-base"),
        ("deepseek-llm", "deepseek-llm-7b-base"),
        ("minimax-m2", "minimax"),
        ("gpt-2", "gpt2"),
    ],
)
def test_patterns_cut_as_the_models_own_files(pre: str, name: str) -> None:
    try:
        whole = json.loads(artifacts.load(name).file)
    except artifacts.Missing as error:
        pytest.skip(str(error))
    whole["model"] = {"type": "BPE", "vocab": {}, "merges": []}
    own = tokenizers.Tokenizer.from_str(json.dumps(whole)).pre_tokenizer
    text = corpus.mixed(20_000, seed=3)
    table = convert({**BYTE_LEVEL, "tokenizer.ggml.pre": pre}).pre_tokenizer
    assert table.pre_tokenize_str(text) == own.pre_tokenize_str(text)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokenizer.ggml.pre": "nobody"}, "unknown pre-tokenizer 'nobody'; known are .*smollm"),
        ({"tokenizer.ggml.pre": None}, r"tokenizer\.ggml\.pre is missing"),
        ({"tokenizer.ggml.model": "bert"}, "'bert' is not read"),
        ({"tokenizer.ggml.merges": ["ab"]}, "entry 0"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "two tokens are the same"),
        ({"tokenizer.ggml.token_type": (1,)}, "token_type is shorter"),
        ({"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 999}, "names no token"),
        ({"tokenizer.ggml.tokens": 3}, "has the type int"),
    ],
)
def test_errors(change: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        gguf_to_tokenizer_json({**BYTE_LEVEL, **change})


@functools.cache
def sentencepiece_metadata() -> dict[str, Any]:
    """Mistral v1's SentencePiece model as llama.cpp's converter writes it."""
    try:
        path = artifacts.data_file("mistral_common", "data", "tokenizer.model.v1")
        from sentencepiece import sentencepiece_model_pb2
    except (artifacts.Missing, ImportError) as error:
        pytest.skip(str(error))
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(path.read_bytes())
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [piece.piece for piece in proto.pieces],
        "tokenizer.ggml.scores": tuple(piece.score for piece in proto.pieces),
        "tokenizer.ggml.token_type": tuple(piece.type for piece in proto.pieces),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def test_sentencepiece_equals_sentencepiece() -> None:
    ours = convert(sentencepiece_metadata())
    import sentencepiece

    path = artifacts.data_file("mistral_common", "data", "tokenizer.model.v1")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    for text in (corpus.mixed(20_000, seed=4), "", " hello", "日本語😀\n\t", "  x  ", "▁ ▁"):
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text)
        assert ours.decode(ours.encode(text).ids) == text.replace("▁", " ")
    assert ours.encode("a<s>").ids == [1, *theirs.encode("a"), 1]


def test_sentencepiece_without_a_prefix() -> None:
    ours = convert({**sentencepiece_metadata(), "tokenizer.ggml.add_space_prefix": False})
    assert ours.encode("hello", add_special_tokens=False).tokens == ["hello"]
    assert ours.decode(ours.encode(" hello").ids) == " hello"


def test_special_tokens_by_name() -> None:
    names = special_tokens({**BYTE_LEVEL, "tokenizer.ggml.eos_token_id": 259, "tokenizer.ggml.padding_token_id": 9999})
    assert names == {"bos_token": "<|end|>", "eos_token": "<user>"}


def test_smollm2() -> None:
    try:
        path = artifacts.load("smollm2").source
    except artifacts.Missing as error:
        pytest.skip(str(error))
    source = from_file(path)
    tokenizer = tokenizers.Tokenizer.from_buffer(source.tokenizer_json)
    assert tokenizer.encode("Hello 123 wörld").tokens == ["Hello", "Ġ", "1", "2", "3", "Ġw", "Ã¶r", "ld"]
    assert source.chat.special_tokens["eos_token"] == "<|im_end|>"
    assert source.spec.host_only == ()
