"""From named arrays in a file to a decoder: every parameter found, of the right shape, nothing left over."""

from __future__ import annotations

from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from flax import nnx

from toktier_jax.errors import InputError, SpecError
from toktier_jax.models.config import DecoderConfig
from toktier_jax.models.decoder import Decoder, causal_lm
from toktier_jax.models.model import CausalLM


class Weights(Protocol):
    """A checkpoint: where each parameter of the decoder ("blocks.0.attn.q.weight") is, and what it holds."""

    where: str
    names: frozenset[str]

    def source(self, path: str) -> str: ...  # the name in the file of the array that holds this parameter

    def read(self, path: str) -> np.ndarray: ...  # the parameter, in the decoder's orientation


def build(config: DecoderConfig, weights: Weights, dtype: str) -> CausalLM:
    """Fills a decoder of this shape, one array at a time, on the default device.

    Matrices become `dtype` ("float32" or "bfloat16"); norms stay float32. Raises SpecError for missing, misshapen and
    left-over weights, InputError for another dtype.
    """
    if dtype not in ("float32", "bfloat16"):
        raise InputError(f"dtype={dtype!r}: expected 'float32' or 'bfloat16'")
    kind = jnp.dtype(dtype)
    graphdef, state = nnx.split(nnx.eval_shape(lambda: Decoder(config, lambda shape, _: jnp.zeros(shape, kind))))
    parameters = [(".".join(map(str, path)), variable) for path, variable in nnx.to_flat_state(state)]
    wanted = {path: weights.source(path) for path, _ in parameters}
    missing = sorted({name for name in wanted.values() if name not in weights.names})
    if missing:
        raise SpecError(
            f"{weights.where}: {_few(missing)} missing. The download is incomplete, or the configuration belongs to "
            "another model"
        )
    unused = sorted(weights.names - set(wanted.values()))
    if unused:
        raise SpecError(
            f"{weights.where}: {_few(unused)} not used by a model of this architecture. The weights belong to another "
            "model than the configuration"
        )
    for path, variable in parameters:
        try:
            array = weights.read(path)
        except ValueError as error:  # a reshape or split that the array's shape does not allow
            raise SpecError(f"{weights.where}: {wanted[path]} has an unexpected shape: {error}") from None
        if array.shape != variable.shape:
            raise SpecError(
                f"{weights.where}: {wanted[path]} gives {path} the shape {list(array.shape)}, the configuration "
                f"{list(variable.shape)}. The weights belong to another model than the configuration"
            )
        variable.set_value(jnp.array(array, variable.dtype))
    return causal_lm(config, kind, graphdef, state)


def _few(names: list[str]) -> str:
    """'a, b, c and 12 more weights are'."""
    head = ", ".join(names[:3])
    rest = len(names) - 3
    if rest > 0:
        return f"{head} and {rest} more weights are"
    return f"{head} {'is' if len(names) == 1 else 'are'}"


def need_count(values: Any, key: str, where: str) -> int:
    """values[key] as a whole number of at least 1, or a SpecError that names the key."""
    found = need(values, key, where)
    if not isinstance(found, int) or found < 1:
        raise SpecError(f"{where}: {key} is {found!r}; expected a whole number of at least 1")
    return found


def need(values: Any, key: str, where: str) -> Any:
    """values[key], or a SpecError that names the key."""
    found = values.get(key)
    if found is None:
        raise SpecError(f"{where}: the key {key!r} is missing: the file is damaged or of another model")
    return found
