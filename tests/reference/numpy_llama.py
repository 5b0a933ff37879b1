"""A readable Llama forward in float32 numpy over a GGUF file: the second opinion on toktier_jax.models.

Independent of the package: it reads the file itself and keeps the query and key rows as llama.cpp stores them, with the
rotary pairs side by side (2i, 2i + 1), where the package reorders the rows and turns i with i + H / 2.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np


class NumpyLlama:
    """Weights dequantized to float32, matrices [out, in]."""

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader
        from gguf.quants import dequantize

        reader = GGUFReader(path)
        self.weights = {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
        key = {name: reader.fields[f"llama.{name}"].contents() for name in KEYS}
        self.layers, self.heads, self.kv_heads = (key[name] for name in KEYS[:3])
        self.eps, self.theta = key[KEYS[3]], key[KEYS[4]]
        self.head_dim = key[KEYS[5]]

    def logits(self, ids: list[int]) -> np.ndarray:
        """ids [T] -> logits [T, vocab]: each token sees itself and what is before it."""
        w, new = self.weights, len(ids)
        x = w["token_embd.weight"][ids]
        causal = np.tril(np.ones((new, new), bool))
        for layer in range(self.layers):
            p = f"blk.{layer}."
            y = self.rms_norm(x, w[p + "attn_norm.weight"])
            q = self.rope((y @ w[p + "attn_q.weight"].T).reshape(new, self.heads, self.head_dim))
            k = self.rope((y @ w[p + "attn_k.weight"].T).reshape(new, self.kv_heads, self.head_dim))
            v = (y @ w[p + "attn_v.weight"].T).reshape(new, self.kv_heads, self.head_dim)
            mixed = np.empty_like(q)
            for head in range(self.heads):
                kv = head // (self.heads // self.kv_heads)
                scores = q[:, head] @ k[:, kv].T / np.float32(np.sqrt(self.head_dim))
                mixed[:, head] = softmax(np.where(causal, scores, -np.inf)) @ v[:, kv]
            x = x + mixed.reshape(new, -1) @ w[p + "attn_output.weight"].T
            y = self.rms_norm(x, w[p + "ffn_norm.weight"])
            gate = y @ w[p + "ffn_gate.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ w[p + "ffn_up.weight"].T)) @ w[p + "ffn_down.weight"].T
        return self.rms_norm(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T

    def rms_norm(self, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(self.eps)) * scale

    def rope(self, x: np.ndarray) -> np.ndarray:
        """Turns the pair (2i, 2i + 1) of x [T, heads, H] at position t by the angle t * theta ** (-2i / H)."""
        turn = self.theta ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        angle = (np.arange(len(x))[:, None] * turn)[:, None, :]
        pairs = x[..., 0::2] + 1j * x[..., 1::2]
        turned = pairs * np.exp(1j * angle)
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape).astype(np.float32)


KEYS = (
    "block_count",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.layer_norm_rms_epsilon",
    "rope.freq_base",
    "rope.dimension_count",
)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def perplexity(logits: np.ndarray, ids: list[int]) -> float:
    """exp of the mean negative log-probability of ids[1:] under logits [T, vocab], in float64."""
    logits = np.asarray(logits[:-1], np.float64)
    top = logits.max(axis=-1)
    norm = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
    return float(np.exp(np.mean(norm - logits[np.arange(len(ids) - 1), ids[1:]])))
