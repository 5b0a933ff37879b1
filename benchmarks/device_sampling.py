"""What device.py measures of sampling: the mask in the sampling step, and one draw at a prompt's boundary. No model.

Times are of many steps in one jitted loop, each of which depends on the one before: nothing is hoisted, and what it
costs to start a call is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from toktier_jax.sampling.draw import choose, in_ranges
from toktier_jax.sampling.leaves import LeafTables, draw_leaf

from . import report

COLUMNS = ("row", "step_us", "added_us", "limit_us", "ok")
LIMIT_US = 15.0
"""What the mask may add to a step at the largest case."""
NODES, LEAVES = 32, 1024


def measure(*, small: bool) -> Iterator[dict[str, Any]]:
    """The rows: the step with the mask, and the draw among a prompt's leaves."""
    vocabulary, batch, steps = (1000, 2, 3) if small else (262_144, 64, 200)
    plain, masked = step_us(vocabulary, batch, steps)
    added = masked - plain
    yield {
        "row": f"greedy step with the mask, {vocabulary:,} x {batch}",
        "step_us": masked,
        "added_us": added,
        "limit_us": LIMIT_US,
        "ok": added < LIMIT_US,
    }
    vocabulary, steps = (1000, 3) if small else (49_152, 200)
    yield {
        "row": f"boundary draw, {vocabulary:,} x {NODES} nodes, {LEAVES} leaves",
        "step_us": draw_us(vocabulary, steps),
    }


def step_us(vocabulary: int, batch: int, steps: int) -> tuple[float, float]:
    """Microseconds of a greedy step without the mask, and with another range for each row."""
    random = np.random.default_rng(0)
    ranks = jnp.asarray(random.permutation(vocabulary).astype(np.int32))
    low = random.integers(0, vocabulary // 2, batch)
    ranges = jnp.asarray(np.stack([low, low + vocabulary // 8, low - 1], axis=1).astype(np.int32))
    spans, barred = jnp.ones((vocabulary,), jnp.int32), jnp.zeros((batch, 0), jnp.int32)
    logits = jnp.asarray(random.standard_normal((batch, vocabulary), np.float32))
    keys = jax.random.split(jax.random.key(0), batch)
    pick = functools.partial(choose, keys=keys, temperature=jnp.float32(1), truncation=None, greedy=True)

    def plain(token: jax.Array, logits: jax.Array) -> jax.Array:
        return pick(_after(logits, token))

    def masked(token: jax.Array, logits: jax.Array) -> jax.Array:
        allowed = in_ranges(ranks, spans, ranges + jnp.minimum(token, 0)[:, None], barred)
        return pick(jnp.where(allowed, _after(logits, token), -jnp.inf))

    start = jnp.zeros((batch,), jnp.int32)
    return _us(plain, start, logits, steps), _us(masked, start, logits, steps)


def draw_us(vocabulary: int, steps: int) -> float:
    """Microseconds of a draw from C(P) for one prompt with a chain of nodes."""
    random = np.random.default_rng(0)
    logits = jnp.asarray(random.standard_normal((1, NODES, vocabulary), np.float32))
    ranks = jnp.arange(vocabulary, dtype=jnp.int32)
    above = np.tril(np.ones((NODES, NODES), bool))
    above[:, 0] = False
    tables = LeafTables(
        tokens=random.integers(0, vocabulary, (1, NODES)).astype(np.int32),
        parents=np.maximum(np.arange(NODES, dtype=np.int32) - 1, 0)[None],
        above=above[None],
        nodes=random.integers(0, NODES, (1, LEAVES)).astype(np.int32),
        leaves=random.integers(0, vocabulary, (1, LEAVES)).astype(np.int32),
        ranges=np.tile(np.array([0, vocabulary // 50], np.int32), (1, NODES, 1)),
    )
    tables = jax.tree.map(jnp.asarray, tables)
    keys = jax.random.split(jax.random.key(0), 1)
    one, off = jnp.float32(1), (jnp.int32(0), jnp.float32(1), jnp.float32(0))

    def draw(token: jax.Array, logits: jax.Array) -> jax.Array:
        return draw_leaf(
            _after(logits, token[:, None]), jnp.ones((vocabulary,), bool), ranks, tables, keys, one, off, one,
            greedy=False, truncate=False, penalize=False,
        )[0]  # fmt: skip

    return _us(draw, jnp.zeros((1,), jnp.int32), logits, steps)


def _after(logits: jax.Array, token: jax.Array) -> jax.Array:
    """The same logits, to all purposes, but known only once the last token is."""
    return logits + 1e-30 * token[..., None].astype(jnp.float32)


def _us(step: Callable[..., jax.Array], start: jax.Array, logits: jax.Array, steps: int) -> float:
    @jax.jit
    def run(token: jax.Array, logits: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, steps, lambda _, token: step(token, logits), token)

    jax.block_until_ready(run(start, logits))
    times = report.seconds_of(lambda: jax.block_until_ready(run(start, logits)))
    return 1e6 * report.median(times) / steps
