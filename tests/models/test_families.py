"""A tiny random checkpoint of every family gives the logits of `transformers`; GGUF gives what safetensors give."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from toktier_jax import models

from . import tiny, tiny_gguf
from .forward import distance, whole

GOLDEN = np.load(tiny.GOLDEN)


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_safetensors_give_the_recorded_logits_of_transformers(name: str, tmp_path: Path) -> None:
    lm = models.load(tiny.write(name, tmp_path))
    assert distance(whole(lm, tiny.IDS), GOLDEN[name]) < 1e-5


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_transformers_gives_the_recorded_logits(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra `torch` is not installed")
    pytest.importorskip("transformers", reason="transformers is the judge of logits")
    assert distance(tiny.transformers_logits(tiny.write(name, tmp_path)), GOLDEN[name]) < 1e-5


# GGUF says nothing of Qwen2's window and of Gemma's query_pre_attn_scalar.
@pytest.mark.parametrize("name", [name for name in tiny.CONFIGS if name not in ("qwen2-window", "gemma3-pattern")])
def test_gguf_gives_the_same_model(name: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the extra `gguf` is not installed")
    lm = models.load(tiny_gguf.write(name, tmp_path / "model.gguf"))
    expected = models.load(tiny.write(name, tmp_path))
    jax.tree.map(np.testing.assert_array_equal, lm.params, expected.params)
    config, other = dataclasses.asdict(lm.config), dataclasses.asdict(expected.config)
    for key in ("rope", "norm_eps", "query_scale"):
        np.testing.assert_allclose(config.pop(key), other.pop(key), rtol=1e-6)
    if not any(lm.config.windows):
        del config["rope_window"], other["rope_window"]
    assert config == other


def test_bfloat16_is_near_and_gives_float32_logits(tmp_path: Path) -> None:
    lm = models.load(tiny.write("gemma3", tmp_path), dtype="bfloat16")
    logits = whole(lm, tiny.IDS)
    assert logits.dtype == np.float32
    assert 0 < distance(logits, GOLDEN["gemma3"]) < 0.1
