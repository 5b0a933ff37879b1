"""Ids on the device path equal the reference's, for every tokenizer, and never come from the reference itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests import artifacts, corpus
from tests.artifacts import Artifact
from toktier_jax.errors import UnsupportedError
from toktier_jax.program.quickcheck import form_facts

from .conftest import Outcome, Subject


def test_ids(outcome: Outcome) -> None:
    assert outcome.differences.get("ids") is None, outcome.differences["ids"]
    assert outcome.report.ids > 5_000


def test_nothing_is_refused(outcome: Outcome, subject: Subject, scale: float) -> None:
    most = 0
    if subject.artifact.name == "smollm2":  # has no token for some bytes: the reference drops them and moves spans
        most = 2
    elif subject.artifact.name == "trained-bert":
        # Marks of Javanese and Adlam that BERT keeps could change places with others. How many texts hold one depends
        # on the tokens that they are made of, and training breaks ties now so, now so.
        normalize = subject.artifact.tokenizer.reference.normalizer.normalize_str
        kept = {mark for mark in map(chr, np.flatnonzero(form_facts("NFD").reorders)) if mark in normalize(mark)}
        most = sum(not kept.isdisjoint(text) for text in subject.texts(scale))
    assert outcome.report.refused <= most, outcome.report.reasons


@pytest.mark.parametrize("name", artifacts.CHOSEN)
def test_options(name: str, artifact: Callable[[str], Artifact], device: None) -> None:
    """Special tokens as text, no template, bytes, batches."""
    loaded = artifact(name)
    tokenizer, reference = loaded.tokenizer, loaded.reference
    texts = ["", "a", corpus.mixed(3000, 1), corpus.chat([t.content for t in tokenizer.spec.added_tokens][:9], 3000, 2)]
    rows = tokenizer.encode_batch(texts, route="xla")
    for row, text in enumerate(texts):
        got = tokenizer.encode(text, route="xla")
        assert got.route == "xla"
        assert got.fallback_reason is None
        assert np.array_equal(tokenizer.encode(text.encode(), route="xla").ids, got.ids)
        assert np.array_equal(np.asarray(rows.ids)[row, : len(got.ids)], got.ids)
        plain = tokenizer.encode(text, add_special_tokens=False, special="text", route="xla").ids.tolist()
        if loaded.kind == "tiktoken":
            assert got.ids.tolist() == reference.encode(text, allowed_special="all")
            assert plain == reference.encode_ordinary(text)
            continue
        assert got.ids.tolist() == reference.encode(text).ids
        reference.encode_special_tokens = True
        assert plain == reference.encode(text, add_special_tokens=False).ids
        reference.encode_special_tokens = False


@pytest.mark.parametrize("name", [*artifacts.CHOSEN, "minimax-m3", "trained-llama"])
def test_the_reference_is_that_of_the_file(name: str, artifact: Callable[[str], Artifact]) -> None:
    """The other tests compare with `tokenizer.reference`."""
    loaded = artifact(name)
    shown = loaded.tokenizer.reference
    same = shown is loaded.source if loaded.kind == "tiktoken" else shown.to_str() == loaded.reference.to_str()
    assert same


@pytest.mark.parametrize(("name", "model"), artifacts.ON_REFERENCE.items())
def test_what_runs_on_the_reference_says_why(name: str, model: str, artifact: Callable[[str], Artifact]) -> None:
    tokenizer = artifact(name).tokenizer
    encoding = tokenizer.encode("hello 日本")
    assert encoding.route == "reference"
    assert model in (encoding.fallback_reason or "")
    assert encoding.ids.tolist() == tokenizer.encode("hello 日本", route="reference").ids.tolist()
    with pytest.raises(UnsupportedError, match=model):
        tokenizer.encode("a", route="xla")
