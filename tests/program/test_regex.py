"""Which patterns windows of sessions are scanned by, and that the others are walked."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers

from tests.sampling import small
from tests.tokenizer_files import split
from toktier_jax import SessionStore, Tokenizer
from toktier_jax.program.pattern import parse_pattern
from toktier_jax.program.regex import is_quick
from toktier_jax.spec.types import Pattern


@pytest.mark.parametrize(
    ("pattern", "quick"),
    [
        (small.PATTERN, True),
        (r"(?:'s|'t)?\p{L}+(?!\S)|.", True),
        (r"(?:a+)+b|.", False),
        (r"(?:a|aa)+b|.", False),
        (r"x(?:a+){2}(?=(?:b|bb)*)|.", False),
        (r"x(?=(?:b|bb)*c)|.", False),
    ],
)
def test_loops_of_more_than_a_character_are_not_quick(pattern: str, quick: bool) -> None:
    assert is_quick(parse_pattern(Pattern(pattern, regex=True), "oniguruma").root) is quick


def test_a_pattern_that_gives_back_exponentially_is_walked() -> None:
    data = json.loads(small.tokenizer_json())
    data["pre_tokenizer"]["pretokenizers"][0] = split("(?:a+)+b|.")
    file, text = json.dumps(data).encode(), "a" * 200 + "c"
    session = SessionStore(Tokenizer.from_bytes(file)).open("a", text)
    assert np.array_equal(session.ids, tokenizers.Tokenizer.from_buffer(file).encode(text).ids)
