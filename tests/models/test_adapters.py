"""Other people's models: one of Flax NNX and one of Linen, with a cache of their own and without, behave as Models."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from toktier_jax import models
from toktier_jax.errors import InputError

from .forward import CAPACITY, Row, distance, extend, whole

VOCAB, WIDTH = 61, 16
TEXT = [3, 41, 7, 7, 0, 59, 18, 22]


class NNXModel(nnx.Module):
    """Without a cache, as in many a training script: flax's own attention layer and learned positions."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(VOCAB, WIDTH, rngs=rngs)
        self.places = nnx.Embed(CAPACITY, WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, WIDTH, decode=False, rngs=rngs)
        self.out = nnx.Linear(WIDTH, VOCAB, rngs=rngs)

    def __call__(self, tokens: jax.Array, positions: jax.Array, mask: jax.Array) -> jax.Array:
        x = self.embed(tokens) + self.places(positions)
        return self.out(x + self.attention(x, mask=mask[:, None]))


class LinenModel(linen.Module):
    """With a cache, which it takes and returns."""

    @linen.compact
    def __call__(
        self, tokens: jax.Array, positions: jax.Array, layers: dict, mask: jax.Array, slots: jax.Array
    ) -> tuple[jax.Array, dict]:
        x = linen.Embed(VOCAB, WIDTH)(tokens) + linen.Embed(CAPACITY, WIDTH)(jnp.maximum(positions, 0))
        q, k, v = (linen.Dense(WIDTH, name=name)(x) for name in "qkv")
        layers = {
            "keys": models.write_slots(layers["keys"], slots, k),
            "values": models.write_slots(layers["values"], slots, v),
        }
        scores = jnp.where(mask, jnp.einsum("btd,bsd->bts", q, layers["keys"]), -1e9)
        x = x + jnp.einsum("bts,bsd->btd", jax.nn.softmax(scores), layers["values"])
        return linen.Dense(VOCAB, name="out")(x), layers


def empty(batch: int, length: int) -> dict:
    return {name: jnp.zeros((batch, length, WIDTH)) for name in ("keys", "values")}


@functools.cache
def nnx_module() -> NNXModel:
    return NNXModel(nnx.Rngs(0))


@functools.cache
def nnx_model() -> models.CausalLM:
    return models.from_nnx(nnx_module(), VOCAB, call=lambda module, *inputs: module(*inputs))


@functools.cache
def linen_model() -> models.CausalLM:
    module, token = LinenModel(), jnp.zeros((1, 1), jnp.int32)
    variables = module.init(jax.random.key(0), token, token, empty(1, 2), jnp.ones((1, 1, 2), bool), token)
    return models.from_linen(module, variables, VOCAB, call=lambda module, *inputs: module(*inputs), init_layers=empty)


@pytest.fixture(scope="module", params=[nnx_model, linen_model])
def lm(request: pytest.FixtureRequest) -> models.CausalLM:
    return request.param()


def test_an_adapted_model_satisfies_the_protocol(lm: models.CausalLM) -> None:
    assert isinstance(lm, models.Model)


def test_without_a_cache_the_logits_are_those_of_the_module() -> None:
    places = jnp.arange(len(TEXT), dtype=jnp.int32)[None]
    direct = nnx_module()(jnp.asarray([TEXT], jnp.int32), places, jnp.tril(jnp.ones((1, len(TEXT), len(TEXT)), bool)))
    assert distance(whole(nnx_model(), TEXT), direct[0]) < 1e-5


def test_decoding_trees_and_gather(lm: models.CausalLM) -> None:
    _, cache = extend(lm, lm.init_cache(2, CAPACITY), (0, 0), (Row(TEXT[:5]), Row(TEXT[:2])))
    logits, cache = extend(lm, cache, (5, 2), (Row(TEXT[5:6]), Row(TEXT[2:3])), new=1)
    assert distance(logits[0, 0], whole(lm, TEXT[:6])[-1]) < 1e-5
    assert distance(logits[1, 0], whole(lm, TEXT[:3])[-1]) < 1e-5
    logits, cache = extend(lm, cache, (6, 3), (Row([9, 10, 11], [-1, -1, 1]), Row([12, 13], [-1, 0])))
    assert distance(logits[0, 2], whole(lm, [*TEXT[:6], 10, 11])[-1]) < 1e-5
    rows = jnp.asarray([[0, 1, 2, 3, 4, 5, 7, 8], [0, 1, -1, -1, -1, -1, -1, -1]], jnp.int32)
    cache = lm.gather(cache, rows)
    logits, _ = extend(lm, cache, (8, 2), (Row([15]), Row([16])), new=1)
    assert distance(logits[0, 0], whole(lm, [*TEXT[:6], 10, 11, 15])[-1]) < 1e-5
    assert distance(logits[1, 0], whole(lm, [*TEXT[:2], 16])[-1]) < 1e-5


def test_a_wrong_vocabulary_size_is_named() -> None:
    lm = models.from_nnx(nnx_module(), 60, call=lambda module, *inputs: module(*inputs))
    with pytest.raises(InputError, match=r"logits \[1, 1, 61\] where \[1, 1, vocab_size = 60\] was expected"):
        lm.apply(
            lm.params, *jnp.zeros((2, 1, 1), jnp.int32), lm.init_cache(1, CAPACITY), jnp.ones((1, 1, CAPACITY), bool)
        )


def test_empty_slots_of_a_model_without_cache_stay_finite(lm: models.CausalLM) -> None:
    logits, _ = extend(lm, lm.init_cache(2, CAPACITY), (0, 0), (Row([5]), Row([])))
    assert np.isfinite(logits).all()
