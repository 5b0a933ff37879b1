"""The cache: decoding equals forwarding, trees equal separate texts, slots move, rows do not see each other."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from toktier_jax import models
from toktier_jax.errors import InputError

from .forward import CAPACITY, NEW, QUICK, Row, distance, extend, step, whole

ROPE, ROPE_NEAR = models.rope_frequencies(1e4, 8), models.rope_frequencies(1e3, 8)
BASE = {"vocab_size": 61, "width": 32, "heads": 4, "kv_heads": 2, "head_dim": 8, "hidden": 48, "context_length": 18}
CONFIGS = {
    "llama": models.DecoderConfig(**BASE, windows=(0, 0), rope=ROPE, rope_window=ROPE, norm_eps=1e-5, query_scale=0.4),
    "gemma": models.DecoderConfig(
        **BASE, windows=(3, 0), rope=ROPE, rope_window=ROPE_NEAR, norm_eps=1e-6, activation="gelu_tanh",
        qk_norm=True, post_norm=True, tied=True, embed_scale=5.6, query_scale=0.3,
    ),
    "gpt2": models.DecoderConfig(
        **{**BASE, "kv_heads": 4}, windows=(0, 0), rope=(), rope_window=(), norm_eps=1e-5, norm="layer", gated=False,
        activation="gelu_tanh", qkv_bias=True, out_bias=True, mlp_bias=True, tied=True, query_scale=0.35,
    ),
}  # fmt: skip
TEXT = [3, 41, 7, 7, 0, 59, 18, 22, 5, 11, 36, 2]
CLOSE = 2e-5


@pytest.fixture(scope="module", params=CONFIGS)
def lm(request: pytest.FixtureRequest) -> models.CausalLM:
    return models.random_lm(CONFIGS[request.param], seed=1)


def prefill(lm: models.CausalLM, *texts: list[int]) -> tuple[np.ndarray, models.Cache]:
    return extend(lm, lm.init_cache(2, CAPACITY), (0, 0), [Row(text) for text in texts])


def test_decoding_with_the_cache_equals_forwarding_the_whole(lm: models.CausalLM) -> None:
    _, cache = prefill(lm, TEXT[:5], TEXT[:2])
    for t in range(5, len(TEXT)):
        logits, cache = extend(lm, cache, (t, t - 3), (Row([TEXT[t]]), Row([TEXT[t - 3]])), new=1)
        assert distance(logits[0, 0], whole(lm, TEXT)[t]) < CLOSE
        assert distance(logits[1, 0], whole(lm, TEXT)[t - 3]) < CLOSE
    assert cache.length.tolist() == [len(TEXT), len(TEXT) - 3]


def test_a_tree_in_one_call_equals_its_paths_one_by_one(lm: models.CausalLM) -> None:
    _, cache = prefill(lm, TEXT[:6], TEXT[:1])
    nodes, parents = [9, 10, 11, 12, 13, 14], [-1, -1, 0, 0, 2, 1]
    logits, _ = extend(lm, cache, (6, 1), (Row(nodes, parents), Row(nodes[:2], parents[:2])))
    for m in range(len(nodes)):
        path, at = [], m
        while at >= 0:
            path.insert(0, nodes[at])
            at = parents[at]
        assert distance(logits[0, m], whole(lm, TEXT[:6] + path)[-1]) < CLOSE
    assert distance(logits[1, 1], whole(lm, [TEXT[0], nodes[1]])[-1]) < CLOSE


def test_gather_accepts_a_path_and_rolls_back(lm: models.CausalLM) -> None:
    _, cache = prefill(lm, TEXT[:6], TEXT[:4])
    _, cache = extend(lm, cache, (6, 4), (Row([9, 10, 11], [-1, -1, 1]), Row([12, 13, 14], [-1, 0, -1])))
    # Row 0 keeps its six tokens and the path 10, 11; row 1 goes back to its first two tokens.
    rows = jnp.asarray([[0, 1, 2, 3, 4, 5, 7, 8], [0, 1, -1, -1, -1, -1, -1, -1]], jnp.int32)
    cache = jax.jit(lm.gather)(cache, rows)
    assert cache.length.tolist() == [8, 2]
    logits, _ = extend(lm, cache, (8, 2), (Row([15]), Row([16])), new=1)
    assert distance(logits[0, 0], whole(lm, [*TEXT[:6], 10, 11, 15])[-1]) < CLOSE
    assert distance(logits[1, 0], whole(lm, [*TEXT[:2], 16])[-1]) < CLOSE


def test_gather_reorders(lm: models.CausalLM) -> None:
    """Slots hold tokens with their positions: in any order they give the same answer."""
    _, cache = prefill(lm, TEXT[:6], TEXT[:6])
    cache = lm.gather(cache, jnp.asarray([[5, 3, 0, 4, 2, 1], [0, 1, 2, 5, 4, 3]], jnp.int32))
    logits, _ = extend(lm, cache, (6, 6), (Row([TEXT[6]]), Row([TEXT[6]])), new=1)
    for row in range(2):
        assert distance(logits[row, 0], whole(lm, TEXT[:7])[-1]) < CLOSE


def test_rows_of_different_length_equal_single_rows(lm: models.CausalLM) -> None:
    logits, cache = prefill(lm, TEXT, TEXT[3:8])
    assert np.isfinite(logits).all()
    assert distance(logits[0, :12], whole(lm, TEXT)) < CLOSE
    assert distance(logits[1, :5], whole(lm, TEXT[3:8])) < CLOSE
    logits, cache = extend(lm, cache, (12, 5), (Row([1, 2]), Row([])))  # one row goes on, the other waits
    assert cache.length.tolist() == [14, 5]
    assert distance(logits[0, :2], whole(lm, [*TEXT, 1, 2])[-2:]) < CLOSE
    logits, cache = extend(lm, cache, (14, 5), (Row([]), Row([4])), new=1)
    assert cache.length.tolist() == [14, 6]
    assert distance(logits[1, 0], whole(lm, [*TEXT[3:8], 4])[-1]) < CLOSE


def test_causal_inputs_are_the_positions_and_mask_of_ordinary_text() -> None:
    start, lengths = jnp.asarray([0, 3], jnp.int32), jnp.asarray([2, 1], jnp.int32)
    positions, mask = models.causal_inputs(start, lengths, 2, 6)
    assert positions.tolist() == [[0, 1], [3, -1]]
    seen = [[[slot for slot in range(6) if mask[b, t, slot]] for t in range(2)] for b in range(2)]
    assert seen == [[[0], [0, 1]], [[0, 1, 2, 3], [0, 1, 2, 3, 4]]]


def test_padding_may_stand_on_the_left(lm: models.CausalLM) -> None:
    pads = np.asarray([NEW - 3, NEW - 12])[:, None]
    positions = np.maximum(np.arange(NEW)[None, :] - pads, -1).astype(np.int32)
    tokens = np.asarray([[0] * (NEW - 3) + TEXT[:3], [0] * (NEW - 12) + TEXT], np.int32)
    mask = np.arange(CAPACITY) <= positions[:, :, None]
    logits, cache = step(lm)(lm.params, *map(jnp.asarray, (tokens, positions)), lm.init_cache(2, CAPACITY), mask)
    assert cache.length.tolist() == [3, 12]
    assert distance(logits[0, NEW - 3 :], whole(lm, TEXT[:3])) < CLOSE
    assert distance(logits[1, NEW - 12 :], whole(lm, TEXT)) < CLOSE


def test_while_loop_equals_stepping_and_is_traced_once(lm: models.CausalLM) -> None:
    traces = 0

    def one(params, token, cache):
        nonlocal traces
        traces += 1
        positions, mask = models.causal_inputs(cache.length, jnp.ones_like(cache.length), 1, cache.capacity)
        logits, cache = lm.apply(params, token, positions, cache, mask)
        return jnp.argmax(logits[:, 0], axis=-1).astype(jnp.int32)[:, None], cache

    @functools.partial(jax.jit, compiler_options=QUICK)
    def loop(params, token, cache):
        def body(carry):
            i, token, cache, out = carry
            token, cache = one(params, token, cache)
            return i + 1, token, cache, out.at[:, i].set(token[:, 0])

        state = (jnp.int32(0), token, cache, jnp.zeros((2, 6), jnp.int32))
        return lax.while_loop(lambda carry: carry[0] < 6, body, state)[3]

    texts = [TEXT[:5], TEXT[:3]]
    token = jnp.asarray([[8], [9]], jnp.int32)
    out = loop(lm.params, token, prefill(lm, *texts)[1])
    loop(lm.params, token, prefill(lm, TEXT[:2], TEXT[:7])[1])
    assert traces == 1
    for row in range(2):
        text = [*texts[row], int(token[row, 0])]
        for i in range(6):
            text.append(int(np.argmax(whole(lm, text)[-1])))
            assert text[-1] == out[row, i]


def test_a_step_takes_the_donated_cache() -> None:
    lm = models.random_lm(CONFIGS["llama"])
    before = lm.init_cache(1, 8)
    positions, mask = models.causal_inputs(before.length, jnp.ones((1,), jnp.int32), 1, 8)
    lm.step(lm.params, jnp.zeros((1, 1), jnp.int32), positions, before, mask)
    assert before.layers.keys[0].is_deleted()


def test_a_window_layer_masks_by_position_and_not_by_slot() -> None:
    """With window 3, a branch sees the same past whatever stands between in the cache."""
    lm = models.random_lm(CONFIGS["gemma"], seed=2)
    _, cache = prefill(lm, TEXT[:4], [])
    siblings = Row([9] * 6 + [10], [-1] * 7)  # six between the text and the node that is asked for
    logits, _ = extend(lm, cache, (4, 0), (siblings, Row([])))
    assert distance(logits[0, 6], whole(lm, [*TEXT[:4], 10])[-1]) < CLOSE
    # And it is a window: what lies before it changes nothing in a model whose only layer has one.
    one = models.random_lm(models.DecoderConfig(**{**vars(CONFIGS["gemma"]), "windows": (3,)}))
    assert distance(whole(one, [1, *TEXT[1:6]])[-1], whole(one, [2, *TEXT[1:6]])[-1]) < CLOSE
    assert distance(whole(one, [*TEXT[:3], 1, 5, 6])[-1], whole(one, [*TEXT[:3], 2, 5, 6])[-1]) > CLOSE


def test_what_does_not_fit_the_cache_is_nan_and_the_rest_is_right(lm: models.CausalLM) -> None:
    _, cache = prefill(lm, [*TEXT, *TEXT[:3]], [])
    positions, mask = models.causal_inputs(cache.length, jnp.asarray([11, 0], jnp.int32), NEW, CAPACITY)
    positions = jnp.minimum(positions, 17)  # of 18 learned ones
    logits, cache = step(lm)(lm.params, jnp.zeros((2, NEW), jnp.int32), positions, cache, mask)
    assert np.isfinite(logits[0, :9]).all()
    assert np.isnan(logits[0, 9:11]).all()
    assert np.isfinite(logits[1]).all()
    assert cache.length.tolist() == [26, 0]


@pytest.mark.parametrize("token", [-1, 61])
def test_an_id_out_of_range_is_nan_in_its_row_alone(lm: models.CausalLM, token: int) -> None:
    logits, _ = prefill(lm, [3, token, 4], TEXT)
    assert np.isnan(logits[0, 1:3]).all()
    assert distance(logits[1, :12], whole(lm, TEXT)) < CLOSE


def test_a_learned_position_out_of_range_is_nan(lm: models.CausalLM) -> None:
    learned = lm.config.norm == "layer"
    for new, past in ((5, False), (6, True)):  # the last position is 17, of 18, or 18
        _, cache = prefill(lm, [*TEXT, 5], [])
        logits, _ = extend(lm, cache, (13, 0), (Row(TEXT[:new]), Row([])))
        assert np.isnan(logits[0, new - 1]).any() == (learned and past)


def test_random_models_are_the_same_for_a_seed_and_satisfy_the_protocol(lm: models.CausalLM) -> None:
    again = models.random_lm(lm.config, seed=1)
    jax.tree.map(np.testing.assert_array_equal, lm.params, again.params)
    assert isinstance(lm, models.Model)
    assert (lm.vocab_size, lm.context_length) == (61, 18)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": jnp.ones((1, 1, 7), bool)}, r"mask is bool \[1, 1, 7\]; expected bool \[1, 1, 8\]"),
        ({"mask": jnp.ones((1, 1, 8), jnp.int32)}, "mask is int32"),
        ({"positions": jnp.zeros((1, 2), jnp.int32)}, r"positions \[1, 2\]"),
        ({"tokens": jnp.zeros((1, 1), jnp.float32)}, "tokens are float32; expected int32"),
        ({"rows": 2}, "tokens have 1 rows and the cache 2"),
    ],
)
def test_shapes_that_do_not_fit_are_named(change: dict, message: str) -> None:
    lm = models.random_lm(CONFIGS["llama"])
    inputs = {"tokens": jnp.zeros((1, 1), jnp.int32), "positions": jnp.zeros((1, 1), jnp.int32)}
    inputs |= {"mask": jnp.ones((1, 1, 8), bool), "rows": 1} | change
    cache = lm.init_cache(inputs["rows"], 8)
    with pytest.raises(InputError, match=message):
        lm.apply(lm.params, inputs["tokens"], inputs["positions"], cache, inputs["mask"])


def test_gather_of_too_many_rows_and_an_empty_cache_are_errors() -> None:
    lm = models.random_lm(CONFIGS["llama"])
    with pytest.raises(InputError, match=r"rows has shape \[1, 9\]"):
        lm.gather(lm.init_cache(1, 8), jnp.zeros((1, 9), jnp.int32))
    with pytest.raises(InputError, match="both must be at least 1"):
        lm.init_cache(1, 0)
