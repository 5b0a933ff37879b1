"""The shape of a decoder, as one hashable value, and the frequencies of rotary position embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from toktier_jax.errors import SpecError, UnsupportedError


@dataclass(frozen=True)
class DecoderConfig:
    """Llama, SmolLM2, Qwen2, Qwen3, Gemma 3 and GPT-2 are all points of this space (see decoder.py).

    windows         one entry a layer: 0 sees everything before, w > 0 only the positions p - w < q <= p
    rope            inverse frequencies [head_dim / 2] of the layers that see everything; empty: learned positions
    rope_window     the same for the window layers
    post_norm       Gemma 3: a norm after attention and after the MLP too, before each is added
    query_scale     attention scores are multiplied by it
    """

    vocab_size: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    context_length: int
    windows: tuple[int, ...]
    rope: tuple[float, ...]
    rope_window: tuple[float, ...]
    norm_eps: float
    norm: Literal["rms", "layer"] = "rms"
    activation: Literal["silu", "gelu_tanh"] = "silu"
    gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    post_norm: bool = False
    tied: bool = False
    embed_scale: float = 1.0
    query_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("vocab_size", "width", "heads", "kv_heads", "head_dim", "hidden", "context_length"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise SpecError(f"model configuration: {name} is {value!r}; expected a whole number of at least 1")
        if not self.windows:
            raise SpecError("model configuration: the model has no layers")
        if self.heads % self.kv_heads:
            raise SpecError(
                f"model configuration: {self.heads} attention heads cannot share {self.kv_heads} key/value heads"
            )
        for rope in (self.rope, self.rope_window):
            if rope and 2 * len(rope) != self.head_dim:
                raise SpecError(
                    f"model configuration: {len(rope)} rotary frequencies for heads of {self.head_dim}; expected half"
                )


def rope_frequencies(theta: float, head_dim: int, scaling: Mapping[str, Any] | None = None) -> tuple[float, ...]:
    """Inverse frequencies theta ** (-2 i / head_dim), scaled as `scaling` says (RoFormer, arXiv 2104.09864).

    `scaling` has the keys of config.json: rope_type "default", "linear" (factor) or "llama3" (Llama 3.1: long
    wavelengths are stretched, short ones kept, those between are blended). Raises UnsupportedError for other types.
    """
    scaling = scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if not isinstance(theta, float | int) or theta <= 0:
        raise SpecError(f"model configuration: rotary base {theta!r}; expected a positive number")
    if head_dim % 2:
        raise SpecError(f"model configuration: rotary embeddings need an even head size, not {head_dim}")
    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if scaling.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedError("rotary embeddings over a part of the head (partial_rotary_factor) are not supported")
    try:
        if kind == "linear":
            frequencies = frequencies / scaling["factor"]
        elif kind == "llama3":
            factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
            turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
            kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
            frequencies = frequencies * (kept + (1.0 - kept) / factor)
        elif kind != "default":
            raise UnsupportedError(
                f"rotary scaling {kind!r} is not supported (default, linear and llama3 are): the model cannot be loaded"
            )
    except KeyError as error:
        raise SpecError(f"model configuration: rotary scaling {kind!r} without {error}") from None
    return tuple(float(f) for f in frequencies.astype(np.float32))
