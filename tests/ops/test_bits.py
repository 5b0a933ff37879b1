"""Bit sets against plain numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toktier_jax.ops import bits

DENSITIES = [0.0, 0.001, 0.03, 0.5, 1.0]
SIZES = [1, 1024, 5000]


def random_mask(size: int, density: float) -> np.ndarray:
    return np.random.default_rng([size, int(density * 1000)]).random(size) < density


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@jax.jit
def everything(mask, positions):
    words = bits.pack(mask)
    index = bits.ranked(words)
    inside = positions[:-1]
    return {
        "unpacked": bits.unpack(words, mask.shape[0]),
        "count": index.count,
        "ranks": bits.rank(index, positions),
        "chosen": bits.select(index, jnp.int32(0), positions.shape[0]),
        "after": bits.next_member(bits.forward(words), inside),
        "before": bits.last_member(bits.backward(words), inside),
    }


@pytest.mark.parametrize("size", SIZES)
def test_rank_select_and_neighbours(size: int):
    for density in DENSITIES:
        mask, positions = random_mask(size, density), np.arange(size + 1, dtype=np.int32)
        members, nowhere = np.flatnonzero(mask), bits.word_count(size) * 32
        want = {
            "unpacked": mask,
            "count": len(members),
            "ranks": np.concatenate([[0], np.cumsum(mask)]),
            "chosen": np.append(members, [nowhere] * (size + 1 - len(members))),
            "after": np.append(members, nowhere)[np.searchsorted(members, positions[:-1])],
            "before": np.concatenate([[-1], members])[np.searchsorted(members, positions[:-1], side="right")],
        }
        got = everything(jnp.asarray(mask), jnp.asarray(positions))
        for name, value in want.items():
            assert np.array_equal(got[name], value), (name, density)


def test_fill():
    size = 3000
    filled = jax.jit(lambda edges: bits.unpack(bits.fill(bits.pack(edges)), size))
    for count in [0, 1, 40, 1400]:
        ends = np.sort(np.random.default_rng(count).choice(size, 2 * count, replace=False))
        edges, inside = np.zeros(size, bool), np.zeros(size, bool)
        edges[ends] = True
        for start, stop in ends.reshape(-1, 2):
            inside[start:stop] = True
        assert np.array_equal(filled(jnp.asarray(edges)), inside)
