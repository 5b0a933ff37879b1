"""What the tests of the models share: rows of tokens of any kind in one compiled shape, whole forwards, distances."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from toktier_jax import models

NEW, CAPACITY = 16, 24
"""Every forward of a tiny model has these sizes (or one new token): a shape costs a second of compile time."""


QUICK = {"xla_backend_optimization_level": 0}
"""Compiler options of the tests: what a tiny model gains from being optimized is less than the time it takes."""


@functools.lru_cache(maxsize=4)
def step(lm: models.CausalLM) -> Callable[..., tuple[jax.Array, models.Cache]]:
    """`lm.step` compiled quickly; the cache is not donated."""
    return jax.jit(lambda *inputs: lm.apply(*inputs), compiler_options=QUICK)


@dataclass(frozen=True)
class Row:
    """New tokens of one row: parents[m] < m is the node that token m follows, -1 the last token in the cache."""

    tokens: Sequence[int]
    parents: Sequence[int] | None = None  # None: each follows the one before it


def extend(
    lm: Any, cache: Any, lengths: Sequence[int], rows: Sequence[Row], new: int = NEW, params: Any = None
) -> tuple[np.ndarray, Any]:
    """Forwards rows that follow texts of `lengths` tokens, padded to `new`: logits [B, new, V] and the cache."""
    capacity = cache.capacity
    tokens = np.full((len(rows), new), -1, np.int32)
    positions = np.full((len(rows), new), -1, np.int32)
    mask = np.zeros((len(rows), new, capacity), bool)
    for b, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        parents = range(-1, len(row.tokens) - 1) if row.parents is None else row.parents
        for m, (token, parent) in enumerate(zip(row.tokens, parents, strict=True)):
            tokens[b, m] = token
            positions[b, m] = length if parent < 0 else positions[b, parent] + 1
            mask[b, m] = np.arange(capacity) < length if parent < 0 else mask[b, parent]
            mask[b, m, length + m] = True
    params = lm.params if params is None else params
    logits, cache = step(lm)(params, *map(jnp.asarray, (tokens, positions)), cache, jnp.asarray(mask))
    return np.asarray(logits), cache


def whole(lm: Any, text: Sequence[int]) -> np.ndarray:
    """Logits [T, V] of one text of at most NEW tokens, in one call."""
    logits, _ = extend(lm, lm.init_cache(2, CAPACITY), (0, 0), (Row(text), Row(())))
    return logits[0, : len(text)]


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """max |a - b| / max |b|."""
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))) / np.max(np.abs(b)))
