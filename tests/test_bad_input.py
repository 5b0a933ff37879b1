"""What callers get wrong, through every verb: an error of our hierarchy that names what and where; nothing is kept."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toktier_jax as tt
from tests.tokenizer_files import bpe, byte_level, tokenizer_json
from toktier_jax.spec.byte_alphabet import ALPHABET

VOCAB = {token: id for id, token in enumerate([*ALPHABET, "ab"])}
FILE = tokenizer_json(bpe(VOCAB, [["a", "b"]]), pre_tokenizer=byte_level(), decoder=byte_level())


@functools.cache
def tok() -> tt.Tokenizer:
    return tt.Tokenizer.from_bytes(FILE)


ROUTE: Any = "reference"
ONE: dict[str, Callable[[Any], Any]] = {
    "encode": lambda text: tok().encode(text, route=ROUTE),
    "count": lambda text: tok().count(text, route=ROUTE),
    "encode_batch": lambda text: tok().encode_batch(["é", text], route=ROUTE),
    "pack": lambda text: tok().pack(["é", text], 8, route=ROUTE),
    "encode_iter": lambda text: list(tok().encode_iter(["é", text], route=ROUTE)),
    "device": lambda text: tok().encode(text, route="xla"),
    "device batch": lambda text: tok().encode_batch(["é", text], route="xla"),
}
SEVERAL: dict[str, Callable[[Any], Any]] = {
    "encode_batch": lambda texts: tok().encode_batch(texts),
    "pack": lambda texts: tok().pack(texts, 8),
    "encode_iter": lambda texts: tok().encode_iter(texts),
}
IDS: dict[str, Callable[[Any], Any]] = {
    "decode": lambda ids: tok().decode(ids),
    "decode_bytes": lambda ids: tok().decode_bytes(ids),
    "push": lambda ids: tok().stream_decoder().push(ids),
}


@pytest.mark.parametrize("verb", ONE)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ab\ud800", r"lone surrogate U\+D800 at character 2"),
        ("\udfffa", r"lone surrogate U\+DFFF at character 0"),
        ("é\udc80", r"lone surrogate U\+DC80 at character 1"),  # what surrogateescape makes of a byte
        ("\ud83d\ude00", r"lone surrogate U\+D83D at character 0"),  # two surrogates are no character in Python
        (b"ab\xff", "not UTF-8 at byte 2"),
        (b"\xed\xa0\x80", "not UTF-8 at byte 0"),  # a surrogate in UTF-8
        (b"a\xc0\x80", "not UTF-8 at byte 1"),  # an overlong NUL
        (b"\xf4\x90\x80\x80", "not UTF-8 at byte 0"),  # past the last code point
        (b"ab\xf0\x9f\x98", "not UTF-8 at byte 2"),  # a character cut off
        (None, "not NoneType"),
        (3, "not int"),
        (np.array([97]), "not ndarray"),
        (["a"], "not list"),
        (Path("a"), "not PosixPath"),
    ],
    ids=repr,
)
def test_texts(verb: str, text: Any, says: str) -> None:
    with pytest.raises(tt.InputError, match=says):
        ONE[verb](text)


@pytest.mark.parametrize("verb", SEVERAL)
@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ("text", "must be a list of texts, not one str; wrap it in a list"),
        (b"text", "not one bytes"),
        (bytearray(b"text"), "not one bytearray"),
        (None, "not NoneType"),
        (3, "not int"),
    ],
)
def test_one_text_for_many(verb: str, texts: Any, says: str) -> None:
    """Refused at the call, before anything is iterated over."""
    with pytest.raises(tt.InputError, match=says):
        SEVERAL[verb](texts)


@pytest.mark.parametrize("verb", IDS)
@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([1, 257], "id 257 at index 1 is out of range; the ids end at 256"),
        ([1, 1 << 64], "id 18446744073709551616 at index 1 is out of range; the ids end at 256"),
        ([-1], "id -1 at index 0"),
        (np.array([0, 1 << 40]), "id 1099511627776 at index 1"),
        ([1.0], "float64"),
        ([None], "object"),
        ([[1]], "2-dimensional"),
        ([[1], [1, 2]], "flat"),
        ("12", "not str"),
        (b"12", "not bytes"),
        (None, "flat"),
        (3, "not int; one id is a list"),
    ],
    ids=repr,
)
def test_ids(verb: str, ids: Any, says: str) -> None:
    with pytest.raises(tt.InputError, match=says):
        IDS[verb](ids)


@pytest.mark.parametrize("id", [-1, 257, None, "a", 1.0, True, [1]])
def test_one_id(id: Any) -> None:
    with pytest.raises(tt.InputError, match="id"):
        tok().token_bytes(id)


@pytest.mark.parametrize("pad", ["0", 1.5, True, 1 << 40, [0]])
def test_what_pads_is_an_id(pad: Any) -> None:
    with pytest.raises(tt.InputError, match="pad_id must be an integer of 32 bits"):
        tok().encode_batch(["a", "ab"], pad_id=pad, route=ROUTE)
    assert tok().encode_batch(["a", "bc"], pad_id=-1, route=ROUTE).ids[0].tolist() == [VOCAB["a"], -1]


# ---- files ----


@pytest.mark.parametrize(
    "path", [None, 3, b"a.json", "a\0b", "", io.BytesIO(FILE)], ids=["None", "int", "bytes", "NUL", "empty", "file"]
)
def test_paths(path: Any) -> None:
    for make in (tt.Tokenizer.from_file, tt.Tokenizer.from_pretrained):
        with pytest.raises(tt.InputError, match="path must be a non-empty str"):
            make(path)


@pytest.mark.parametrize("data", [None, 3, "{}", ["a"]])
def test_content_of_another_type(data: Any) -> None:
    with pytest.raises(tt.InputError, match="data must be bytes, not"):
        tt.Tokenizer.from_bytes(data)


@pytest.mark.parametrize("obj", [None, 3, "tokenizer.json", {}])
def test_objects_of_another_type(obj: Any) -> None:
    for make in (tt.Tokenizer.from_tokenizers, tt.Tokenizer.from_tiktoken):
        with pytest.raises(tt.SpecError, match=type(obj).__name__):
            make(obj)


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"\x80\x04pickle", b"[]", b"3", b'{"a": 1}', b"GGUF", b"<html>"])
def test_unknown_formats(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(tt.SpecError, match=r"tokenizer\.json|: the file ends"):
        tt.Tokenizer.from_file(path)


def test_damaged_json_names_the_byte_wherever_it_ends() -> None:
    for size in range(1, len(FILE), 97):
        with pytest.raises(tt.SpecError, match=r"at byte \d+|its keys"):
            tt.Tokenizer.from_bytes(FILE[:size])
    at = FILE.index(b'"merges"')
    with pytest.raises(tt.SpecError, match=f"at byte {at}"):
        tt.Tokenizer.from_bytes(FILE[:at] + b"\xff" + FILE[at + 1 :])


def changed(**model: Any) -> bytes:
    whole = json.loads(FILE)
    whole["model"].update(model)
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"merges": [["a", "b"], ["a", "zz"]]}, r"model\.merges: entry 1 .*'zz', which is not in the vocabulary"),
        ({"merges": ["a b", "zz a"]}, r"model\.merges: entry 1 .*'zz'"),
        ({"merges": [["b", "a"]]}, r"model\.merges: entry 0 .*'ba'"),
        ({"merges": [["a"]]}, r"model\.merges: entry 0"),
        ({"merges": "a b"}, r"model\.merges"),
        ({"merges": [["a", 3]]}, r"model\.merges: entry 0"),
        ({"vocab": {"a": "0"}}, "vocab: the id of 'a'"),
        ({"vocab": {"a": -1}}, "vocab: the id of 'a'"),
        ({"vocab": None}, r"model\.vocab"),
        ({"type": "Unheard"}, "Unheard"),
        ({"dropout": "x"}, r"model\.dropout"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_models_that_contradict_themselves(model: dict[str, Any], says: str) -> None:
    with pytest.raises(tt.SpecError, match=says):
        tt.Tokenizer.from_bytes(changed(**model))


def test_a_tokenizer_is_as_before_after_every_error() -> None:
    made = tt.Tokenizer.from_bytes(FILE)
    for bad in ("\ud800", b"\xff", None):
        with pytest.raises(tt.InputError):
            made.encode(bad, route=ROUTE)  # pyright: ignore  # the type is wrong: that is the test
    assert made.explain().calls == {}
    assert made.encode("ab", route=ROUTE).ids.tolist() == [256]
    stream = made.stream_decoder()
    with pytest.raises(tt.InputError):
        stream.push([256, 257])
    assert stream.push([256]) + stream.finish() == "ab"
