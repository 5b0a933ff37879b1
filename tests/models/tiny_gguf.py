"""The tiny checkpoints as GGUF files, with what llama.cpp's converter does to names, norms and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import tiny

NAMES = {
    "embed_tokens": "token_embd",
    "wte": "token_embd",
    "wpe": "position_embd",
    "norm": "output_norm",
    "ln_f": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "ln_1": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "ln_2": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def write(name: str, path: Path, *, drop: str | None = None, **changed: Any) -> Path:
    """Writes the checkpoint; `drop` leaves out one tensor, `changed` replaces metadata (dots written as __)."""
    import gguf

    config, arch = tiny.CONFIGS[name], tiny.CONFIGS[name]["model_type"].removesuffix("_text")
    writer = gguf.GGUFWriter(path, changed.pop("general__architecture", arch))
    for key, value in (_metadata(config, arch) | {k.replace("__", "."): v for k, v in changed.items()}).items():
        key = key if key.startswith(("general.", "split.")) else f"{arch}.{key}"
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_uint32(key, value)
    writer.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(tiny.VOCAB)])
    writer.add_array("tokenizer.ggml.token_type", [1] * tiny.VOCAB)
    for key, array in tiny.weights(name).items():
        tensor = _name(key, arch)
        if tensor != drop:
            writer.add_tensor(tensor, _convert(key, array, arch, config))
    if config.get("rope_scaling", {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _metadata(config: dict[str, Any], arch: str) -> dict[str, Any]:
    if arch == "gpt2":
        return {
            "block_count": tiny.LAYERS,
            "context_length": 32,
            "embedding_length": tiny.WIDTH,
            "feed_forward_length": 4 * tiny.WIDTH,
            "attention.head_count": tiny.HEADS,
            "attention.layer_norm_epsilon": 1e-5,
        }
    data: dict[str, Any] = {
        "block_count": tiny.LAYERS,
        "context_length": 64,
        "embedding_length": tiny.WIDTH,
        "feed_forward_length": tiny.HIDDEN,
        "attention.head_count": tiny.HEADS,
        "attention.head_count_kv": tiny.KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "rope.freq_base": config["rope_theta"],
    }
    if arch == "gemma3":
        data |= {"attention.sliding_window": 4, "attention.sliding_window_pattern": 2, "rope.freq_base_swa": 1e3}
        data |= {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
    return data


def _name(key: str, arch: str) -> str:
    key = key.removeprefix("model.").removeprefix("transformer.")
    stem, kind = key.rsplit(".", 1)
    block = ""
    if stem.startswith(("layers.", "h.")):
        _, index, stem = stem.split(".", 2)
        block = f"blk.{index}."
    return f"{block}{(NAMES | GEMMA if arch == 'gemma3' else NAMES)[stem]}.{kind}"


def _convert(key: str, array: np.ndarray, arch: str, config: dict[str, Any]) -> np.ndarray:
    if arch == "gpt2" and ".c_" in key and key.endswith("weight"):
        return np.ascontiguousarray(array.T)
    if arch == "gemma3" and key.endswith("norm.weight"):
        return array + 1
    if arch == "llama" and (".q_proj." in key or ".k_proj." in key):
        heads = len(array) // config["head_dim"]  # LlamaModel.permute of convert_hf_to_gguf.py
        rows = array.reshape(heads, 2, config["head_dim"] // 2, *array.shape[1:])
        return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(array.shape))
    return array


def _llama3_divisors(config: dict[str, Any]) -> np.ndarray:
    """The tensor rope_freqs as convert_hf_to_gguf.py computes it, one frequency after the other."""
    scaling, divisors = config["rope_scaling"], []
    low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    for i in range(0, config["head_dim"], 2):
        wavelength = 2 * np.pi * config["rope_theta"] ** (i / config["head_dim"])
        if wavelength < high:
            divisors.append(1.0)
        elif wavelength > low:
            divisors.append(scaling["factor"])
        else:
            smooth = (scaling["original_max_position_embeddings"] / wavelength - scaling["low_freq_factor"]) / (
                scaling["high_freq_factor"] - scaling["low_freq_factor"]
            )
            divisors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(divisors, np.float32)
