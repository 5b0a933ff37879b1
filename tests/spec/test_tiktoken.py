"""Loaded tiktoken encodings as specs."""

from __future__ import annotations

import pytest

from toktier_jax.errors import SpecError
from toktier_jax.spec import types
from toktier_jax.spec.source import from_encoding
from toktier_jax.spec.tiktoken import read_encoding

tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")


def encoding(pattern: str = r"\w+|\s", specials: dict[str, int] | None = None) -> object:
    ranks = {bytes([i]): i for i in range(256)} | {b"ab": 256}
    return tiktoken.Encoding(
        "small", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<x>": 300} if specials is None else specials
    )


def test_fields() -> None:
    spec = read_encoding(encoding())
    assert (spec.source, spec.dialect, spec.host_only) == ("tiktoken", "tiktoken", ())
    assert isinstance(spec.model, types.BytePairRanks)
    assert (spec.model.ranks[b"ab"], spec.model.offset) == (256, 0)
    assert spec.pre_tokenizers == (types.Split(types.Pattern(r"\w+|\s", True), "Removed", invert=True),)
    assert spec.added_tokens == (types.AddedToken(300, "<x>", special=True, normalized=False),)
    assert spec.byte_level


def test_fingerprint_is_of_the_content() -> None:
    first = read_encoding(encoding()).fingerprint
    assert first == read_encoding(encoding()).fingerprint == from_encoding(encoding()).fingerprint
    assert first != read_encoding(encoding(pattern=r"\w+|\s+")).fingerprint
    assert first != read_encoding(encoding(specials={"<y>": 300})).fingerprint


def test_a_special_token_that_begins_another_is_named() -> None:
    assert read_encoding(encoding(specials={"<x>": 300, "<x>y": 301})).host_only


def test_other_objects_are_refused() -> None:
    with pytest.raises(SpecError, match="str is not a tiktoken"):
        read_encoding("cl100k_base")
