"""Decoding: whole, without loss and as ids come, for every kind of decoder, against the reference."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import tokenizers

import toktier_jax as tt
from tests import artifacts
from tests.tokenizer_files import (
    LLAMA_DECODER,
    Part,
    added,
    bpe,
    byte_level,
    metaspace,
    replace,
    sequence,
    tokenizer_json,
)
from toktier_jax.errors import InputError, SpecError
from toktier_jax.host import decoders
from toktier_jax.host.decoder_steps import build_steps
from toktier_jax.host.vocabulary import Vocabulary, build_vocabulary
from toktier_jax.spec.byte_alphabet import to_alphabet
from toktier_jax.spec.tokenizer_json import read_tokenizer_json

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_WORDS = [
    "▁", "▁hello", "hello", "▁▁", "a▁", " ", "  a ", "##ing", "##", "do", " not", "n't", ".", " .", "un</w>", "</w>",
    "<pad>", "|", "x|y", "日本", "Ġ", "Ġworld", to_alphabet("é".encode()), "Ã", "©", "ð", "Ł", "ĺ", "Ģ", "é", "<0x+f>",
    "", "aa", "a", "aaa", "ö", "\ufffd",
]  # fmt: skip
_ADDED = [added(0, "<s>", special=True), added(0, "ü"), added(0, " <x> ", special=True), added(0, "▁y")]
_FUSE, _FALLBACK = {"type": "Fuse"}, {"type": "ByteFallback"}


def strip(content: str, start: int, stop: int) -> Part:
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


def ctc(cleanup: bool) -> Part:
    return {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": cleanup}


def word_piece(cleanup: bool) -> Part:
    return {"type": "WordPiece", "prefix": "##", "cleanup": cleanup}


_SUFFIX = {"type": "BPEDecoder", "suffix": "</w>"}

DECODERS: dict[str, Part | None] = {
    "none": None,
    "bytes": byte_level(),
    "metaspace": metaspace("always"),
    "metaspace never": metaspace("never"),
    "word pieces": word_piece(True),
    "word pieces as they are": word_piece(False),
    "suffix": _SUFFIX,
    "sound": ctc(True),
    "sound as it is": ctc(False),
    "fallback": _FALLBACK,
    "fuse": _FUSE,
    "replace": replace("▁", " "),
    "replace regex": replace(r"l+|▁$", "_", regex=True),
    "strip": strip(" ", 1, 0),
    "llama": LLAMA_DECODER,
    "gemma": sequence("decoders", replace("▁", " "), _FALLBACK, _FUSE),
    "fused strip": sequence("decoders", _FUSE, strip("a", 2, 0), strip(" ", 0, 2)),
    "fused replace": sequence("decoders", _FUSE, replace("aa", "b"), replace("lo▁", "")),
    "fused regex": sequence("decoders", _FUSE, replace(r"\s+", " ", regex=True)),
    "fused metaspace": sequence("decoders", _FUSE, metaspace("first")),
    "fused bytes": sequence("decoders", _FUSE, byte_level()),
    "fused word pieces": sequence("decoders", _FUSE, word_piece(True)),
    "fused suffix": sequence("decoders", _FUSE, _SUFFIX),
    "fused sound": sequence("decoders", _FUSE, ctc(True)),
    "fused fallback": sequence("decoders", _FUSE, _FALLBACK),
    "bytes, then stripped": sequence("decoders", byte_level(), strip(" ", 1, 1)),
    "nested": sequence("decoders", sequence("decoders", replace("▁", " ")), sequence("decoders", _FUSE)),
}


def load(decoder: Part | None, normalizer: Part | None = None) -> tuple[Vocabulary, tokenizers.Tokenizer]:
    vocab = {token: i for i, token in enumerate(dict.fromkeys([*_BYTES, *_WORDS]))}
    file = tokenizer_json(bpe(vocab, [], byte_fallback=True), decoder=decoder, added=_ADDED, normalizer=normalizer)
    reference = tokenizers.Tokenizer.from_buffer(file)

    def normalize(text: str) -> str:
        return reference.normalizer.normalize_str(text) if reference.normalizer else text

    return build_vocabulary(read_tokenizer_json(file), normalize), reference


def sequences(size: int, count: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    bytes_of = ["日".encode(), "😀".encode(), b"\xff", "é".encode(), b"a"]
    out: list[list[int]] = []
    for _ in range(count):
        ids: list[int] = []
        for _ in range(rng.randrange(1, 8)):
            if rng.random() < 0.4:
                run = b"".join(rng.choices(bytes_of, k=rng.randrange(1, 3)))
                ids += list(run[: rng.randrange(1, len(run) + 1)])
            else:
                ids += rng.choices(range(256, size), k=rng.randrange(1, 4))
        out.append(ids)
    return out


def decoded(reference: tokenizers.Tokenizer, ids: list[int], skip: bool) -> str | None:
    """None where the reference panics: Strip looks behind the end of an empty token."""
    try:
        return reference.decode(ids, skip_special_tokens=skip)
    except BaseException as error:
        if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
            raise
        return None


@pytest.mark.parametrize("name", DECODERS)
def test_equals_the_reference(name: str) -> None:
    vocabulary, reference = load(DECODERS[name])
    rng = random.Random(1)
    for ids in sequences(len(vocabulary.strings), 100, seed=7):
        for skip in (True, False):
            if (expected := decoded(reference, ids, skip)) is None:
                continue
            assert decoders.decode(vocabulary, ids, skip_special_tokens=skip) == expected
            stream, parts, rest = decoders.StreamDecoder(vocabulary, skip_special_tokens=skip), [], list(ids)
            while rest:
                size = rng.randrange(1, 4)
                parts.append(stream.push(rest[:size]))
                rest = rest[size:]
            assert "".join([*parts, stream.finish()]) == expected
            assert stream.finish() == ""


def test_a_stream_never_shows_half_a_character() -> None:
    vocabulary, _ = load(byte_level())
    strings = vocabulary.strings
    stream = decoders.StreamDecoder(vocabulary)
    pieces = [strings.index(letter) for letter in to_alphabet("😀".encode())]
    assert [stream.push([index]) for index in pieces] == ["", "", "", "😀"]
    assert stream.push(pieces[:3]) == ""
    assert stream.finish() == "\ufffd"


def test_a_stream_waits_for_a_run_of_byte_tokens() -> None:
    vocabulary, _ = load(LLAMA_DECODER)
    stream = decoders.StreamDecoder(vocabulary)
    word = vocabulary.strings.index("▁hello")
    assert [stream.push([index]) for index in [word, *"é".encode(), word]] == ["hello", "", "", "é hello"]
    assert stream.push([0xC3]) == ""
    assert stream.finish() == "\ufffd"
    assert stream.push([word]) + stream.finish() == "hello"


def test_bytes_without_loss() -> None:
    vocabulary, _ = load(byte_level())
    ids = [vocabulary.strings.index(token) for token in ("Ġworld", "ð", "Ł")]
    assert decoders.decode_bytes(vocabulary, ids) == b" world\xf0\x9f"
    vocabulary, _ = load(LLAMA_DECODER)
    ids = [vocabulary.strings.index("▁hello"), 0xF0, 0x9F]
    assert decoders.decode_bytes(vocabulary, ids) == b"hello\xf0\x9f"


def test_an_added_letter_of_the_byte_alphabet() -> None:
    """The reference reads the added token "ü" as the byte 0xFC (deepseek-coder has such); its bytes are those of ü."""
    vocabulary, reference = load(byte_level())
    index = reference.token_to_id("ü")
    assert decoders.decode(vocabulary, [index], skip_special_tokens=True) == reference.decode([index]) == "\ufffd"
    assert decoders.decode_bytes(vocabulary, [index]) == vocabulary.token_bytes(index) == "ü".encode()


def test_normalized_added_tokens_decode_to_their_normalized_form() -> None:
    vocabulary, reference = load(None, {"type": "Replace", "pattern": {"String": "y"}, "content": "z"})
    for content in ("▁y", "<s>", "ü"):
        index = reference.token_to_id(content)
        assert vocabulary.strings[index] == reference.decode([index], skip_special_tokens=False)
        assert vocabulary.contents[index] == content


def test_ids_out_of_range() -> None:
    vocabulary, _ = load(None)
    for ids in ([len(vocabulary.strings)], [-1], [1 << 40], [0.5], "abc", [[1]], [True], None):
        with pytest.raises(InputError):
            decoders.StreamDecoder(vocabulary).push(ids)  # pyright: ignore[reportArgumentType]  # wrong: that is the test


@pytest.mark.parametrize("part", [{"type": "Foo"}, {}, {"type": "Strip", "content": " "}])
def test_unknown_decoders_are_refused(part: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="decoder"):
        build_steps(part, lossless=False)


@pytest.mark.parametrize("name", ["qwen-3", "deepseek-coder-33b-base", "mistral-v1", "trained-bert", "trained-clip"])
def test_real_files(name: str) -> None:
    try:
        artifact = artifacts.load(name)
    except artifacts.Missing as error:
        pytest.skip(str(error))
    reference = artifact.reference
    spec = read_tokenizer_json(artifact.file)
    vocabulary = build_vocabulary(spec, lambda text: reference.normalizer.normalize_str(text))
    assert vocabulary.size == reference.get_vocab_size()
    rng = random.Random(2)
    for _ in range(200):
        ids = [rng.randrange(len(vocabulary.strings)) for _ in range(rng.randrange(1, 12))]
        for skip in (True, False):
            expected = reference.decode(ids, skip_special_tokens=skip)
            assert decoders.decode(vocabulary, ids, skip_special_tokens=skip) == expected
            stream = decoders.StreamDecoder(vocabulary, skip_special_tokens=skip)
            assert "".join(stream.push([index]) for index in ids) + stream.finish() == expected


def test_vocabulary_is_plain_data() -> None:
    """It can be kept beside a compiled program."""
    vocabulary, _ = load(LLAMA_DECODER)
    assert json.loads(json.dumps(vocabulary.strings)) == vocabulary.strings


def test_a_regex_over_bytes_that_are_no_text() -> None:
    replaces = {"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": "-"}
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, replaces]}
    file = tokenizer_json(bpe({"a": 0, "<0xE6>": 1}, [], byte_fallback=True), decoder=decoder)
    tokenizer = tt.Tokenizer.from_bytes(file)
    assert tokenizer.decode_bytes([0, 1, 1, 0]) == b"-\xe6\xe6-"
