"""The mask of the first step by vocabulary ranges against a padded index list, both in the sampling step.

python -m benchmarks.mask [--small]
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from toktier_jax.sampling.draw import choose, in_ranges

from . import report

VOCABULARIES = (50_000, 128_000, 262_144)
BATCHES = (1, 8, 64, 256)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one small case, for tests")
    parser.add_argument("--out", type=Path, default=None, help="folder of the results")
    arguments = parser.parse_args(argv)
    sizes = [(1000, 2)] if arguments.small else [(v, b) for v in VOCABULARIES for b in BATCHES if v * b <= 1 << 24]
    rows = [measure(vocabulary, batch, 3 if arguments.small else report.REPEATS) for vocabulary, batch in sizes]
    print(report.table(rows, list(rows[0])))
    checks = {
        "at the largest vocabulary and batch ranges are as fast as index lists, lists included": rows[-1][
            "lists / ranges"
        ]
        >= 1,
    }
    for name, ok in checks.items():
        print("ok    " if ok else "MISSED", name)
    report.write("mask-small" if arguments.small else "mask", {"rows": rows, "checks": checks}, arguments.out)
    return 0


def measure(vocabulary: int, batch: int, repeats: int = report.REPEATS) -> dict[str, Any]:
    """Microseconds of one greedy draw without a mask, with ranges, and with lists built for the call."""
    random = np.random.default_rng(0)
    logits = jnp.asarray(random.standard_normal((batch, vocabulary), np.float32))
    order = random.permutation(vocabulary).astype(np.int32)
    ranks = np.empty(vocabulary, np.int32)
    ranks[order] = np.arange(vocabulary, dtype=np.int32)
    low = random.integers(0, vocabulary // 2, batch)
    width = np.minimum(random.integers(1, vocabulary // 8, batch), vocabulary - low)
    ranges = np.stack([low, low + width, np.zeros(batch, int)], axis=1).astype(np.int32)  # the prefix: rank 0
    barred = jnp.zeros((batch, 0), jnp.int32)
    keys = jax.random.split(jax.random.key(0), batch)
    one = jnp.float32(1.0)
    pick = functools.partial(choose, keys=keys, temperature=one, truncation=None, greedy=True)

    @jax.jit
    def plain(logits: jax.Array) -> jax.Array:
        return pick(logits)

    @jax.jit
    def by_range(logits: jax.Array, ranks: jax.Array, spans: jax.Array, ranges: jax.Array) -> jax.Array:
        return pick(jnp.where(in_ranges(ranks, spans, ranges, barred), logits, -jnp.inf))

    @jax.jit
    def by_list(logits: jax.Array, ids: jax.Array) -> jax.Array:
        rows = jnp.arange(batch, dtype=jnp.int32)[:, None]
        return pick(jnp.where(jnp.zeros(logits.shape, bool).at[rows, ids].set(True, mode="drop"), logits, -jnp.inf))

    def lists() -> np.ndarray:
        size = 1 << int(width.max() + 1 - 1).bit_length()
        ids = np.full((batch, size), vocabulary, np.int32)
        for row in range(batch):
            ids[row, : width[row]] = order[low[row] : low[row] + width[row]]
            ids[row, width[row]] = order[0]
        return ids

    on_device, spans = jnp.asarray(ranks), jnp.ones((vocabulary,), jnp.int32)
    calls: dict[str, Callable[[], Any]] = {
        "plain": lambda: plain(logits),
        "ranges": lambda: by_range(logits, on_device, spans, ranges),
        "lists": lambda: by_list(logits, lists()),
    }
    same = np.array_equal(np.asarray(calls["ranges"]()), np.asarray(calls["lists"]()))
    if not same:
        raise RuntimeError("the two masks draw different tokens")
    times = {}
    for name, call in calls.items():
        jax.block_until_ready(call())
        times[name] = 1e6 * report.median(report.seconds_of(lambda call=call: jax.block_until_ready(call()), repeats))
    return {
        "vocabulary": vocabulary,
        "batch": batch,
        "plain us": times["plain"],
        "ranges us": times["ranges"],
        "added us": times["ranges"] - times["plain"],
        "lists us": times["lists"],
        "lists / ranges": times["lists"] / times["ranges"],
    }


if __name__ == "__main__":
    raise SystemExit(main())
