"""What lies where: tables of a vocabulary on the device, a loop's state there and back."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from toktier_jax.sampling import loop, stops
from toktier_jax.sampling.vocabulary import Vocabulary, padded


@functools.lru_cache(maxsize=16)
def device_tables(vocabulary: Vocabulary, size: int) -> tuple[Any, Any, Any, Any]:
    """known bool [V], and int32 [V] ranks, lengths and spans, for a model of `size` logits."""
    return (
        jnp.asarray(padded(vocabulary.known, size, False)),
        jnp.asarray(padded(vocabulary.ranks, size, -1)),
        jnp.asarray(padded(vocabulary.lengths, size, 0)),
        jnp.asarray(padded(vocabulary.spans, size, 0)),
    )


@functools.lru_cache(maxsize=4)
def token_bytes(vocabulary: Vocabulary, size: int) -> Any:
    """uint8 [size, longest] on the device."""
    return jnp.asarray(stops.byte_table(vocabulary, size))


def owned(state: Any) -> Any:
    """Arrays of the state as the loop's own: it donates them, and the caller may keep his."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)


def on_device(state: loop.State) -> loop.State:
    """Every array on the device, for a function that donates them."""
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else jnp.array(leaf), state)


def on_host(state: loop.State) -> loop.State:
    """All that completions are made of, as numpy: max_tokens entries a row."""
    small = state._replace(cache=None, keys=None, seen=None, constraint=None)
    return jax.tree.map(np.asarray, small)


def glance(state: loop.State) -> loop.State:
    """Where each row is, as numpy: a few numbers a row."""
    return on_host(state._replace(ids=None, logprobs=None, top=None))
