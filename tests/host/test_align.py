"""Alignment of Unicode normal forms with the original text."""

from __future__ import annotations

import random
import unicodedata
from typing import Literal

import numpy as np
import pytest

from toktier_jax.host.align import absorbed, align

FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
LETTERS = "ae\u0301\u0323\u0308 \u1112\u1161\u11ab한éﬁ½😀\n\u0958\u2126日A\u030a"


def test_composition_leaves_a_gap_that_bytes_close() -> None:
    found = align("NFC", "xe\u0301y")
    assert found.data == "xéy".encode()
    assert found.starts.tolist() == [0, 1, 1, 4]
    assert found.gapped.tolist() == [1, 2, 2, 5]
    assert found.ends.tolist() == [1, 4, 4, 5]
    assert absorbed("NFC", "xe\u0301y").tolist() == [False, False, True, False]


def test_kept_characters_have_an_origin_for_each_byte() -> None:
    found = align("NFC", "😀e\u0301")
    assert found.starts.tolist()[:4] == [0, 1, 2, 3]
    assert found.ends.tolist()[:4] == found.gapped.tolist()[:4] == [1, 2, 3, 4]


def test_hangul_and_decomposition() -> None:
    found = align("NFC", "\u1112\u1161\u11ab!")
    assert (found.starts[0], found.gapped[0], found.ends[0]) == (0, 3, 9)
    found = align("NFD", "é")
    assert found.data == b"e\xcc\x81"
    assert found.starts.tolist() == [0, 0, 0]
    assert found.ends.tolist() == [2, 2, 2]


def test_nothing_to_do() -> None:
    assert align("NFC", "").data == b""
    found = align("NFC", "añ日")
    assert found.starts.tolist() == list(range(6))
    assert not absorbed("NFC", "añ日").any()
    assert absorbed("NFC", "").shape == (0,)


@pytest.mark.parametrize("form", FORMS)
def test_spans_cover_the_text_in_order(form: Literal["NFC", "NFD", "NFKC", "NFKD"]) -> None:
    rng = random.Random(3)
    for _ in range(100):
        text = "".join(rng.choices(LETTERS, k=rng.randrange(1, 12)))
        if unicodedata.combining(text[0]):
            text = "a" + text
        found, data = align(form, text), text.encode()
        assert found.data.decode() == unicodedata.normalize(form, text)
        assert (np.diff(found.starts) >= 0).all()
        assert (np.diff(found.ends) >= 0).all()
        assert (found.gapped <= found.ends).all()
        assert (found.starts[0], found.ends[-1]) == (0, len(data))
        assert (np.maximum(found.starts[1:], found.ends[:-1]) <= found.ends[1:]).all()
        assert absorbed(form, text).shape == (len(text),)


def test_a_token_inserted_into_a_character_taken_apart_has_all_of_its_bytes() -> None:
    starts, ends, _ = align("NFKD", "å").original(np.array([0, 1, 1]), np.array([1, 1, 3]))
    assert starts.tolist() == [0, 0, 0]
    assert ends.tolist() == [2, 2, 2]


def test_a_token_inserted_before_a_character_is_empty() -> None:
    starts, ends, _ = align("NFKD", "xå").original(np.array([0, 1, 1]), np.array([1, 1, 4]))
    assert starts.tolist() == [0, 1, 1]
    assert ends.tolist() == [1, 1, 3]
