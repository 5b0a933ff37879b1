"""A prompt's own ids: without the template, the padding and the truncation of the tokenizer's file."""

from __future__ import annotations

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from toktier_jax import sampling
from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.sampling.prompt import read_prompts
from toktier_jax.sampling.vocabulary import Vocabulary, vocabulary_of

from . import small

BOUNDARIES = ("none", "heal", "exact")
END = 300
FIXED = {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": None}
LEFT = {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": 8}


@pytest.mark.parametrize("padding", [FIXED, LEFT], ids=["fixed", "left"])
def test_a_files_padding_is_no_part_of_a_prompt(padding: dict) -> None:
    plain = small.tokenizer(bos=True)
    tok = small.changed(padding=padding | {"pad_id": END, "pad_type_id": 0, "pad_token": "<|end|>"})
    assert END in tok.encode("it's", add_special_tokens=False).ids
    lm = small.model(plain.vocab_size)
    for prompt in ("it's a d", "it's<|end|>", "", "x " * 20):
        for boundary in BOUNDARIES:
            ours, theirs = (
                sampling.generate(lm, each, prompt, boundary=boundary, max_tokens=3, temperature=0)
                for each in (tok, plain)
            )
            assert ours == theirs
    assert sampling.prompt_logprob(lm, tok, "it's a d") == sampling.prompt_logprob(lm, plain, "it's a d")


def test_a_prompt_that_the_file_truncates_is_an_error() -> None:
    tok = small.changed(truncation={"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0})
    lm = small.model(tok.vocab_size)
    for boundary in BOUNDARIES:
        assert sampling.generate(lm, tok, "it's", boundary=boundary, max_tokens=2).ids
        with pytest.raises(InputError, match="file truncates this prompt"):
            sampling.generate(lm, tok, "it's 1234 5678", boundary=boundary, max_tokens=2)
    with pytest.raises(InputError, match="file truncates this prompt"):
        sampling.prompt_logprob(lm, tok, "it's 1234 5678")


@pytest.mark.parametrize("normalizer", [None, {"type": "NFC"}], ids=["raw", "NFC"])
def test_a_byte_that_the_vocabulary_lacks_is_an_error(normalizer: Any) -> None:
    model = json.loads(small.tokenizer_json(bos=True))["model"]
    model["vocab"]["QQQQQQ"] = model["vocab"].pop("Q")
    tok = small.changed(model=model, normalizer=normalizer)
    lm = small.model(tok.vocab_size)
    for prompt in ("aQb", "e\u0301Q"):
        with pytest.raises(InputError, match="cannot spell byte 0x51"):
            sampling.prompt_logprob(lm, tok, prompt)
    if normalizer is not None:
        assert sampling.prompt_logprob(lm, tok, "e\u0301") == sampling.prompt_logprob(lm, tok, "\xe9")


def test_ids_that_the_tokenizer_does_not_give_have_no_exact_covers() -> None:
    tok = small.tokenizer(added=True, bos=True)
    lm = small.model(tok.vocab_size)
    bos = tok.spec.post_processor.before
    pieces = tuple(tok.encode(letter, False).ids[0] for letter in "https")
    cut = (*tok.encode("it's a", False).ids, *vocabulary_of(tok).by_bytes[b"\xe4"])
    for ids, at in ((pieces, 0), ((*bos, *pieces), 1), (cut, len(cut) - 1)):
        match = f"the tokenizer does not give.* from index {at} on"
        for call in (sampling.next_byte_distribution, sampling.prompt_logprob, sampling.sample_bytes):
            with pytest.raises(UnsupportedError, match=match):
                call(lm, tok, ids, context_start=END)
        with pytest.raises(UnsupportedError, match=match):
            sampling.generate(lm, tok, ids, boundary="exact")
        for boundary in ("none", "heal"):
            assert sampling.generate(lm, tok, ids, boundary=boundary, max_tokens=1)
    for text in ("https", "a <think>it's 中", "a<|end|>b", "<|end|>", "b<|start|>"):
        ids = tok.encode(text, False).ids.tolist()
        expected = sampling.next_byte_distribution(lm, tok, text)
        np.testing.assert_allclose(sampling.next_byte_distribution(lm, tok, [*bos, *ids]), expected, atol=1e-12)


def test_a_spelling_takes_the_longest_token_that_leaves_one() -> None:
    strings = (b"ab", b"a", b"bc", b"", b"abcd")
    vocabulary = Vocabulary(strings, frozenset(), frozenset(), {})
    assert vocabulary.spelling(b"") == []
    assert vocabulary.spelling(b"abc") == [1, 2], "after ab nothing spells c"
    assert vocabulary.spelling(b"abab") == [0, 0]
    assert vocabulary.spelling(b"abcda") == [4, 1]
    with pytest.raises(InputError, match="no tokens of the vocabulary spell b'abc'"):
        Vocabulary((b"ab", b"bc"), frozenset(), frozenset(), {}).spelling(b"abc")
    with pytest.raises(InputError, match="cannot spell byte 0x78 at offset 1"):
        vocabulary.spelling(b"ax")


def test_an_array_of_ids_is_read_as_a_list_is() -> None:
    tok = small.tokenizer()
    ids = tok.encode("it's the thing", False).ids
    for boundary in ("none", "exact"):
        (other,), _ = read_prompts(tok, ids.tolist(), boundary, 0)
        for prompt in (ids, jnp.asarray(ids)):
            (one,), _ = read_prompts(tok, prompt, boundary, 0)
            assert (one.ids, one.text) == (other.ids, other.text)
            assert all(type(id) is int for id in one.ids)
    for wrong in (-1, 1 << 20):
        for prompt in (np.array([1, wrong]), [1, wrong]):
            with pytest.raises(InputError, match=f"id {wrong} at index 1"):
                read_prompts(tok, prompt, "none", 0)
    for shape in ([np.array(3)], np.zeros((1, 2, 3), int), [np.zeros((2, 2), int)]):
        with pytest.raises(InputError, match="neither text, bytes nor a list of ids"):
            read_prompts(tok, shape, "none", None)
