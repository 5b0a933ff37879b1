"""Reads a GGUF file: metadata to a DecoderConfig, quantized tensors to float32 arrays. It leaves the tokenizer alone.

What llama.cpp's converter did is undone or kept: q/k rows of Llama are interleaved (undone here), Gemma's norms have
their 1 added (kept), GPT-2's matrices are already [out, in]. `output.weight` is absent where embeddings are tied.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from toktier_jax.errors import SpecError, UnsupportedError
from toktier_jax.models.config import DecoderConfig, rope_frequencies
from toktier_jax.models.model import CausalLM
from toktier_jax.models.weights import build, need, need_count

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3", "gpt2")
TOP = {"embed": "token_embd", "position_embed": "position_embd", "norm": "output_norm", "head": "output"}
BLOCK = {
    "attn_norm": "attn_norm",
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.out": "attn_output",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "attn_post_norm": "post_attention_norm",
    "mlp_norm": "ffn_norm",
    "mlp.gate": "ffn_gate",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
    "mlp_post_norm": "post_ffw_norm",
}
GPT2_BLOCK = BLOCK | {"attn.q": "attn_qkv", "attn.k": "attn_qkv", "attn.v": "attn_qkv"}
ROPE_FACTORS = "rope_freqs.weight"


def load_gguf(path: Path, dtype: str) -> CausalLM:
    """A model from one GGUF file."""
    try:
        reader = _reader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except ImportError:
        raise UnsupportedError(f"{path}: reading GGUF needs `pip install gguf`") from None
    except (ValueError, IndexError, KeyError) as error:
        raise SpecError(f"{path}: not a readable GGUF file ({error}): download it again") from None
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = gguf_config(metadata, tensors, str(path))
    return build(config, GGUFWeights(path, metadata["general.architecture"], config, tensors), dtype)


def _reader(path: Path) -> Any:
    """A GGUFReader that steps over arrays: a tokenizer's 800,000 entries take it half a minute, and none is needed."""
    from gguf import GGUFEndian, GGUFReader, GGUFValueType

    class Reader(GGUFReader):
        def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
            if raw_type != GGUFValueType.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            kind, count = int(self._get(orig_offs, np.uint32)[0]), int(self._get(orig_offs + 4, np.uint64)[0])
            size = 12
            if kind != GGUFValueType.STRING:
                size += count * np.dtype(self.gguf_scalar_to_np[GGUFValueType(kind)]).itemsize
            else:
                data, order = self.data.data, "little" if self.endianess == GGUFEndian.LITTLE else "big"
                for _ in range(count):
                    size += 8 + int.from_bytes(data[orig_offs + size : orig_offs + size + 8], order)
            return size, [], [], [GGUFValueType.ARRAY]

    return Reader(path)


def gguf_config(metadata: Mapping[str, Any], tensors: Mapping[str, Any], where: str) -> DecoderConfig:
    """The model's shape, from the file's metadata, and from the names of its tensors for biases and tied embeddings."""
    arch = need(metadata, "general.architecture", where)
    if arch not in ARCHITECTURES:
        raise UnsupportedError(
            f"{where}: architecture {arch!r} is not supported; supported are {', '.join(ARCHITECTURES)}. For your own "
            "Flax model see docs/models.md"
        )

    def get(key: str, default: Any = None) -> Any:
        return metadata.get(f"{arch}.{key}", default)

    def want(key: str) -> Any:
        return need(metadata, f"{arch}.{key}", where)

    if (metadata.get("split.count") or 1) > 1:
        raise UnsupportedError(
            f"{where}: one part of a split GGUF: join the parts with `llama-gguf-split --merge` first"
        )
    if get("expert_count"):
        raise UnsupportedError(f"{where}: mixture-of-experts models ({arch}.expert_count) are not supported")
    if "token_embd.weight" not in tensors:
        raise SpecError(f"{where}: the tensor token_embd.weight is missing: the file holds no language model")
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        if isinstance(get(key), list):
            raise UnsupportedError(f"{where}: layers of different width ({arch}.{key} is a list) are not supported")
    layers, width, heads = (
        need_count(metadata, f"{arch}.{key}", where)
        for key in ("block_count", "embedding_length", "attention.head_count")
    )
    head_dim = get("attention.key_length", width // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if get(key, head_dim) != head_dim:
            raise UnsupportedError(f"{where}: {arch}.{key} is {get(key)} where heads have {head_dim}: not supported")
    layer_norm, gemma = arch == "gpt2", arch == "gemma3"
    rope, rope_window = ((), ()) if layer_norm else _rope(get, tensors, head_dim)
    return DecoderConfig(
        vocab_size=int(tensors["token_embd.weight"].shape[1]),
        width=width,
        heads=heads,
        kv_heads=get("attention.head_count_kv", heads),
        head_dim=head_dim,
        hidden=want("feed_forward_length"),
        context_length=want("context_length"),
        windows=_windows(get, layers, where) if gemma else (0,) * layers,
        rope=rope,
        rope_window=rope_window,
        norm="layer" if layer_norm else "rms",
        norm_eps=want("attention.layer_norm_epsilon" if layer_norm else "attention.layer_norm_rms_epsilon"),
        activation="gelu_tanh" if layer_norm or gemma else "silu",
        gated=not layer_norm,
        qkv_bias=arch in ("qwen2", "gpt2") or "blk.0.attn_q.bias" in tensors,
        out_bias=layer_norm or "blk.0.attn_output.bias" in tensors,
        mlp_bias=layer_norm or "blk.0.ffn_up.bias" in tensors,
        qk_norm=arch in ("qwen3", "gemma3"),
        post_norm=gemma,
        tied="output.weight" not in tensors,
        embed_scale=width**0.5 if gemma else 1.0,
        # The 27B Gemma alone scales by the width a head (query_pre_attn_scalar 168); GGUF does not say so.
        query_scale=(width // heads if gemma and layers == 62 else head_dim) ** -0.5,
    )


class GGUFWeights:
    """The tensors of a GGUF file, dequantized one at a time."""

    def __init__(self, path: Path, arch: str, config: DecoderConfig, tensors: Mapping[str, Any]) -> None:
        self.where = str(path)
        self._arch, self._config, self._tensors = arch, config, tensors
        self.names = frozenset(tensors) - {ROPE_FACTORS}  # read with the configuration

    def source(self, path: str) -> str:
        if path in TOP:
            return f"{TOP[path]}.weight"
        owner, kind = path.rsplit(".", 1)
        suffix = "bias" if kind == "bias" else "weight"
        if owner.startswith("blocks."):
            _, index, owner = owner.split(".", 2)
            return f"blk.{index}.{(GPT2_BLOCK if self._arch == 'gpt2' else BLOCK)[owner]}.{suffix}"
        return f"{TOP[owner]}.{suffix}"

    def read(self, path: str) -> np.ndarray:
        array = _dequantize(self._tensors[self.source(path)], self.where)
        owner = path.split(".")[-2:-1]
        if self._arch == "gpt2" and owner in (["q"], ["k"], ["v"]):
            return np.split(array, 3)["qkv".index(owner[0])]
        if self._arch == "llama" and owner in (["q"], ["k"]):
            return half_split_rows(array, self._config.head_dim)
        return array


def half_split_rows(array: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows [heads * head_dim, ...] with rotary pairs side by side (2i, 2i + 1) -> half a head apart (i, i + H / 2)."""
    pairs = array.reshape(-1, head_dim // 2, 2, *array.shape[1:])
    return pairs.swapaxes(1, 2).reshape(array.shape)


def _dequantize(tensor: Any, where: str) -> np.ndarray:
    from gguf.quants import dequantize

    try:
        return dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError:
        raise UnsupportedError(
            f"{where}: {tensor.name} has the type {tensor.tensor_type.name}, which the gguf package cannot dequantize: "
            "use a file of another quantization"
        ) from None


def _windows(get: Any, layers: int, where: str) -> tuple[int, ...]:
    """Gemma 3: every sixth layer sees everything, unless the file says otherwise."""
    window, pattern = get("attention.sliding_window"), get("attention.sliding_window_pattern", 6)
    if not isinstance(window, int) or not isinstance(pattern, int):
        raise UnsupportedError(
            f"{where}: gemma3.attention.sliding_window = {window} with sliding_window_pattern = {pattern}: expected "
            "two whole numbers"
        )
    return tuple(window if (i + 1) % pattern else 0 for i in range(layers))


def _rope(get: Any, tensors: Mapping[str, Any], head_dim: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Frequencies of the full and of the window layers. Llama 3's scaling is a tensor of divisors."""
    scaling = {"rope_type": {None: "default", "none": "default"}.get(kind := get("rope.scaling.type"), kind)}
    scaling["factor"] = get("rope.scaling.factor")
    full = rope_frequencies(get("rope.freq_base", 1e4), head_dim, scaling)
    if ROPE_FACTORS in tensors:
        divisors = np.asarray(tensors[ROPE_FACTORS].data, np.float32)
        full = tuple(float(f) for f in np.asarray(full, np.float32) / divisors)
    return full, rope_frequencies(get("rope.freq_base_swa", 1e4), head_dim)
