"""The reference engines behind the Protocol."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.tokenizer_files import added, bpe, byte_level, template, tokenizer_json
from toktier_jax.errors import SpecError
from toktier_jax.host.reference import TiktokenReference, TokenizersReference, load_reference
from toktier_jax.host.specials import find_special
from toktier_jax.spec.source import from_bytes, from_encoding
from toktier_jax.spec.tokenizer_json import read_tokenizer_json

FILE = tokenizer_json(
    bpe({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "<": 4, "s": 5, ">": 6}, [["a", "b"]]),
    pre_tokenizer=byte_level(use_regex=False),
    post_processor=template(["<s>"], [], {"<s>": 7}),
    added=[added(7, "<s>", special=True), added(8, "bb"), added(9, "<sb>", special=True, single_word=True)],
    truncation={"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
    padding={
        "strategy": {"Fixed": 5},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 7,
        "pad_type_id": 0,
        "pad_token": "<s>",
    },
)


@pytest.fixture
def reference() -> TokenizersReference:
    return TokenizersReference(FILE)


def test_whole_and_bare(reference: TokenizersReference) -> None:
    whole = reference.encode("ab aab", add_special_tokens=True, special="parse")
    assert whole.ids.tolist() == [7, 2, 3, 0, 7]
    assert whole.words.tolist() == [-1, 0, 0, 0, -1]
    assert whole.offsets.tolist()[1:4] == [[0, 2], [2, 3], [3, 4]]
    bare = reference.encode_bare("ab aab", special="parse")
    assert bare.ids.tolist() == [2, 3, 0, 2]
    assert (bare.ids.dtype, bare.offsets.dtype) == (np.int32, np.int64)
    assert [ids.tolist() for ids in reference.encode_many(["ab aab", ""], special="parse")] == [[2, 3, 0, 2], []]


def test_special_tokens_as_text(reference: TokenizersReference) -> None:
    assert reference.encode_bare("<s>bb", special="parse").ids.tolist() == [7, 8]
    assert reference.encode_bare("<s>bb", special="text").ids.tolist() == [4, 5, 6, 8]


def test_spelling(reference: TokenizersReference) -> None:
    spelled = reference.spell("<s>é", special="parse")
    assert spelled.ids[0] >= 256
    assert bytes(spelled.ids[1:].tolist()).decode() == "Ã©"
    assert spelled.words.tolist() == [0, 1, 1, 1, 1]
    assert bytes(reference.spell("<s>", special="text").ids.tolist()) == b"<s>"


def test_parts(reference: TokenizersReference) -> None:
    assert reference.normalize("É") == "É"
    assert reference.pre_tokenize("a b") == [("aĠb", (0, 3))]
    assert reference.decode([7, 2], skip_special_tokens=True) == "ab"
    assert reference.version.startswith("tokenizers ")


def test_the_shown_one_is_a_copy(reference: TokenizersReference) -> None:
    shown = reference.shown
    assert shown.encode("ab").ids == [7, 2, 7, 7, 7]
    shown.no_padding()
    shown.no_truncation()
    shown.encode_special_tokens = True
    assert reference.encode("<s>", add_special_tokens=False, special="parse").ids.tolist() == [7, 7, 7, 7, 7]
    assert json.loads(TokenizersReference(FILE).shown.to_str()) == json.loads(FILE) | {
        "model": {**json.loads(FILE)["model"], "dropout": None}
    }


def test_failures_are_spec_errors() -> None:
    with pytest.raises(SpecError, match="the reference cannot load the file"):
        TokenizersReference(b'{"model": 3}')
    file = tokenizer_json(bpe({"a": 0}, [], unk_token="?"))
    with pytest.raises(SpecError, match=r"cannot encode: .*not found in the vocabulary"):
        TokenizersReference(file).encode_bare("b", special="parse")


def test_tiktoken() -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    ranks = {bytes([i]): i for i in range(256)} | {b"ab": 256}
    encoding = tiktoken.Encoding("x", pat_str=r"\w+|\s+|[^\w\s]", mergeable_ranks=ranks, special_tokens={"<s>": 300})
    reference = load_reference(from_encoding(encoding))
    assert isinstance(reference, TiktokenReference)
    raw = reference.encode("<s>abé", add_special_tokens=True, special="parse")
    assert raw.ids.tolist() == [300, 256, 0xC3, 0xA9]
    assert raw.offsets.tolist() == [[0, 3], [3, 5], [5, 6], [5, 6]]
    assert reference.encode_bare("<s>", special="text").ids.tolist() == list(b"<s>")
    assert reference.decode([300, 256], skip_special_tokens=True) == "ab"
    assert reference.decode([300, 256], skip_special_tokens=False) == "<s>ab"
    gaps = tiktoken.Encoding("x", pat_str=r"\w+", mergeable_ranks=ranks, special_tokens={})
    with pytest.raises(SpecError, match="leaves out part"):
        TiktokenReference(gaps).encode_bare("a b", special="parse")


def test_finds_special_tokens() -> None:
    spec, reference = read_tokenizer_json(FILE), TokenizersReference(FILE)

    def find(text: str) -> int | None:
        return find_special(text, spec, lambda: reference)

    assert find("ab bb") is None
    assert find("aé<s>b<s>") == 2
    assert find("a<sb>") is None  # not a word of its own
    assert find("<sb>") == 0


def test_special_tokens_are_not_searched_for_by_the_reference_without_need() -> None:
    spec = from_bytes(FILE).spec
    assert find_special("ab", spec, lambda: pytest.fail("asked")) is None
