"""Character spans are the reference's offsets; byte spans are in order, and the source bytes of their tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests import corpus
from tests.artifacts import Artifact

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
