"""Sampling that starts from the text and not from its last token: healing, exact covers, one jitted loop."""

from toktier_jax.sampling.constraints import Constraint
from toktier_jax.sampling.distribution import next_byte_distribution, prompt_logprob, sample_bytes, score
from toktier_jax.sampling.generate import generate, stream
from toktier_jax.sampling.prefill import PrefixCache
from toktier_jax.sampling.results import BoundaryReport, Completion, Event, TokenLogprob, Usage

__all__ = [
    "BoundaryReport",
    "Completion",
    "Constraint",
    "Event",
    "PrefixCache",
    "TokenLogprob",
    "Usage",
    "generate",
    "next_byte_distribution",
    "prompt_logprob",
    "sample_bytes",
    "score",
    "stream",
]
