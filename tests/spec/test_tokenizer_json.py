"""Reading tokenizer.json: every field, and that the reader rejects what the reference rejects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
import tokenizers

from tests import artifacts
from tests.tokenizer_files import Part, added, byte_level, split
from toktier_jax.errors import SpecError
from toktier_jax.spec import types
from toktier_jax.spec.tokenizer_json import read_tokenizer_json

from .documents import BERT, MODELS, NORMALIZERS, PRE_TOKENIZERS, ROBERTA, TEMPLATE, document, documents


def read(whole: Part) -> types.TokenizerSpec:
    return read_tokenizer_json(json.dumps(whole).encode())


def test_top_level() -> None:
    data = json.dumps(document()).encode()
    spec = read_tokenizer_json(data)
    assert spec.fingerprint == hashlib.sha256(data).hexdigest()
    assert (spec.source, spec.dialect, spec.host_only) == ("tokenizer.json", "oniguruma", ())
    assert spec.truncation == types.Truncation(8, 0, "LongestFirst", "Left")
    assert spec.padding == types.Padding(9, "Left", 4, 7, 0, "x")
    assert spec.post_processor == types.PostProcessor((3,), (), trim_offsets=True, add_prefix_space=False)
    assert spec.decoder == byte_level()
    assert spec.byte_level is False


def test_normalizers() -> None:
    found = [step for part in NORMALIZERS for step in read(document(normalizer=part)).normalizers]
    assert found == [
        types.Unicode("NFC"),
        types.Unicode("NFKD"),
        types.Lowercase(),
        types.Replace(types.Pattern(" ", False), "_"),
        types.Replace(types.Pattern(" +", True), ""),
        types.Prepend("_"),
        types.Strip(left=True, right=False),
        types.StripAccents(),
        types.Nmt(),
        types.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=None, lowercase=True),
        types.ByteLevelNormalizer(),
    ]
    assert read(document(normalizer=None)).normalizers == ()


def test_pre_tokenizers() -> None:
    found = [step for part in PRE_TOKENIZERS for step in read(document(pre_tokenizer=part)).pre_tokenizers]
    assert found == [
        types.Split(types.Pattern("a+", True), "Contiguous", invert=True),
        types.Split(types.Pattern(" ", False), "Removed", invert=False),
        types.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False),
        types.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=True),
        types.Digits(True),
        types.Punctuation("Isolated"),
        types.Punctuation("MergedWithNext"),
        types.Whitespace(),
        types.WhitespaceSplit(),
        types.BertPreTokenizer(),
        types.CharDelimiterSplit("-"),
        types.Metaspace("▁", "first", split=False),
        types.Metaspace("_", "always", split=True),
        types.UnicodeScripts(),
        types.FixedLength(3),
        types.FixedLength(5),
    ]


def test_nested_sequences_are_flattened() -> None:
    nested = {"type": "Sequence", "pretokenizers": [PRE_TOKENIZERS[4]]}
    nested = {"type": "Sequence", "pretokenizers": [nested, {"type": "Sequence", "pretokenizers": []}, nested]}
    assert read(document(pre_tokenizer=nested)).pre_tokenizers == (types.Digits(True), types.Digits(True))


def test_models() -> None:
    bpe, piece, level, unigram = (read(document(model=part)).model for part in MODELS)
    assert isinstance(bpe, types.BPE)
    assert bpe.merges == [("a", "b")]
    assert isinstance(piece, types.WordPiece)
    assert (piece.unk_token, piece.continuing_subword_prefix, piece.max_input_chars_per_word) == ("a", "##", 100)
    assert isinstance(level, types.WordLevel)
    assert isinstance(unigram, types.Unigram)
    assert unigram.pieces == [("a", 0.0), ("b", -1.0)]
    assert read(document(model=MODELS[3])).host_only == ("model: Unigram runs on the reference",)


def test_models_from_before_types() -> None:
    for part in MODELS:
        untyped = {key: value for key, value in part.items() if key != "type"}
        assert type(read(document(model=untyped)).model) is type(read(document(model=part)).model)


def test_bpe_options() -> None:
    options = {"dropout": 0.5, "unk_token": "b", "fuse_unk": True, "byte_fallback": True, "end_of_word_suffix": "b"}
    spec = read(document(model={**document()["model"], **options}))
    model = spec.model
    assert isinstance(model, types.BPE)
    assert (model.dropout, model.unk_token, model.fuse_unk, model.byte_fallback) == (0.5, "b", True, True)
    assert (model.end_of_word_suffix, model.continuing_subword_prefix, model.ignore_merges) == ("b", "", True)
    assert spec.host_only == ("model: dropout 0.5 makes the ids random",)
    assert read(document(model={**document()["model"], "dropout": 0.0})).model.dropout is None  # pyright: ignore  # a BPE


def test_a_merge_listed_twice_has_its_last_rank() -> None:
    vocab = {"a": 0, "b": 1, "ab": 2, "ba": 3}
    model = {"type": "BPE", "vocab": vocab, "merges": [["a", "b"], ["b", "a"], ["a", "b"]]}
    spec = read(document(model=model, truncation=None))
    assert isinstance(spec.model, types.BPE)
    assert spec.model.merges == [("b", "a"), ("a", "b")]
    whole = {**document(model=model, truncation=None, padding=None), "pre_tokenizer": None, "added_tokens": []}
    assert tokenizers.Tokenizer.from_str(json.dumps(whole)).encode("aba", add_special_tokens=False).ids == [0, 3]


def test_added_tokens_have_the_ids_of_the_reference() -> None:
    tokens = [added(70, "X", lstrip=True), added(90, "Y", single_word=True), added(50, "a", special=True)]
    tokens += [added(4, ""), added(5, "X", rstrip=True, normalized=False)]
    whole = document(added_tokens=tokens, truncation=None)
    ours = {token.id: token for token in read(whole).added_tokens}
    theirs = tokenizers.Tokenizer.from_str(json.dumps(whole)).get_added_tokens_decoder()
    assert ours.keys() == theirs.keys() == {3, 4, 0}
    for index, token in theirs.items():
        assert ours[index] == types.AddedToken(
            index, token.content, token.special, token.normalized, token.lstrip, token.rstrip, token.single_word
        )


def test_post_processors() -> None:
    expected = types.PostProcessor
    for part, result in (
        (None, expected()),
        (BERT, expected((0,), (1,))),
        (ROBERTA, expected((0,), (1,), trim_offsets=True, add_prefix_space=False)),
        (TEMPLATE, expected((3,))),
        (byte_level(trim_offsets=False), expected()),
    ):
        assert read(document(post_processor=part)).post_processor == result


@pytest.mark.parametrize(
    "parts",
    [[TEMPLATE, TEMPLATE], [byte_level(), byte_level()], [BERT, byte_level()], [byte_level(), ROBERTA]],
)
def test_combinations_that_only_the_reference_can_do_are_named(parts: list[Part]) -> None:
    spec = read(document(post_processor={"type": "Sequence", "processors": parts}))
    assert any("post_processor" in reason for reason in spec.host_only)


def test_a_template_that_repeats_the_text_is_named() -> None:
    twice = {**TEMPLATE, "single": [TEMPLATE["single"][1]] * 2}
    assert read(document(post_processor=twice)).host_only


def test_truncations_that_only_the_reference_can_do_are_named() -> None:
    truncation = document()["truncation"]
    assert read(document(truncation={**truncation, "strategy": "OnlySecond"})).host_only
    assert read(document(truncation={**truncation, "max_length": 0})).host_only


BOS = {"id": "<s>", "ids": [3], "tokens": ["<s>"]}


@pytest.mark.parametrize(
    ("whole", "says"),
    [
        (document(version="2.0"), "unknown version '2.0'"),
        (document(normalizer={"type": "Foo"}), r"normalizer: unknown normalizer type 'Foo'"),
        (document(pre_tokenizer={"type": "Foo"}), "pre_tokenizer: unknown"),
        (document(decoder={"type": "Foo"}), "decoder: unknown"),
        (document(post_processor={"type": "Foo"}), "post_processor: unknown"),
        (document(model={"type": "Foo"}), "model: unknown"),
        (document(model={"vocab": {}}), "no known model"),
        (
            document(
                pre_tokenizer={"type": "Sequence", "pretokenizers": [split("a"), {**split("a"), "behavior": "X"}]}
            ),
            r"pre_tokenizer\.pretokenizers\[1\]\.behavior: unknown value 'X'; expected one of Removed",
        ),
        (document(model={**document()["model"], "merges": [["a", "c"]]}), r"model\.merges: entry 0 .*'c'.*vocabulary"),
        (document(model={**document()["model"], "merges": [["b", "a"]]}), r"entry 0 .*'ba'"),
        (document(model={**document()["model"], "merges": ["a b c"]}), "entry 0 must be two tokens"),
        (document(model={**document()["model"], "vocab": {"a": -1}}), "the id of 'a' must be an integer"),
        (document(model={**document()["model"], "vocab": {"a": 1 << 24}}), "'a' must be an integer from 0 to"),
        (document(padding={**document()["padding"], "pad_id": 1 << 31}), r"pad_id: must be from 0 to 2147483647"),
        (document(post_processor={**TEMPLATE, "special_tokens": {"<s>": {**BOS, "ids": [1 << 31]}}}), "list of ids"),
        (document(model={**document()["model"], "dropout": 2.0}), r"model\.dropout"),
        (document(added_tokens=[{"id": 1, "content": "x"}]), r"added_tokens\[0\]: the key 'special' is missing"),
        (document(pre_tokenizer={**PRE_TOKENIZERS[12], "add_prefix_space": False}), "contradicts"),
        (document(post_processor={**TEMPLATE, "special_tokens": {}}), "not in special_tokens"),
        (document(added_tokens=[added(3, "\ud800")]), "lone surrogate"),
    ],
)
def test_errors_name_the_key(whole: Part, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        read(whole)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"a": "\xc3\xa9", "b": }', "byte 17"),
        (b'{"a": "\xff"}', "byte 7"),
        (b'{"a": NaN}', "NaN"),
        (b"[]", "top level must be an object"),
        (b"", "byte 0"),
        (b"[" * 100_000, "damaged"),
    ],
)
def test_damage_names_the_byte(data: bytes, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        read_tokenizer_json(data)


def test_pairs_of_surrogates_are_characters() -> None:
    whole = json.dumps(document(added_tokens=[added(3, "😀")]))
    assert "\\ud83d" in whole
    assert read_tokenizer_json(whole.encode()).added_tokens[0].content == "😀"


MUTANTS = ("delete", None, "x", -1, 7, 1.5, True, [], {}, ["x"], {"type": "Foo"})


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from paths(part, (*path, key))


def mutated(whole: Part, path: tuple[Any, ...], value: Any) -> Part:
    copy = json.loads(json.dumps(whole))
    parent = copy
    for key in path[:-1]:
        parent = parent[key]
    if value == "delete":
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return copy


def test_rejects_what_the_reference_rejects() -> None:
    """The other way round need not hold: the reference takes some components without or with a wrong `type`."""
    seen: set[bytes] = set()
    base = document()
    for whole in documents():
        assert accepted(json.dumps(whole).encode())
        read(whole)
        for path in paths({key: part for key, part in whole.items() if part != base[key]} or whole):
            for value in MUTANTS:
                data = json.dumps(mutated(whole, path, value)).encode()
                if data in seen:
                    continue
                seen.add(data)
                try:
                    read_tokenizer_json(data)
                except SpecError:
                    continue
                assert accepted(data), data
    assert len(seen) > 2000


def accepted(data: bytes) -> bool:
    try:
        tokenizers.Tokenizer.from_buffer(data)
    except BaseException as error:  # it panics on some
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return False
    return True


@pytest.mark.parametrize("name", ["qwen2-vl-2b-instruct-awq", "deepseek-coder-33b-base", "trained-bert"])
def test_real_files(name: str) -> None:
    try:
        artifact = artifacts.load(name)
    except artifacts.Missing as error:
        pytest.skip(str(error))
    spec = read_tokenizer_json(artifact.file)
    reference = artifact.reference
    theirs = reference.get_added_tokens_decoder()
    assert {token.id: flags(token) for token in spec.added_tokens} == {i: flags(t) for i, t in theirs.items()}
    padding = spec.padding and (spec.padding.direction.lower(), spec.padding.pad_id)
    assert padding == (reference.padding and (reference.padding["direction"], reference.padding["pad_id"]))
    assert isinstance(spec.model, types.BPE | types.WordPiece)
    assert spec.model.vocab == reference.get_vocab(with_added_tokens=False)


def flags(token: Any) -> tuple[Any, ...]:
    return token.content, token.special, token.normalized, token.lstrip, token.rstrip, token.single_word
