"""The byte alphabet against the reference's, and back."""

from __future__ import annotations

import tokenizers

from toktier_jax.spec.byte_alphabet import ALPHABET, from_alphabet, to_alphabet


def test_is_the_reference_alphabet() -> None:
    assert sorted(ALPHABET) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    splitter = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    text = "\0 aé日😀\u00ad\x7f\x80"
    assert splitter.pre_tokenize_str(text)[0][0] == to_alphabet(text.encode())


def test_round_trip() -> None:
    data = bytes(range(256))
    assert to_alphabet(data) == ALPHABET
    assert from_alphabet(ALPHABET) == data


def test_foreign_characters_spell_nothing() -> None:
    for character in " \n\x7f\xa0\xad日😀\u0144\u01ff":
        assert from_alphabet(f"a{character}") is None
    assert from_alphabet("") == b""
