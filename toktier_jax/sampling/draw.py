"""One draw from logits on the device: masks, penalty, temperature, truncation, log-probs. Pure functions on arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int32

_NEVER = -jnp.inf


def row_keys(seed: int, batch: int) -> Array:
    """Typed PRNG keys [batch] of a seed of 64 bits."""
    low, high = (jnp.uint32(seed >> shift & 0xFFFFFFFF) for shift in (0, 32))
    key = jax.random.key(low)
    key = jax.random.fold_in(key, high) if high else key
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(batch, dtype=jnp.int32))


def in_ranges(
    ranks: Int32[Array, " vocab"],
    spans: Int32[Array, " vocab"],
    ranges: Int32[Array, "batch 3"],
    barred: Int32[Array, "batch few"],
) -> Bool[Array, "batch vocab"]:
    """The tokens that may come, for rows of (lo, hi, last): those whose rank lies in [lo, hi), and those that are
    prefixes of the token of rank `last` (none for -1), itself included; without the row's `barred` ids.

    In the vocabulary sorted by bytes a token is a prefix of the `spans` tokens from its own rank on, so that both are a
    range: elementwise, without gather or scatter, fused into whatever reads it. `barred` has a comparison a column.
    """
    low, high, last = (ranges[:, k : k + 1] for k in range(3))
    allowed = _within(ranks[None, :] - low, high - low) | _within(last - ranks[None, :], spans[None, :])
    ids = jnp.arange(ranks.shape[0], dtype=jnp.int32)[None, :]
    for column in range(barred.shape[1]):
        allowed &= ids != barred[:, column : column + 1]
    return allowed


def _within(offset: Array, size: Array) -> Array:
    """0 <= offset < size, in one comparison: below 0 is above every size without a sign."""
    return lax.bitcast_convert_type(offset, jnp.uint32) < lax.bitcast_convert_type(size, jnp.uint32)


def penalized(
    logits: Float[Array, "batch vocab"], seen: Bool[Array, "batch vocab"], penalty: Float[Array, ""]
) -> Float[Array, "batch vocab"]:
    """The repetition penalty of CTRL (arXiv 1909.05858): logits of tokens seen before are divided or multiplied."""
    lower = jnp.where(logits > 0, logits / penalty, logits * penalty)
    return jnp.where(seen, lower, logits)


def truncated(
    scores: Float[Array, "batch n"], top_k: Int32[Array, ""], top_p: Float[Array, ""], min_p: Float[Array, ""]
) -> Float[Array, "batch n"]:
    """The scores with -inf for what top-k, then top-p, then min-p leave out; equal scores share a fate.

    The best always stays: top_p = 0 leaves it alone.
    Thresholds are found by bisection on the bits of the probabilities, which order as the numbers do: no sort.
    """
    probabilities = jax.nn.softmax(scores, axis=-1)
    bits = lax.bitcast_convert_type(probabilities, jnp.int32)
    size = jnp.int32(scores.shape[-1])
    k = jnp.where(top_k > 0, jnp.minimum(top_k, size), size)
    keep = bits >= _threshold(bits, lambda above: jnp.sum(above, axis=-1, dtype=jnp.int32) >= k)[:, None]
    probabilities = jnp.where(keep, probabilities, 0.0)
    probabilities = probabilities / jnp.sum(probabilities, axis=-1, keepdims=True)
    bits = lax.bitcast_convert_type(probabilities, jnp.int32)
    least = _threshold(bits, lambda above: jnp.sum(jnp.where(above, probabilities, 0.0), axis=-1) >= top_p)
    keep &= (bits >= least[:, None]) | (top_p >= 1.0)
    keep &= probabilities >= min_p * jnp.max(probabilities, axis=-1, keepdims=True)
    keep |= scores >= jnp.max(scores, axis=-1, keepdims=True)
    return jnp.where(keep, scores, _NEVER)


def _threshold(bits: Int32[Array, "batch n"], enough) -> Int32[Array, " batch"]:
    """The largest number such that `enough` holds of the elements that are at least it; 0 where none is."""

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = low + (high - low) // 2
        holds = enough(bits >= middle[:, None])
        return jnp.where(holds, middle, low), jnp.where(holds, high, middle)

    low = jnp.zeros(bits.shape[:1], jnp.int32)
    return lax.fori_loop(0, 31, halve, (low, low + jnp.int32(0x3F800001)))[0]


def choose(
    scores: Float[Array, "batch n"],
    keys: Array,
    temperature: Float[Array, ""],
    truncation: tuple[Array, Array, Array] | None,
    *,
    greedy: bool,
) -> Int32[Array, " batch"]:
    """One index a row, by softmax(scores / temperature) after truncation; the first maximum if `greedy`.

    `keys` [batch] are typed PRNG keys; `truncation` is (top_k, top_p, min_p).
    """
    if greedy:
        return jnp.argmax(scores, axis=-1).astype(jnp.int32)
    scores = scores / temperature
    if truncation is not None:
        scores = truncated(scores, *truncation)
    noise = jax.vmap(lambda key: jax.random.gumbel(key, scores.shape[1:], jnp.float32))(keys)
    return jnp.argmax(scores + noise, axis=-1).astype(jnp.int32)
