"""Reads a Hugging Face model directory: config.json and safetensors, whole or in shards."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from toktier_jax.errors import SpecError, UnsupportedError
from toktier_jax.models.config import DecoderConfig
from toktier_jax.models.huggingface_config import huggingface_config
from toktier_jax.models.model import CausalLM
from toktier_jax.models.weights import build, need

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
    config = huggingface_config(data, str(path / "config.json"))
    with SafetensorsWeights(path, data["model_type"], config) as weights:
        return build(config, weights, dtype)


class SafetensorsWeights:
    """The arrays of a directory's safetensors files, by their Hugging Face names without the base model's prefix."""

    def __init__(self, path: Path, family: str, config: DecoderConfig) -> None:
        self.where = str(path)
        self._gemma, self._gpt2 = family == "gemma3_text", family == "gpt2"
        self._third = config.width
        self._files: dict[str, tuple[Any, str]] = {}  # name without prefix -> open file, full name
        with contextlib.ExitStack() as opened:  # closes the shards before one that cannot be read
            for file in _shards(path):
                handle = opened.enter_context(_open_safetensors(file))
                for name in handle.keys():  # noqa: SIM118 - not a mapping
                    short = name.removeprefix("transformer." if self._gpt2 else "model.")
                    if not _ignored(short, config.tied):
                        self._files[short] = (handle, name)
            self._open = opened.pop_all()
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


def _ignored(name: str, tied: bool) -> bool:
    """Buffers that old checkpoints carry, and the output layer where it is the embedding."""
    buffer = name.endswith((".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"))
    return buffer or (tied and name == "lm_head.weight")


def _shards(path: Path) -> list[Path]:
    index, whole = path / "model.safetensors.index.json", path / "model.safetensors"
    if index.exists():
        weight_map = need(_read_json(index), "weight_map", str(index))
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise SpecError(f"{index}: weight_map must give a file for each weight: the file is damaged")
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
