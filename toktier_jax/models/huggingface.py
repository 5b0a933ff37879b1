"""Reads a Hugging Face model directory: config.json and safetensors, whole or in shards."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from toktier_jax.errors import SpecError, UnsupportedError
from toktier_jax.models.config import DecoderConfig, rope_frequencies
from toktier_jax.models.model import CausalLM
from toktier_jax.models.weights import build, need

ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}
FAMILIES = ("llama", "qwen2", "qwen3", "gemma3_text", "gpt2")

# Our names -> theirs, for the decoder as a whole and inside a block.
TOP = {"embed": "embed_tokens.weight", "norm": "norm", "head": "lm_head"}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.out": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}
GEMMA_BLOCK = BLOCK | {
    "attn_post_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}
GPT2_TOP = {"embed": "wte.weight", "position_embed": "wpe.weight", "norm": "ln_f", "head": "lm_head"}
GPT2_BLOCK = {
    "attn_norm": "ln_1",
    "attn.q": "attn.c_attn",
    "attn.k": "attn.c_attn",
    "attn.v": "attn.c_attn",
    "attn.out": "attn.c_proj",
    "mlp_norm": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}


def load_directory(path: Path, dtype: str) -> CausalLM:
    """A model from config.json and model.safetensors (or model.safetensors.index.json and its shards)."""
    data = _read_json(path / "config.json")
    family = need(data, "model_type", str(path / "config.json"))
    if family not in FAMILIES:
        hint = " (only its text model is: save that alone)" if family == "gemma3" else ""
        raise UnsupportedError(
            f"{path / 'config.json'}: model_type {family!r} is not supported{hint}; supported are "
            f"{', '.join(FAMILIES)}. For your own Flax model see docs/models.md"
        )
    config = (gpt2_config if family == "gpt2" else llama_config)(data, str(path / "config.json"))
    with SafetensorsWeights(path, family, config) as weights:
        return build(config, weights, dtype)


def llama_config(data: Mapping[str, Any], where: str) -> DecoderConfig:
    """The shape of a Llama, Qwen2, Qwen3 or Gemma 3 model from its config.json."""
    family = data["model_type"]
    gemma = family == "gemma3_text"
    _refuse(data, where, ("final_logit_softcapping", "attn_logit_softcapping", "use_bidirectional_attention"))
    layers = need(data, "num_hidden_layers", where)
    heads, width = need(data, "num_attention_heads", where), need(data, "hidden_size", where)
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


def gpt2_config(data: Mapping[str, Any], where: str) -> DecoderConfig:
    """The shape of a GPT-2 model from its config.json."""
    _refuse(data, where, ("scale_attn_by_inverse_layer_idx", "add_cross_attention"))
    width, heads = need(data, "n_embd", where), need(data, "n_head", where)
    return DecoderConfig(
        vocab_size=need(data, "vocab_size", where),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        hidden=data.get("n_inner") or 4 * width,
        context_length=need(data, "n_positions", where),
        windows=(0,) * need(data, "n_layer", where),
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


class SafetensorsWeights:
    """The arrays of a directory's safetensors files, by their Hugging Face names without the base model's prefix."""

    def __init__(self, path: Path, family: str, config: DecoderConfig) -> None:
        self.where = str(path)
        self._gemma, self._gpt2 = family == "gemma3_text", family == "gpt2"
        self._third = config.width
        self._open = contextlib.ExitStack()
        self._files: dict[str, tuple[Any, str]] = {}  # name without prefix -> open file, full name
        for file in _shards(path):
            handle = self._open.enter_context(_open_safetensors(file))
            for name in handle.keys():  # noqa: SIM118 - not a mapping
                short = name.removeprefix("transformer." if self._gpt2 else "model.")
                if not _ignored(short, config.tied):
                    self._files[short] = (handle, name)
        self.names = frozenset(self._files)

    def __enter__(self) -> SafetensorsWeights:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.clear()
        self._open.close()

    def source(self, path: str) -> str:
        top, block = (GPT2_TOP, GPT2_BLOCK) if self._gpt2 else (TOP, GEMMA_BLOCK if self._gemma else BLOCK)
        if path in top:
            return top[path]
        layer, (owner, kind) = "", path.rsplit(".", 1)
        if owner.startswith("blocks."):
            _, index, owner = owner.split(".", 2)
            layer = f"{'h' if self._gpt2 else 'layers'}.{index}."
        return f"{layer}{(block if layer else top)[owner]}.{'bias' if kind == 'bias' else 'weight'}"

    def read(self, path: str) -> np.ndarray:
        handle, name = self._files[self.source(path)]
        array = handle.get_tensor(name)
        if array.dtype.itemsize < 2:
            raise UnsupportedError(
                f"{self.where}: {name} is stored as {array.dtype}; float32, float16 and bfloat16 are supported: use an "
                "unquantized checkpoint, or a GGUF file"
            )
        if self._gemma and path.endswith(".scale"):
            return 1.0 + array.astype(np.float32)  # Gemma stores the distance from 1
        if self._gpt2 and name.endswith(".weight") and ".c_" in name:
            array = array.T  # Conv1D: [in, out]
        if self._gpt2 and ".c_attn." in name:
            array = np.split(array, 3)["qkv".index(path.split(".")[-2])]
        return array


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
        )  # type: ignore[return-value]
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


def _ignored(name: str, tied: bool) -> bool:
    """Buffers that old checkpoints carry, and the output layer where it is the embedding."""
    buffer = name.endswith((".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"))
    return buffer or (tied and name == "lm_head.weight")


def _shards(path: Path) -> list[Path]:
    index, whole = path / "model.safetensors.index.json", path / "model.safetensors"
    if index.exists():
        weight_map = need(_read_json(index), "weight_map", str(index))
        files = [path / name for name in sorted(set(weight_map.values()))]
    else:
        files = [whole]
    for file in files:
        if not file.exists():
            listed = " (listed in model.safetensors.index.json)" if index.exists() else ""
            raise SpecError(f"{file}{listed} does not exist: the download is incomplete")
    return files


def _open_safetensors(file: Path) -> Any:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise UnsupportedError(f"{file}: reading it needs `pip install safetensors`") from None
    try:
        return safe_open(file, framework="np")
    except SafetensorError as error:
        raise SpecError(f"{file}: not a readable safetensors file ({error}): download it again") from None


def _read_json(file: Path) -> Any:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"{file} does not exist: a model directory needs it beside the weights") from None
    except ValueError as error:
        raise SpecError(f"{file}: not valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise SpecError(f"{file}: expected a JSON object")
    return data
