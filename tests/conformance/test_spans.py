"""Character spans are the reference's offsets; byte spans are in order, and the source bytes of their tokens."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from tests import corpus
from tests.artifacts import Artifact
from toktier_jax import SessionStore, Tokenizer
from toktier_jax.spec.byte_alphabet import ALPHABET

from .conftest import Outcome


def test_character_spans(outcome: Outcome) -> None:
    assert outcome.differences.get("char_spans") is None, outcome.differences["char_spans"]


def test_byte_spans_are_in_order(outcome: Outcome) -> None:
    assert outcome.differences.get("byte_spans") is None, outcome.differences["byte_spans"]


@pytest.mark.parametrize(
    "name", ["qwen-3", "deepseek-v3", "glm-4.7-flash", "cl100k_base", "o200k_base", "gpt2", "smollm2"]
)
def test_byte_spans_are_the_bytes_of_their_tokens(name: str, artifact: Callable[[str], Artifact], device: None) -> None:
    """For byte-level tokenizers on text that the normalizer leaves alone, half characters included."""
    tokenizer = artifact(name).tokenizer
    for text in (corpus.mixed(4000, 8), corpus.STRESS["emoji joined"](900), corpus.STRESS["four bytes each"](900)):
        encoding = tokenizer.encode(text, add_special_tokens=False, route="xla")
        data, spans = text.encode(), encoding.byte_spans
        if tokenizer.decode_bytes(encoding.ids) != data:  # the normalizer changed something
            continue
        assert np.array_equal(spans[1:, 0], spans[:-1, 1])
        assert (spans[0, 0], spans[-1, 1]) == (0, len(data))
        for id, (start, end) in zip(encoding.ids.tolist(), spans.tolist(), strict=True):
            assert data[start:end] == tokenizer.token_bytes(id)


def test_a_prefix_between_letters_of_a_character_taken_apart_has_all_of_its_bytes(device: None) -> None:
    """The added token takes the a of å, and what is left of it begins a piece, with a prefix."""
    vocab = {letter: index for index, letter in enumerate(ALPHABET)}
    added = dict.fromkeys(("special", "single_word", "lstrip", "rstrip"), False)
    file = {
        "version": "1.0",
        "added_tokens": [{"id": 256, "content": "a", "normalized": True, **added}],
        "normalizer": {"type": "NFD"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": False},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    tokenizer = Tokenizer.from_bytes(json.dumps(file).encode())
    for text in ("å", "xåb", "ååå"):
        found, expected = (tokenizer.encode(text, route=route) for route in ("xla", "reference"))
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.byte_spans.tolist() == expected.byte_spans.tolist()
        assert found.char_spans.tolist() == expected.char_spans.tolist()
    with SessionStore(tokenizer) as store:
        session = store.open("a", "xå")
        session.append("bå")
        assert session.byte_spans.tolist() == tokenizer.encode("xåbå", route="reference").byte_spans.tolist()
