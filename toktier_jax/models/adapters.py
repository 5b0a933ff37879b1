"""Other people's Flax modules as Models, with or without a cache of their own. See docs/models.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx

from toktier_jax.models.model import CausalLM, Forward, gather_slots, write_slots

InitLayers = Callable[[int, int], Any]


def from_nnx(
    module: nnx.Module, vocab_size: int, *, call: Callable[..., Any], init_layers: InitLayers | None = None
) -> CausalLM:
    """An NNX module, in evaluation mode, as a Model.

    With `init_layers(batch, length)`, which makes the arrays [batch, length, ...] that the module remembers:
    `call(module, tokens, positions, layers, mask, slots) -> (logits, layers)`. Without: `call(module, tokens,
    positions, mask) -> logits` forwards all it is given, and so does every step (exact and slow).
    """
    graphdef, params = nnx.split(module)
    return _model(params, lambda params, *inputs: call(nnx.merge(graphdef, params), *inputs), vocab_size, init_layers)


def from_linen(
    module: linen.Module,
    variables: Any,
    vocab_size: int,
    *,
    call: Callable[..., Any],
    init_layers: InitLayers | None = None,
) -> CausalLM:
    """A Linen module and its variables as a Model. `call` is as in `from_nnx`; it gets the bound module."""
    return _model(
        variables, lambda params, *inputs: module.apply(params, *inputs, method=call), vocab_size, init_layers
    )


def _model(params: Any, forward: Callable[..., Any], vocab_size: int, init_layers: InitLayers | None) -> CausalLM:
    if init_layers is not None:
        return CausalLM(vocab_size, params, forward, init_layers)
    return CausalLM(vocab_size, params, _forward_all(forward), _init_all, _gather_all)


# Without a cache, what is remembered is the input itself: tokens and positions [B, S], and who sees whom [B, S, S].


def _init_all(batch: int, length: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    # Empty slots see themselves: a row that sees nothing is NaN in many attentions, and 0 * NaN would spread.
    seen = jnp.broadcast_to(jnp.eye(length, dtype=bool)[None], (batch, length, length))
    return jnp.zeros((batch, length), jnp.int32), jnp.zeros((batch, length), jnp.int32), seen


def _forward_all(forward: Callable[..., jax.Array]) -> Forward:
    def run(params, tokens, positions, layers, mask, slots):
        tokens, positions = write_slots(layers[0], slots, tokens), write_slots(layers[1], slots, positions)
        seen = write_slots(layers[2], slots, mask)
        logits = forward(params, tokens, positions, seen)
        new = jnp.minimum(slots, tokens.shape[1] - 1)
        return jnp.take_along_axis(logits, new[:, :, None], axis=1), (tokens, positions, seen)

    return run


def _gather_all(layers: tuple[jax.Array, ...], rows: jax.Array) -> tuple[jax.Array, ...]:
    tokens, positions, seen = layers
    both = gather_slots(gather_slots(seen, rows, axis=1), rows, axis=2)
    kept = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None, :] < jnp.sum(rows >= 0, axis=1, dtype=jnp.int32)[:, None]
    alone = jnp.eye(tokens.shape[1], dtype=bool)[None]
    seen = jnp.where(kept[:, :, None], both & kept[:, None, :], alone)
    return gather_slots(tokens, rows), gather_slots(positions, rows), seen
