"""From a Hugging Face config.json to a DecoderConfig. What a decoder cannot do is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toktier_jax.errors import SpecError, UnsupportedError
from toktier_jax.models.config import DecoderConfig, rope_frequencies
from toktier_jax.models.weights import need, need_count

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3_text", "gpt2")
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}


def huggingface_config(data: Mapping[str, Any], where: str) -> DecoderConfig:
    """The model's shape; `where` names the file in errors."""
    family = need(data, "model_type", where)
    if family not in FAMILIES:
        hint = " (only its text model is: save that alone)" if family == "gemma3" else ""
        raise UnsupportedError(
            f"{where}: model_type {family!r} is not supported{hint}; supported are {', '.join(FAMILIES)}. For your own "
            "Flax model see docs/models.md"
        )
    return (_gpt2 if family == "gpt2" else _llama)(data, where)


def _llama(data: Mapping[str, Any], where: str) -> DecoderConfig:
    """The shape of a Llama, Qwen2, Qwen3 or Gemma 3 model."""
    family = data["model_type"]
    gemma = family == "gemma3_text"
    _refuse(data, where, ("final_logit_softcapping", "attn_logit_softcapping", "use_bidirectional_attention"))
    layers = need_count(data, "num_hidden_layers", where)
    heads, width = need_count(data, "num_attention_heads", where), need_count(data, "hidden_size", where)
    default_head_dim: int = {"qwen3": 128, "gemma3_text": 256}.get(family) or width // heads
    head_dim: int = data.get("head_dim") or default_head_dim
    rope, rope_window = _rope(data, gemma, head_dim)
    bias = bool(data.get("attention_bias", False))
    query: float = data.get("query_pre_attn_scalar", 256) if gemma else head_dim
    return DecoderConfig(
        vocab_size=need(data, "vocab_size", where),
        width=width,
        heads=heads,
        kv_heads=data.get("num_key_value_heads") or (4 if gemma else heads),
        head_dim=head_dim,
        hidden=need(data, "intermediate_size", where),
        context_length=need(data, "max_position_embeddings", where),
        windows=_windows(data, family, layers, where),
        rope=rope,
        rope_window=rope_window,
        norm_eps=data.get("rms_norm_eps", 1e-6),
        activation=_activation(data, where, "hidden_activation" if gemma else "hidden_act"),
        qkv_bias=bias or family == "qwen2",
        out_bias=bias,
        mlp_bias=bool(data.get("mlp_bias", False)),
        qk_norm=gemma or family == "qwen3",
        post_norm=gemma,
        tied=bool(data.get("tie_word_embeddings", gemma)),
        embed_scale=width**0.5 if gemma else 1.0,
        query_scale=query**-0.5,
    )


def _gpt2(data: Mapping[str, Any], where: str) -> DecoderConfig:
    """The shape of a GPT-2 model."""
    _refuse(data, where, ("scale_attn_by_inverse_layer_idx", "add_cross_attention"))
    width, heads = need_count(data, "n_embd", where), need_count(data, "n_head", where)
    return DecoderConfig(
        vocab_size=need(data, "vocab_size", where),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        hidden=data.get("n_inner") or 4 * width,
        context_length=need(data, "n_positions", where),
        windows=(0,) * need_count(data, "n_layer", where),
        rope=(),
        rope_window=(),
        norm="layer",
        norm_eps=data.get("layer_norm_epsilon", 1e-5),
        activation=_activation(data, where, "activation_function"),
        gated=False,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        tied=bool(data.get("tie_word_embeddings", True)),
        query_scale=(width // heads) ** -0.5 if data.get("scale_attn_weights", True) else 1.0,
    )


def _windows(data: Mapping[str, Any], family: str, layers: int, where: str) -> tuple[int, ...]:
    """The window of each layer: `layer_types` if given, else the family's own rule."""
    window = data.get("sliding_window") or 0
    if family == "llama" or (family in ("qwen2", "qwen3") and not data.get("use_sliding_window", False)):
        return (0,) * layers
    types = data.get("layer_types")
    if types is None and family == "gemma3_text":
        pattern = data.get("sliding_window_pattern", 6)
        types = ["sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(layers)]
    elif types is None:
        first = data.get("max_window_layers", 28)
        types = ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
    if len(types) != layers or not set(types) <= {"sliding_attention", "full_attention"}:
        raise SpecError(
            f"{where}: layer_types must give 'full_attention' or 'sliding_attention' for each of {layers} layers, not "
            f"{types}"
        )
    if not window and "sliding_attention" in types:
        raise SpecError(f"{where}: layer_types has sliding layers and the key 'sliding_window' is missing")
    return tuple(window if kind == "sliding_attention" else 0 for kind in types)


def _rope(data: Mapping[str, Any], gemma: bool, head_dim: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Frequencies of the full and of the window layers, from the keys of transformers 5 or of earlier versions."""
    new = data.get("rope_parameters") or {}
    if gemma:
        full = new.get("full_attention") or {"rope_theta": data.get("rope_theta"), **(data.get("rope_scaling") or {})}
        near = new.get("sliding_attention") or {"rope_theta": data.get("rope_local_base_freq")}
        return tuple(
            rope_frequencies(part.get("rope_theta") or theta, head_dim, part)
            for part, theta in ((full, 1e6), (near, 1e4))
        )  # type: ignore[return-value]  # a generator of two
    old = {"rope_theta": data.get("rope_theta"), **(data.get("rope_scaling") or {})}
    part = new or old
    same = rope_frequencies(part.get("rope_theta") or 1e4, head_dim, part)
    return same, same


def _activation(data: Mapping[str, Any], where: str, key: str) -> Any:
    default = {"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh", "activation_function": "gelu_new"}[key]
    name = data.get(key) or default
    if name not in ACTIVATIONS:
        raise UnsupportedError(f"{where}: {key} {name!r} is not supported; supported are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _refuse(data: Mapping[str, Any], where: str, keys: tuple[str, ...]) -> None:
    for key in (*keys, "quantization_config"):
        if data.get(key):
            raise UnsupportedError(f"{where}: {key} = {data[key]} is not supported: the model cannot be loaded")
