"""Tiny checkpoints of every family, with weights that numpy draws by name: the same on every machine, torch or not.

`python -m tests.models.tiny` (with torch and transformers) writes golden.npz: the logits of `transformers` for each.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).with_name("golden.npz")
IDS = [3, 41, 7, 7, 0, 59, 18, 22, 5, 11, 36, 2, 47, 13, 60, 29]

WIDTH, LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, VOCAB = 32, 2, 4, 2, 8, 48, 61
_BASE = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "intermediate_size": HIDDEN,
    "vocab_size": VOCAB,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 24,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _BASE | {"model_type": "llama", "rope_theta": 5000.0, "tie_word_embeddings": False},
    "llama-3-tied": _BASE
    | {"model_type": "llama", "rope_theta": 500.0, "rope_scaling": _LLAMA3, "tie_word_embeddings": True}
    | {"attention_bias": True, "mlp_bias": True},
    "qwen2": _BASE | {"model_type": "qwen2", "rope_theta": 1e6, "tie_word_embeddings": False},
    "qwen2-window": _BASE
    | {"model_type": "qwen2", "rope_theta": 1e4, "tie_word_embeddings": True}
    | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "qwen3": _BASE | {"model_type": "qwen3", "head_dim": 12, "rope_theta": 1e4, "tie_word_embeddings": True},
    "gemma3": _BASE
    | {"model_type": "gemma3_text", "head_dim": 16, "query_pre_attn_scalar": 16, "tie_word_embeddings": True}
    | {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
    | {"rope_theta": 1e5, "rope_local_base_freq": 1e3, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "gemma3-pattern": _BASE
    | {"model_type": "gemma3_text", "head_dim": 16, "query_pre_attn_scalar": 20}
    | {"sliding_window": 3, "sliding_window_pattern": 2, "tie_word_embeddings": True}
    | {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 2e4},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        }
    },
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": WIDTH,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_positions": 32,
        "vocab_size": VOCAB,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    },
}
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
}


def weights(name: str) -> dict[str, np.ndarray]:
    """Every weight of the checkpoint under its Hugging Face name, float32."""
    config = CONFIGS[name]
    shapes = _gpt2_shapes() if name == "gpt2" else _llama_shapes(config)
    return {key: _draw(key, shape, config["model_type"]) for key, shape in shapes.items()}


def write(name: str, directory: Path) -> Path:
    """The checkpoint as a model directory: config.json and model.safetensors."""
    from safetensors.numpy import save_file

    config = CONFIGS[name]
    directory.mkdir(parents=True, exist_ok=True)
    data = config | {"architectures": [ARCHITECTURES[config["model_type"]]], "torch_dtype": "float32"}
    (directory / "config.json").write_text(json.dumps(data))
    save_file(weights(name), directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def transformers_logits(directory: Path) -> np.ndarray:
    """The logits [T, vocab] of `transformers` for IDS, in float32 on the CPU."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].numpy()


def _llama_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    family, head_dim = config["model_type"], config["head_dim"]
    size, kv_size = HEADS * head_dim, KV_HEADS * head_dim
    gemma = family == "gemma3_text"
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, WIDTH), "model.norm.weight": (WIDTH,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (VOCAB, WIDTH)
    block: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (WIDTH,),
        "post_attention_layernorm.weight": (WIDTH,),
        "self_attn.q_proj.weight": (size, WIDTH),
        "self_attn.k_proj.weight": (kv_size, WIDTH),
        "self_attn.v_proj.weight": (kv_size, WIDTH),
        "self_attn.o_proj.weight": (WIDTH, size),
        "mlp.gate_proj.weight": (HIDDEN, WIDTH),
        "mlp.up_proj.weight": (HIDDEN, WIDTH),
        "mlp.down_proj.weight": (WIDTH, HIDDEN),
    }
    if gemma:
        block |= {"pre_feedforward_layernorm.weight": (WIDTH,), "post_feedforward_layernorm.weight": (WIDTH,)}
    if gemma or family == "qwen3":
        block |= {"self_attn.q_norm.weight": (head_dim,), "self_attn.k_norm.weight": (head_dim,)}
    if config.get("attention_bias") or family == "qwen2":
        block |= {"self_attn.q_proj.bias": (size,), "self_attn.k_proj.bias": (kv_size,)}
        block |= {"self_attn.v_proj.bias": (kv_size,)}
    if config.get("attention_bias"):
        block |= {"self_attn.o_proj.bias": (WIDTH,)}
    if config.get("mlp_bias"):
        block |= {"mlp.gate_proj.bias": (HIDDEN,), "mlp.up_proj.bias": (HIDDEN,), "mlp.down_proj.bias": (WIDTH,)}
    return shapes | {f"model.layers.{i}.{key}": shape for i in range(LAYERS) for key, shape in block.items()}


def _gpt2_shapes() -> dict[str, tuple[int, ...]]:
    linear = {"attn.c_attn": (WIDTH, 3 * WIDTH), "attn.c_proj": (WIDTH, WIDTH)}
    linear |= {"mlp.c_fc": (WIDTH, 4 * WIDTH), "mlp.c_proj": (4 * WIDTH, WIDTH)}  # Conv1D: [in, out]
    block: dict[str, tuple[int, ...]] = {}
    for key, shape in linear.items():
        block |= {f"{key}.weight": shape, f"{key}.bias": shape[1:]}
    for key in ("ln_1", "ln_2"):
        block |= {f"{key}.weight": (WIDTH,), f"{key}.bias": (WIDTH,)}
    top = {"wte.weight": (VOCAB, WIDTH), "wpe.weight": (32, WIDTH), "ln_f.weight": (WIDTH,), "ln_f.bias": (WIDTH,)}
    blocks = {f"h.{i}.{key}": shape for i in range(LAYERS) for key, shape in block.items()}
    return {f"transformer.{key}": shape for key, shape in {**top, **blocks}.items()}


def _draw(name: str, shape: tuple[int, ...], family: str) -> np.ndarray:
    """Normal numbers seeded by the name; norms are near what leaves x alone (1, and 0 for Gemma)."""
    values = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, np.float32)
    if len(shape) > 1:
        return values * np.float32(shape[-1] ** -0.5)
    if name.endswith("bias"):
        return values * np.float32(0.3)
    return values * np.float32(0.2) + np.float32(family != "gemma3_text")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        golden = {name: transformers_logits(write(name, Path(folder) / name)) for name in CONFIGS}
    np.savez_compressed(GOLDEN, **golden)
    print({name: array.shape for name, array in golden.items()})
