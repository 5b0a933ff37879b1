"""Causal language models in Flax NNX with a functional cache, and their loaders. Nothing here knows a tokenizer."""

from toktier_jax.models.adapters import from_linen, from_nnx
from toktier_jax.models.config import DecoderConfig, rope_frequencies
from toktier_jax.models.decoder import random_lm
from toktier_jax.models.load import load
from toktier_jax.models.model import Cache, CausalLM, Model, causal_inputs, gather_slots, write_slots

__all__ = [
    "Cache",
    "CausalLM",
    "DecoderConfig",
    "Model",
    "causal_inputs",
    "from_linen",
    "from_nnx",
    "gather_slots",
    "load",
    "random_lm",
    "rope_frequencies",
    "write_slots",
]
