"""`load`: a model from a path, whatever its format."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from toktier_jax.errors import InputError
from toktier_jax.models.gguf_file import load_gguf
from toktier_jax.models.huggingface import load_directory
from toktier_jax.models.model import CausalLM


def load(path: str | PathLike[str], dtype: str = "float32") -> CausalLM:
    """A causal LM from a Hugging Face directory (config.json and safetensors) or a GGUF file.

    Families: Llama (SmolLM2), Qwen2, Qwen3, Gemma 3 (text), GPT-2. `dtype` is that of the weights and of the cache:
    "float32" or "bfloat16"; logits are float32. Raises InputError (no such path), UnsupportedError (another
    architecture or feature, by name) and SpecError (damaged or incomplete files; weights missing or of another shape).
    """
    if not isinstance(path, str | PathLike):
        raise InputError(f"path: {type(path).__name__} is no path of a model directory or a GGUF file")
    path = Path(path)
    if path.is_dir():
        return load_directory(path, dtype)
    if not path.exists():
        raise InputError(f"{path} does not exist: expected a model directory or a GGUF file")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise InputError(f"{path} is not a GGUF file: pass a GGUF file, or the directory that has config.json")
    return load_gguf(path, dtype)
