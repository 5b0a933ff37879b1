"""Rewriting only the suspect spans gives what the reference makes of the whole, text and offsets."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from toktier_jax.errors import UnsupportedError
from toktier_jax.host.align import align
from toktier_jax.host.normalize import normalize
from toktier_jax.spec.types import AddedToken

SCALE = float(os.environ.get("TOKTIER_JAX_TEST_SCALE", "1"))
FORMS = ["NFC", "NFD", "NFKC", "NFKD"]
MARKS = ["\u0300", "\u0301", "\u0323", "\u0338", "\u0345", "\u05b0", "\u064b", "\u093c", "\u3099", "\u0c56"]
STARTERS = [
    "a",
    "E",
    " ",
    "<",
    "é",
    "Å",
    "ệ",
    "ﬁ",
    "漢",
    "豈",
    "한",
    "ᄒ",
    "ᅡ",
    "ᆫ",
    "か",
    "ﾊ",
    "ﾟ",
    "क",
    "ﷺ",
    "🎉",
    "\u212b",
]


def token(content: str, id: int, *, lstrip: bool = False, special: bool = False) -> AddedToken:
    return AddedToken(id, content, special, False, lstrip, False, False)


def random_text(rng: np.random.Generator, parts: list[str], length: int) -> str:
    return "".join(rng.choice(parts, length))


def reference(form: str, tokens: list[AddedToken], text: str) -> tuple[str, list[tuple[int, int]]]:
    """The characters that the whole reference pipeline makes of a text, with their offsets; tokens as they stand."""
    normalizer = getattr(tokenizers.normalizers, form)()
    chars = sorted({*normalizer.normalize_str(text), *text, "?"})
    tok = tokenizers.Tokenizer(models.WordLevel({char: i for i, char in enumerate(chars)}, unk_token="?"))
    tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("(?m:.)"), "isolated")
    for each in tokens:
        tok.add_tokens([tokenizers.AddedToken(each.content, normalized=False, lstrip=each.lstrip)])
    contents = {tok.token_to_id(each.content) for each in tokens}
    encoding = tok.encode(text, add_special_tokens=False)
    out, spans = "", []
    for id, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
        shown = text[start:stop] if id in contents else chars[id]
        out += shown
        spans += [(start + k, start + k + 1) for k in range(stop - start)] if id in contents else [(start, stop)]
    return out, spans


def check(form: str, tokens: list[AddedToken], text: str) -> None:
    found = normalize(form, tokens, text.encode(), "parse")  # pyright: ignore[reportArgumentType]  # a str for a literal
    shown, spans = reference(form, tokens, text)
    assert found.data.decode() == shown, (form, text)
    bounds = np.concatenate([[0], np.cumsum([len(char.encode()) for char in text])])
    char_of = np.searchsorted(bounds, np.arange(bounds[-1] + 1), side="right") - 1
    places = np.append(np.flatnonzero((np.frombuffer(found.data, np.uint8) & 0xC0) != 0x80), len(found.data))
    have = [
        (int(char_of[found.starts[a]]), int(char_of[found.gapped[b - 1] - 1]) + 1)
        for a, b in itertools.pairwise(places)
    ]
    assert have == spans, (form, text)


@pytest.mark.parametrize("form", FORMS)
def test_random_mixes(form: str):
    rng = np.random.default_rng(FORMS.index(form))
    tokens = [token("<s>", 1), token("é", 2), token(" x", 3), token("<m>", 4, lstrip=True)]
    parts = [*MARKS, *STARTERS * 2, *[each.content for each in tokens] * 2, "plain text, much of it "]
    refused = 0
    for _ in range(int(150 * SCALE)):
        text = random_text(rng, parts, int(rng.integers(1, 30)))
        for some in ([], tokens[:1], tokens):
            try:
                check(form, some, text)
            except UnsupportedError:
                refused += some == tokens
    assert refused < 150 * SCALE / 2


@pytest.mark.parametrize("form", FORMS)
def test_the_same_as_the_whole_at_once(form: str):
    """All three origins of every byte, for texts in which suspects are near and far."""
    rng = np.random.default_rng(5)
    for _ in range(int(60 * SCALE)):
        text = random_text(rng, [*MARKS, *STARTERS, "nothing to be seen here, nothing at all. "], 25)
        whole, spans = align(form, text), normalize(form, [], text.encode(), "parse")  # pyright: ignore[reportArgumentType]  # a str for a literal
        assert whole.data == spans.data
        for name in ("starts", "ends", "gapped"):
            assert np.array_equal(getattr(whole, name), getattr(spans, name)), (text, name)


@pytest.mark.parametrize("form", FORMS)
def test_unicodes_own_cases(form: str):
    """NormalizationTest.txt where Debian's unicode-data put it: every source string, between plain ones."""
    path = Path("/usr/share/unicode/NormalizationTest.txt")
    if not path.exists():
        pytest.skip("unicode-data is not installed")
    lines = [line.split(";")[0] for line in path.read_text().splitlines() if line[:1] not in "#@" and ";" in line]
    sources = ["".join(chr(int(code, 16)) for code in line.split()) for line in lines]
    for at in range(0, len(sources), 500):
        check(form, [], " x ".join(sources[at : at + 500]))


def test_what_is_made_of_parts_stays_apart():
    """A mark after an added token has nothing to join; a token that only the normal form has is refused."""
    tokens = [token("</s>", 1), token("é", 2), token("[x]", 3, special=True)]
    check("NFC", tokens, "a</s>\u0338b")
    with pytest.raises(UnsupportedError, match="makes an added token"):
        normalize("NFC", tokens, "cafe\u0301".encode(), "parse")
    for special in ("parse", "text"):
        found = normalize("NFC", tokens, "[x]\u0301 a\u0301".encode(), special)  # pyright: ignore[reportArgumentType]  # a str for a literal
        assert found.data.decode() == "[x]\u0301 á"
    with pytest.raises(UnsupportedError):
        normalize("NFC", [token("a]", 1, special=True), token("á", 2)], "a] a\u0301".encode(), "text")


def test_a_long_text_with_few_suspects_is_mostly_left_alone():
    text = "plain text " * 20000 + "e\u0301" + " and more" * 20000
    found = normalize("NFC", [token("<s>", 1)], text.encode(), "parse")
    assert found.data.decode() == text.replace("e\u0301", "é")
    assert found.starts[-1] == len(text.encode()) - 1
