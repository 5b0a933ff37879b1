"""One decoder in Flax NNX for Llama, SmolLM2, Qwen2, Qwen3, Gemma 3 and GPT-2. It knows nothing of files.

Every layer has key and value arrays of its own: a stacked cache scanned through the layers would be copied at every
step of a decoding loop. B rows, T new tokens, S slots, K key/value heads, G query heads for each, H head size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int32

from toktier_jax.models.config import DecoderConfig
from toktier_jax.models.model import CausalLM, gather_slots, write_slots

Init = Callable[[tuple[int, ...], float], Array]
"""(shape, scale) -> a matrix in the model's dtype. A function instead of nnx.Rngs: tracing 200 draws takes seconds."""


class KV(NamedTuple):
    """What the layers remember: keys and values [B, K, S, H] (heads first: attention then copies nothing) a layer,
    and each slot's position, int32 [B, S]."""

    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    positions: Array


class Dense(nnx.Module):
    """x [..., in] -> [..., out]. The weight is [out, in], as files have it and as small batches on a CPU like it."""

    def __init__(self, inputs: int, outputs: int, bias: bool, init: Init) -> None:
        self.weight = nnx.Param(init((outputs, inputs), inputs**-0.5))
        self.bias = nnx.Param(init((outputs,), 0.0)) if bias else None

    def __call__(self, x: Array) -> Array:
        y = jnp.einsum("...i,oi->...o", x, self.weight[...])
        return y if self.bias is None else y + jnp.broadcast_to(self.bias[...], y.shape)


class Norm(nnx.Module):
    """RMSNorm, or LayerNorm with a bias, over the last axis. Weights and arithmetic are float32 always."""

    def __init__(self, width: int, config: DecoderConfig) -> None:
        self.eps = config.norm_eps
        self.scale = nnx.Param(jnp.ones((width,), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((width,), jnp.float32)) if config.norm == "layer" else None

    def __call__(self, x: Array) -> Array:
        y = x.astype(jnp.float32)
        if self.bias is not None:
            y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + self.eps)
        y = y * jnp.broadcast_to(self.scale[...], y.shape)
        if self.bias is not None:
            y = y + jnp.broadcast_to(self.bias[...], y.shape)
        return y.astype(x.dtype)


def rotate(x: Float[Array, "b t heads h"], angles: Float[Array, "b t half"]) -> Array:
    """Rotary position embedding in the half-split layout: dimension i turns with i + H / 2."""
    cos, sin = jnp.cos(angles)[:, :, None, :], jnp.sin(angles)[:, :, None, :]
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


class Attention(nnx.Module):
    """Grouped-query attention over the cache's slots, the new ones included."""

    def __init__(self, config: DecoderConfig, init: Init) -> None:
        self.config = config
        size, kv_size = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q = Dense(config.width, size, config.qkv_bias, init)
        self.k = Dense(config.width, kv_size, config.qkv_bias, init)
        self.v = Dense(config.width, kv_size, config.qkv_bias, init)
        self.out = Dense(size, config.width, config.out_bias, init)
        self.q_norm = Norm(config.head_dim, config) if config.qk_norm else None
        self.k_norm = Norm(config.head_dim, config) if config.qk_norm else None

    def __call__(
        self,
        x: Float[Array, "b t width"],
        angles: Float[Array, "b t half"] | None,
        keys: Float[Array, "b k s h"],
        values: Float[Array, "b k s h"],
        mask: Bool[Array, "b t s"],
        slots: Int32[Array, "b t"],
    ) -> tuple[Array, Array, Array]:
        c = self.config
        batch, new, _ = x.shape
        q = self.q(x).reshape(batch, new, c.heads, c.head_dim)
        k = self.k(x).reshape(batch, new, c.kv_heads, c.head_dim)
        v = self.v(x).reshape(batch, new, c.kv_heads, c.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if angles is not None:
            q, k = rotate(q, angles), rotate(k, angles)
        rows = jnp.arange(batch, dtype=jnp.int32)[:, None]
        keys = keys.at[rows, :, slots].set(k, mode="drop")
        values = values.at[rows, :, slots].set(v, mode="drop")
        q = q.reshape(batch, new, c.kv_heads, c.heads // c.kv_heads, c.head_dim)
        scores = jnp.einsum("btkgh,bksh->bkgts", q, keys, preferred_element_type=jnp.float32) * c.query_scale
        # A finite floor: a row of padding, which may see nothing, must not turn into NaN.
        scores = jnp.where(mask[:, None, None, :, :], scores, jnp.finfo(jnp.float32).min)
        weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype)
        mixed = jnp.einsum("bkgts,bksh->btkgh", weights, values)
        return self.out(mixed.reshape(batch, new, c.heads * c.head_dim)), keys, values


class MLP(nnx.Module):
    """down(act(gate(x)) * up(x)), or down(act(up(x))) where there is no gate."""

    def __init__(self, config: DecoderConfig, init: Init) -> None:
        self.activation = config.activation
        self.gate = Dense(config.width, config.hidden, config.mlp_bias, init) if config.gated else None
        self.up = Dense(config.width, config.hidden, config.mlp_bias, init)
        self.down = Dense(config.hidden, config.width, config.mlp_bias, init)

    def __call__(self, x: Array) -> Array:
        act = jax.nn.silu if self.activation == "silu" else jax.nn.gelu  # gelu's default is the tanh form
        return self.down(act(self.up(x)) if self.gate is None else act(self.gate(x)) * self.up(x))


class Block(nnx.Module):
    """One layer: attention and MLP, each on a normalized input and added to the stream."""

    def __init__(self, config: DecoderConfig, init: Init) -> None:
        self.attn_norm = Norm(config.width, config)
        self.attn = Attention(config, init)
        self.attn_post_norm = Norm(config.width, config) if config.post_norm else None
        self.mlp_norm = Norm(config.width, config)
        self.mlp = MLP(config, init)
        self.mlp_post_norm = Norm(config.width, config) if config.post_norm else None

    def __call__(
        self, x: Array, angles: Array | None, keys: Array, values: Array, mask: Array, slots: Array
    ) -> tuple[Array, Array, Array]:
        y, keys, values = self.attn(self.attn_norm(x), angles, keys, values, mask, slots)
        x = x + (y if self.attn_post_norm is None else self.attn_post_norm(y))
        y = self.mlp(self.mlp_norm(x))
        return x + (y if self.mlp_post_norm is None else self.mlp_post_norm(y)), keys, values


class Decoder(nnx.Module):
    """Embedding, blocks, norm, output layer. An id or learned position out of range makes the logits of its row NaN."""

    def __init__(self, config: DecoderConfig, init: Init) -> None:
        self.config = config
        embed_scale = 0.02 if config.embed_scale == 1.0 else 1.0 / config.embed_scale
        self.embed = nnx.Param(init((config.vocab_size, config.width), embed_scale))
        self.position_embed = None if config.rope else nnx.Param(init((config.context_length, config.width), 0.02))
        self.blocks = nnx.List([Block(config, init) for _ in config.windows])
        self.norm = Norm(config.width, config)
        self.head = None if config.tied else Dense(config.width, config.vocab_size, False, init)

    def __call__(
        self,
        tokens: Int32[Array, "b t"],
        positions: Int32[Array, "b t"],
        kv: KV,
        mask: Array,
        slots: Int32[Array, "b t"],
        at: Int32[Array, "b k"] | None = None,
    ) -> tuple[Float[Array, "b t vocab"], KV]:
        c = self.config
        places = jnp.maximum(positions, 0)
        ids = jnp.where(tokens < 0, c.vocab_size, tokens)  # a negative index would read the last rows
        x = jnp.take(self.embed[...], jnp.where(positions < 0, 0, ids), axis=0, mode="fill")
        x = x * jnp.asarray(c.embed_scale, x.dtype)
        if self.position_embed is not None:
            x = x + jnp.take(self.position_embed[...], places, axis=0, mode="fill")
        slot_positions = write_slots(kv.positions, slots, places)
        masks, angles = {}, {}
        for window in set(c.windows):
            near = positions[:, :, None] - slot_positions[:, None, :] < window
            masks[window] = mask & near if window else mask
            frequencies = c.rope_window if window else c.rope
            angles[window] = places[:, :, None].astype(jnp.float32) * jnp.asarray(frequencies)[None, None, :]
        keys, values = list(kv.keys), list(kv.values)
        for i, (block, window) in enumerate(zip(self.blocks, c.windows, strict=True)):
            turn = angles[window] if c.rope else None
            x, keys[i], values[i] = block(x, turn, keys[i], values[i], masks[window], slots)
        if at is not None:  # only these tokens' logits are wanted: the output layer is a large part of a small model
            x = jnp.take_along_axis(x, at[:, :, None], axis=1)
        head = self.embed if self.head is None else self.head.weight
        logits = jnp.einsum("btd,vd->btv", self.norm(x), head[...], preferred_element_type=jnp.float32)
        return logits, KV(tuple(keys), tuple(values), slot_positions)


def causal_lm(config: DecoderConfig, dtype: jnp.dtype, graphdef: nnx.GraphDef, params: nnx.State) -> CausalLM:
    """The Decoder split as (graphdef, params), as a Model."""

    def forward(params, tokens, positions, layers, mask, slots, at=None):
        return nnx.merge(graphdef, params)(tokens, positions, layers, mask, slots, at)

    def init_layers(batch: int, length: int) -> KV:
        shape = (batch, config.kv_heads, length, config.head_dim)
        keys, values = (tuple(jnp.zeros(shape, dtype) for _ in config.windows) for _ in range(2))
        return KV(keys, values, jnp.zeros((batch, length), jnp.int32))

    def gather_layers(layers: KV, rows: Array) -> KV:
        keys = tuple(gather_slots(leaf, rows, axis=2) for leaf in layers.keys)
        values = tuple(gather_slots(leaf, rows, axis=2) for leaf in layers.values)
        return KV(keys, values, gather_slots(layers.positions, rows))

    return CausalLM(
        config.vocab_size, params, forward, init_layers, gather_layers, config.context_length, config, selects=True
    )


def random_lm(config: DecoderConfig, seed: int = 0, dtype: str = "float32") -> CausalLM:
    """A decoder with random weights, the same for a seed everywhere: for tests and for measuring speed."""
    kind, random = jnp.dtype(dtype), np.random.default_rng(seed)

    def init(shape: tuple[int, ...], scale: float) -> Array:
        return jnp.asarray(scale * random.standard_normal(shape, np.float32), kind)

    graphdef, params = nnx.split(Decoder(config, init))
    return causal_lm(config, kind, graphdef, params)
