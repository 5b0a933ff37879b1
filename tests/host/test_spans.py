"""Spans: the reference's offsets out of source bytes, and source bytes out of the reference's answer."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import tokenizers

import toktier_jax as tt
from tests import artifacts, corpus, generated
from tests.tokenizer_files import (
    LLAMA_DECODER,
    LLAMA_NORMALIZER,
    added,
    bpe,
    byte_level,
    metaspace,
    replace,
    sequence,
    split,
    template,
    tokenizer_json,
)
from toktier_jax.errors import SpecError
from toktier_jax.host import postprocess, spans
from toktier_jax.host.align import absorbed
from toktier_jax.host.assemble import Assembler, DeviceResult
from toktier_jax.host.reference import RawEncoding, TokenizersReference
from toktier_jax.host.replay import replay_spans
from toktier_jax.host.vocabulary import build_vocabulary
from toktier_jax.results import Encoding
from toktier_jax.spec import types
from toktier_jax.spec.byte_alphabet import ALPHABET
from toktier_jax.spec.tokenizer_json import read_tokenizer_json

SCALE = float(os.environ.get("TOKTIER_JAX_TEST_SCALE", "1"))
LETTERS = {letter: i for i, letter in enumerate(ALPHABET)}
BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}
WORDS = ["▁", "h", "i", "hi", "▁hi", "▁▁", "日", "a", "▁a", "b", "é", "e"]
SPM = {**BYTES, **{token: 256 + i for i, token in enumerate(WORDS)}, "<unk>": 300}
MERGES = [["h", "i"], ["▁", "hi"], ["▁", "▁"], ["▁", "a"]]


class Subject:
    """What the façade is made of, on the reference alone."""

    def __init__(self, file: bytes) -> None:
        self.spec = read_tokenizer_json(file)
        self.reference = TokenizersReference(file)
        self.vocabulary = build_vocabulary(self.spec, self.reference.normalize)
        self.assembler = Assembler(self.spec, lambda: self.reference, lambda: self.vocabulary, lambda: self.spec.model)

    def answer(self, text: str, special: bool) -> Encoding:
        return self.assembler.from_reference(text, add_special_tokens=special, special="parse", reason="test")

    def bytes(self, text: str) -> list[list[int]]:
        return self.answer(text, False).byte_spans.tolist()

    def chars(self, text: str) -> list[list[int]]:
        return self.reference.encode_bare(text, special="parse").offsets.tolist()

    def gaps(self, text: str) -> np.ndarray | None:
        forms = [step.form for step in self.spec.normalizers if isinstance(step, types.Unicode)]
        return absorbed(forms[0], text) if forms else None

    def from_device(self, text: str, add_special_tokens: bool) -> Any:
        """As if the device had found these ids and bytes."""
        raw = self.reference.encode_bare(text, special="parse")
        pairs = spans.byte_spans(text, raw, self.vocabulary, self.gaps(text), self.reference.normalize)
        bounds = np.array([i for i, byte in enumerate(text.encode()) if byte & 0xC0 != 0x80] + [len(text.encode())])
        inside = pairs[:, 1] > pairs[:, 0]
        gapped = np.where(inside, np.minimum(pairs[:, 1], bounds[raw.offsets[:, 1]]), pairs[:, 1])
        found = DeviceResult(raw.ids, pairs[:, 0], pairs[:, 1], gapped)
        return self.assembler.from_device(
            text, text.encode(), found, add_special_tokens=add_special_tokens, special="parse"
        )


def byte_tokenizer(**parts: Any) -> Subject:
    pre = parts.pop("pre_tokenizer", byte_level(use_regex=False))
    return Subject(tokenizer_json(bpe(LETTERS, []), pre_tokenizer=pre, **parts))


def sentencepiece(**parts: Any) -> Subject:
    model = bpe(SPM, MERGES, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    return Subject(tokenizer_json(model, decoder=LLAMA_DECODER, **{"normalizer": LLAMA_NORMALIZER, **parts}))


def test_half_characters_keep_their_own_bytes() -> None:
    subject = byte_tokenizer()
    assert subject.bytes("aé") == [[0, 1], [1, 2], [2, 3]]
    assert subject.chars("aé") == [[0, 1], [1, 2], [1, 2]]
    assert spans.char_spans("aé".encode(), np.array([0, 1, 2]), np.array([1, 2, 3])).tolist() == subject.chars("aé")


def test_llama_prefix() -> None:
    subject = sentencepiece()
    assert subject.chars(" hi") == [[0, 1], [0, 3]]
    assert subject.bytes(" hi") == [[0, 0], [0, 3]]
    assert subject.chars("hi") == [[0, 2]]
    assert subject.bytes("hi") == [[0, 2]]
    assert subject.bytes("日") == [[0, 0], [0, 3]]
    assert subject.bytes("ж") == [[0, 0], [0, 1], [1, 2]]
    assert subject.bytes("") == []
    data = b" hi"
    assert spans.char_spans(data, np.array([0, 0]), np.array([0, 3])).tolist() == [[0, 1], [0, 3]]


def test_a_prefix_in_every_segment() -> None:
    subject = sentencepiece(added=[added(301, "<s>", special=True)])
    assert subject.bytes("a<s>日") == [[0, 1], [1, 4], [4, 4], [4, 7]]
    assert subject.chars("a<s>日") == [[0, 1], [1, 4], [4, 5], [4, 5]]


def test_metaspace_inserts_nothing_before_a_space() -> None:
    subject = sentencepiece(normalizer=None, pre_tokenizer=metaspace("always"))
    assert subject.bytes(" hi") == [[0, 3]]
    assert subject.bytes(" 日") == [[0, 1], [1, 4]]
    assert subject.bytes("日") == [[0, 0], [0, 3]]


def test_a_lone_space_that_normalization_makes_is_no_prefix() -> None:
    for normalizer in ({"type": "NFKC"}, {"type": "Replace", "pattern": {"String": "\xa0"}, "content": " "}):
        subject = sentencepiece(normalizer=normalizer, pre_tokenizer=metaspace("always", split=True))
        for text in ("h\xa0", "h "):
            raw = subject.reference.encode_bare(text, special="parse")
            width = len(text.encode()) - 1
            for slow in (False, True):
                assert spans_of(subject, text, raw, slow)[-1] == [1, 1 + width]


def test_a_prefix_before_a_character_that_is_removed() -> None:
    pre = sequence("pretokenizers", metaspace("first", split=False), split(r"\t", "Removed"))
    subject = sentencepiece(normalizer=None, pre_tokenizer=pre)
    assert subject.bytes("\thi") == [[0, 0], [1, 3]]


def test_a_space_before_bytes() -> None:
    subject = byte_tokenizer(pre_tokenizer=byte_level(add_prefix_space=True))
    assert subject.bytes("é") == [[0, 0], [0, 1], [1, 2]]
    assert subject.bytes(" é") == [[0, 1], [1, 2], [2, 3]]


def test_composed_characters() -> None:
    subject = byte_tokenizer(normalizer={"type": "NFC"})
    assert subject.chars("e\u0301x") == [[0, 1], [0, 1], [2, 3]]
    assert subject.bytes("e\u0301x") == [[0, 3], [0, 3], [3, 4]]


def test_one_character_made_into_many() -> None:
    subject = byte_tokenizer(normalizer={"type": "NFD"})
    assert subject.bytes("é") == [[0, 2], [0, 2], [0, 2]]


def test_white_space_that_added_tokens_take() -> None:
    subject = byte_tokenizer(added=[added(256, "<m>", lstrip=True, rstrip=True, special=True)])
    assert subject.bytes("a  <m> b") == [[0, 1], [1, 7], [7, 8]]


def test_dropped_characters_shift_the_reference_but_not_bytes() -> None:
    subject = Subject(tokenizer_json(bpe({"a": 0, "b": 1}, [])))
    assert subject.vocabulary.shifts
    assert subject.chars("aжb") == [[0, 1], [1, 2]]  # the reference's, wrong for b
    assert subject.bytes("aжb") == [[0, 1], [3, 4]]


def test_parts_of_characters_that_are_unknown() -> None:
    letters = {letter: i for i, letter in enumerate(ALPHABET) if letter != ALPHABET[0xA9]}
    model = bpe({**letters, "<unk>": 999}, [], unk_token="<unk>")
    subject = Subject(tokenizer_json(model, pre_tokenizer=byte_level(use_regex=False)))
    assert subject.vocabulary.partial
    assert subject.bytes("éa") == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize("add_prefix_space", [True, False])
def test_trimming(add_prefix_space: bool) -> None:
    """Roberta's quirks: one leading space of the first token, or at offset 0, stays."""
    merges = [["Ġ", "a"], ["Ġ", "Ġ"], ["a", "Ġ"]]
    vocab = {**LETTERS, **{left + right: 256 + i for i, (left, right) in enumerate(merges)}}
    file = tokenizer_json(
        bpe(vocab, merges),
        pre_tokenizer=byte_level(add_prefix_space=add_prefix_space, use_regex=False),
        post_processor={
            "type": "RobertaProcessing",
            "sep": ["b", LETTERS["b"]],
            "cls": ["c", LETTERS["c"]],
            "trim_offsets": True,
            "add_prefix_space": add_prefix_space,
        },
        added=[added(300, "<m>", lstrip=True), added(301, " x ")],
    )
    subject = Subject(file)
    reference = tokenizers.Tokenizer.from_buffer(file)
    for text in ("a", " a", "  a  ", "a a", "   ", "é a", "b  <m>a", " <m>", " x a x ", "\u3000a", "a\n a"):
        for special in (True, False):
            found = subject.from_device(text, special)
            expected = reference.encode(text, add_special_tokens=special)
            assert found.ids.tolist() == expected.ids
            assert found.char_spans.tolist() == [list(pair) for pair in expected.offsets], text


POOL = [
    *"aAbBxyzs  \n\t12éßλж日한▁0",
    "<s>",
    "</s>",
    "<a>",
    "<ab>",
    "[MASK]",
    "tok",
    "e\u0301",
    "İ",
    "ﬁ",
    "👩‍👧",
    "\0",
    "Ǆ",
]


def texts(seed: int, count: int) -> list[str]:
    rng = np.random.default_rng(seed)
    made = ["".join(rng.choice(POOL, rng.integers(1, 25)).tolist()) for _ in range(count)]
    return ["", " ", "a", "  ab  c ", "<s> a <ab>", *made]


def check(file: bytes, name: str, count: int) -> int:
    """Both directions, for one file; the number of answers compared."""
    subject = Subject(file)
    reference = tokenizers.Tokenizer.from_buffer(file)
    slow = subject.vocabulary.shifts or subject.vocabulary.partial
    compared = 0
    for text in texts(len(file), count):
        for special in (True, False):
            try:
                ours = subject.assembler.from_reference(
                    text, add_special_tokens=special, special="parse", reason="test"
                )
            except SpecError:
                continue  # the reference itself fails
            expected = reference.encode(text, add_special_tokens=special)
            offsets = [list(pair) for pair in expected.offsets]
            assert (ours.ids.tolist(), ours.char_spans.tolist()) == (expected.ids, offsets), (name, text)
            if subject.spec.host_only:
                continue
            raw = subject.reference.encode_bare(text, special="parse")
            whole = subject.reference.encode(text, add_special_tokens=special, special="parse")
            pairs = ours.byte_spans[whole.words >= 0]
            assert (np.diff(pairs[:, 1]) >= 0).all(), (name, text)
            if isinstance(subject.spec.model, types.BPE):
                assert replayed(subject, text, raw) == spans_of(subject, text, raw, slow), (name, text)
            if not slow:
                found = subject.from_device(text, special)
                assert found.ids.tolist() == expected.ids, (name, text)
                assert found.char_spans.tolist() == offsets, (name, text)
                assert found.truncated == ours.truncated, (name, text)
                assert found.byte_spans.tolist() == ours.byte_spans.tolist(), (name, text)
            compared += 1
    return compared


def replayed(subject: Subject, text: str, raw: RawEncoding) -> list[list[int]]:
    assert isinstance(subject.spec.model, types.BPE)
    spelled = subject.reference.spell(text, special="parse")
    model, normalize = subject.spec.model, subject.reference.normalize
    return replay_spans(text, raw, spelled, model, subject.vocabulary, subject.gaps(text), normalize).tolist()


def spans_of(subject: Subject, text: str, raw: RawEncoding, slow: bool) -> list[list[int]]:
    """By the fast way where it applies."""
    if slow:
        return replayed(subject, text, raw)
    return spans.byte_spans(text, raw, subject.vocabulary, subject.gaps(text), subject.reference.normalize).tolist()


def test_generated_files() -> None:
    count = int(40 * SCALE)
    files = [*generated.generate(count // 2), *generated.generate(count // 2, start=100)]
    assert sum(check(made.file, made.name, 12) for made in files) > 10 * count


@pytest.mark.parametrize(
    "name", ["mistral-v1", "mistral-v3", "gpt2", "trained-bert", "trained-roberta", "trained-llama"]
)
def test_real_files(name: str) -> None:
    try:
        file = artifacts.load(name).file
    except artifacts.Missing as error:
        pytest.skip(str(error))
    assert check(file, name, 30) > 50
    subject = Subject(file)
    text = corpus.mixed(20_000, seed=11)
    raw = subject.reference.encode_bare(text, special="parse")
    found = subject.from_device(text, add_special_tokens=False)
    assert found.ids.tolist() == raw.ids.tolist()
    if not subject.spec.post_processor.trim_offsets:
        assert found.char_spans.tolist() == raw.offsets.tolist()
    data = text.encode()
    if name == "gpt2":
        for index, (start, stop) in zip(raw.ids.tolist(), found.byte_spans.tolist(), strict=True):
            assert subject.vocabulary.token_bytes(index) == data[start:stop]


def test_replace_of_several_characters_has_the_place_of_the_last() -> None:
    """A quirk that a device path has to know: its origin map must follow the reference's."""
    subject = byte_tokenizer(normalizer=replace("ab", "x"))
    assert subject.chars("cab") == [[0, 1], [2, 3]]


def test_frames() -> None:
    spec = read_tokenizer_json(
        tokenizer_json(
            bpe({"a": 0, "b": 1, "c": 2}, []),
            post_processor=template(["b"], ["c"], {"b": 1, "c": 2}),
            truncation={"direction": "Left", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        )
    )
    frame = postprocess.frame(spec, 5, add_special_tokens=True)
    assert frame == (3, 5, (1,), (2,), True)
    assert frame.length == 4
    assert frame.ids(np.arange(10, 15, dtype=np.int32)).tolist() == [1, 13, 14, 2]
    assert postprocess.frame(spec, 5, add_special_tokens=False)[:2] == (1, 5)
    assert not postprocess.frame(spec, 2, add_special_tokens=True).truncated


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        (
            # an added token spelled like the token of a byte
            tokenizer_json(
                bpe({"a": 0, "<0x83>": 1, "[U]": 2}, [], byte_fallback=True, unk_token="[U]"),
                added=[added(1, "<0x83>")],
            ),
            "a<0x83>",
            [[0, 1], [1, 7]],
        ),
        (
            # pieces that end inside a character, and letters of the byte alphabet that have no token
            tokenizer_json(
                bpe({"Â": 0, "½": 1, "a": 2, "Ġ": 3}, []),
                pre_tokenizer=sequence("pretokenizers", byte_level(use_regex=False), split(".")),
            ),
            "½a",
            [[0, 1], [1, 2], [2, 3]],
        ),
        (
            # what is prepended has the place of a space that is removed
            tokenizer_json(
                bpe({"▁": 0, "a": 1}, []),
                normalizer={"type": "Prepend", "prepend": "▁"},
                pre_tokenizer={"type": "WhitespaceSplit"},
            ),
            " a",
            [[0, 0], [1, 2]],
        ),
    ],
    ids=["byte-like added token", "inside a character", "prepended"],
)
def test_byte_spans_by_each_route(file: bytes, text: str, expected: list[list[int]]) -> None:
    tokenizer = tt.Tokenizer.from_bytes(file)
    assert tokenizer.encode(text, route="reference").byte_spans.tolist() == expected
    assert tt.SessionStore(tokenizer).open("a", text).byte_spans.tolist() == expected
