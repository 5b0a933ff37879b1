"""What a language model is here: the Model Protocol, its cache, and CausalLM, which makes one of a forward function.

A cache has S slots a row. Slots are filled in order, each row at its own pace; a slot is not a position (the branches
of a tree hold several tokens of one position). Every array of a cache has the batch as its first axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from toktier_jax.errors import InputError


@runtime_checkable
class Model(Protocol):
    """A causal language model with a functional cache: all that sampling needs.

    `apply` writes T tokens a row into the next free slots and returns float logits [B, T, vocab_size] and the new
    cache. `positions` are what the model sees as positions; a negative position marks padding, which takes no slot.
    `mask[b, t, s]` says that token t may attend to slot s (its own slot included); a layer adds its own window, from
    positions. `gather` keeps the slots rows[b, 0], rows[b, 1], ... (int32 [B, R], R <= S) of row b, in that order, as
    slots 0, 1, ...; -1 ends a row's list. Where a model has an attribute `params`, that is what to pass as `params`.

    Sampling keeps what it jits for a model for as long as the model lives, and tells models apart by identity, whatever
    `==` says. So a model can be referred to weakly (a class with `__slots__` needs "__weakref__" among them), and what
    `apply` reads of it, `params` aside, does not change.
    """

    vocab_size: int

    def init_cache(self, batch: int, length: int) -> Any: ...

    def apply(self, params: Any, tokens: Array, positions: Array, cache: Any, mask: Array) -> tuple[Array, Any]: ...

    def gather(self, cache: Any, rows: Array) -> Any: ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cache:
    """The filled slots of each row, and what the layers remember of them."""

    length: Int32[Array, " batch"]
    layers: Any
    capacity: int = field(metadata={"static": True})

    def rolled_back(self, count: int) -> Cache:
        """The same with the first `count` slots of each row, without a copy."""
        return Cache(jnp.full_like(self.length, count), self.layers, self.capacity)


Forward = Callable[..., tuple[Array, Any]]
"""(params, tokens, positions, layers, mask, slots int32 [B, T]) -> (logits [B, T, V], layers)

A token whose slot is S or more is not written: use `write_slots`, or `.at[...].set(..., mode="drop")`.
"""


def write_slots(array: Array, slots: Int32[Array, "batch new"], values: Array) -> Array:
    """Writes values [B, T, ...] into array [B, S, ...] at `slots`; what lies outside is dropped."""
    rows = jnp.arange(array.shape[0], dtype=jnp.int32)[:, None]
    return array.at[rows, slots].set(values.astype(array.dtype), mode="drop")


def gather_slots(array: Array, rows: Int32[Array, "batch kept"], axis: int = 1) -> Array:
    """Moves slots `rows` of `axis` to the front of it. What lies behind the kept ones means nothing."""
    index = jnp.clip(rows, 0, array.shape[axis] - 1)
    index = jnp.expand_dims(index, [i for i in range(1, array.ndim) if i != axis])
    moved = jnp.take_along_axis(array, index, axis=axis)
    return jax.lax.dynamic_update_slice_in_dim(array, moved, 0, axis=axis)


def causal_inputs(
    start: Int32[Array, " batch"], lengths: Int32[Array, " batch"], new: int, capacity: int
) -> tuple[Int32[Array, "batch new"], Bool[Array, "batch new slots"]]:
    """Positions and mask of ordinary text: row b goes on at slot and position start[b] with lengths[b] <= new tokens.

    For rows of different length, put the tokens of each row first and fill up to `new` with anything.
    """
    step = jnp.arange(new, dtype=jnp.int32)[None, :]
    slot = start[:, None] + step
    positions = jnp.where(step < lengths[:, None], slot, -1)
    mask = jnp.arange(capacity, dtype=jnp.int32)[None, None, :] <= slot[:, :, None]
    return positions, mask


@dataclass(frozen=True, eq=False)
class CausalLM:
    """A Model made of a forward function: it hands out slots, and checks shapes while it is traced.

    A token that finds no free slot gets NaN logits, never a wrong number. Compared and hashed by identity, so that it
    can be a static argument of `jax.jit`.
    """

    vocab_size: int
    params: Any
    forward: Forward
    init_layers: Callable[[int, int], Any]
    gather_layers: Callable[[Any, Array], Any] = lambda layers, rows: jax.tree.map(
        lambda leaf: gather_slots(leaf, rows), layers
    )
    context_length: int | None = None
    config: Any = None  # the DecoderConfig of a model of ours
    selects: bool = False  # `forward` takes `at`, too: see apply

    def __repr__(self) -> str:
        numbers = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        return f"CausalLM({self.vocab_size} logits, {numbers / 1e6:.1f} M parameters, context {self.context_length})"

    def init_cache(self, batch: int, length: int) -> Cache:
        """An empty cache of `length` slots for `batch` rows."""
        if batch < 1 or length < 1:
            raise InputError(f"init_cache(batch={batch}, length={length}): both must be at least 1")
        return Cache(jnp.zeros((batch,), jnp.int32), self.init_layers(batch, length), length)

    def apply(
        self,
        params: Any,
        tokens: Int32[Array, "batch new"],
        positions: Int32[Array, "batch new"],
        cache: Cache,
        mask: Bool[Array, "batch new slots"],
        at: Int32[Array, "batch some"] | None = None,
    ) -> tuple[Float[Array, "batch new vocab"], Cache]:
        """Forwards T tokens a row: prefill, a tree, or (T = 1) a decode step. See Model; logits are float32.

        With `at` the logits are those of these tokens of each row only, [B, K, vocab_size].

        Raises InputError, while tracing, for shapes and dtypes that do not fit together.
        """
        batch, new = _check(tokens, positions, cache, mask)
        real = positions >= 0
        slots = cache.length[:, None] + jnp.cumsum(real, axis=1, dtype=jnp.int32) - 1
        slots = jnp.where(real, slots, cache.capacity)
        inputs = params, tokens, positions, cache.layers, mask, slots
        if at is None:
            logits, layers = self.forward(*inputs)
        else:
            new = at.shape[1]
            if self.selects:
                logits, layers = self.forward(*inputs, at)
            else:
                every, layers = self.forward(*inputs)
                logits = jnp.take_along_axis(every, at[:, :, None], axis=1)
        if logits.shape != (batch, new, self.vocab_size):
            raise InputError(
                f"the model returned logits {list(logits.shape)} where [{batch}, {new}, vocab_size = {self.vocab_size}]"
                " was expected: pass the width of its output layer as vocab_size"
            )
        lost = real & (slots >= cache.capacity)
        lost = lost if at is None else jnp.take_along_axis(lost, at, axis=1)
        logits = jnp.where(lost[:, :, None], jnp.nan, logits.astype(jnp.float32))
        length = cache.length + jnp.sum(real, axis=1, dtype=jnp.int32)
        return logits, Cache(length, layers, cache.capacity)

    def gather(self, cache: Cache, rows: Int32[Array, "batch kept"]) -> Cache:
        """Keeps and reorders slots: accepts a tree path, rolls back. See Model. Costs a copy of R slots."""
        if rows.ndim != 2 or rows.shape[0] != cache.length.shape[0] or rows.shape[1] > cache.capacity:
            raise InputError(
                f"gather: rows has shape {list(rows.shape)}; expected [batch = {cache.length.shape[0]}, at most "
                f"{cache.capacity}]"
            )
        length = jnp.sum(rows >= 0, axis=1, dtype=jnp.int32)
        return Cache(length, self.gather_layers(cache.layers, rows), cache.capacity)

    @cached_property
    def step(self) -> Callable[..., tuple[Array, Cache]]:
        """`apply`, jitted, with the cache donated: the cache passed in must not be used again."""
        return jax.jit(self.apply, donate_argnames="cache")


def _check(tokens: Array, positions: Array, cache: Cache, mask: Array) -> tuple[int, int]:
    """Shapes and dtypes of apply's arguments; returns [B, T]."""
    if tokens.ndim != 2 or positions.shape != tokens.shape:
        raise InputError(
            f"tokens {list(tokens.shape)} and positions {list(positions.shape)} must both be [batch, new tokens]"
        )
    batch, new = tokens.shape
    expected = (batch, new, cache.capacity)
    if mask.shape != expected or mask.dtype != jnp.bool_:
        raise InputError(
            f"mask is {mask.dtype} {list(mask.shape)}; expected bool {list(expected)}: [batch, new tokens, cache slots]"
        )
    if cache.length.shape != (batch,):
        raise InputError(f"tokens have {batch} rows and the cache {cache.length.shape[0]}")
    for name, array in (("tokens", tokens), ("positions", positions)):
        if array.dtype != jnp.int32:
            raise InputError(f"{name} are {array.dtype}; expected int32")
    return batch, new
