"""The two lowerings give the same tokens: "walk", which a CPU runs, and "arrays", which a GPU or TPU runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from tests import artifacts, corpus
from tests.artifacts import Artifact
from toktier_jax.verify.campaign import DeviceSubject, Report, compare
from toktier_jax.verify.oracle import oracle_for

from .conftest import Subject, first

CAPACITY = 16_384


@functools.cache
def encoder(lowering: str) -> Callable[..., Any]:
    import toktier_jax as tt

    def run(program: Any, data: jax.Array, length: jax.Array) -> Any:
        return tt.ops.encode_bytes(program, data, length, lowering=lowering)

    return jax.jit(run)


def tokens(program: Any, text: str, lowering: str) -> tuple[list[Any], int]:
    """(id, first byte, end byte) of each token, and the status."""
    data = np.frombuffer(text.encode(), np.uint8)
    assert len(data) <= CAPACITY
    out = encoder(lowering)(program, np.pad(data, (0, CAPACITY - len(data))), np.int32(len(data)))
    count = int(out.count)
    return np.stack([out.ids, out.byte_starts, out.byte_ends], 1)[:count].tolist(), int(out.status)


def both(program: Any, texts: list[str]) -> None:
    for text in texts:
        assert tokens(program, text, "arrays") == tokens(program, text, "walk"), text[:60]


def small_texts(contents: list[str]) -> list[str]:
    stress = [make(size) for make in corpus.STRESS.values() for size in (40, 3000)]
    return [*stress, corpus.mixed(5000, 3), corpus.chat(contents, 5000, 4), "", "a"]


@pytest.mark.parametrize("name", artifacts.CHOSEN)
def test_chosen(name: str, artifact: Callable[[str], Artifact], device: None) -> None:
    tokenizer = artifact(name).tokenizer
    both(tokenizer.program, small_texts([token.content for token in tokenizer.spec.added_tokens][:9]))


@pytest.mark.slow  # texts of many lengths
@pytest.mark.parametrize("name", artifacts.CHOSEN)
def test_arrays_cut_the_same_pieces(name: str, artifact: Callable[[str], Artifact], device: None, scale: float) -> None:
    """Against the reference, as tests/conformance/test_pieces.py does for the other lowering."""
    tested = Subject(artifact(name))
    arrays, report = DeviceSubject(tested.artifact.tokenizer, "arrays"), Report()
    oracle = oracle_for(tested.artifact.reference)
    for text in first(round(150 * scale), tested.texts(1.0)):
        found = [each for each in compare(arrays, oracle, text, report) if each.level == "pieces"]
        assert not found, found[0]


@pytest.mark.slow
def test_all(subject: Subject, device: None) -> None:
    tokenizer = subject.artifact.tokenizer
    both(tokenizer.program, small_texts([token.content for token in tokenizer.spec.added_tokens][:9]))
