"""Bit sets of positions, and their members chunk by chunk, against plain numpy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toktier_jax.ops import members
from toktier_jax.ops.pieces import members_of, take_members
from toktier_jax.ops.scan import Lowering

SIZES = (32, 32 * 1057)  # one word, three levels of sums


def random_mask(size: int, density: float) -> np.ndarray:
    return np.random.default_rng([size, int(density * 100)]).random(size) < density


@jax.jit
def facts(mask: jax.Array, more: jax.Array) -> dict[str, Any]:
    words = members.pack(mask)
    every, index = members.ranked(words), jnp.arange(mask.shape[0], dtype=jnp.int32)
    return {
        "unpacked": members.unpack(words),
        "total": members.total(every),
        "before": members.ranks(every),
        "before some": members.rank_of(every, index),
        "up to": members.rank_of(every, index, own=True),
        "contains": members.contains(words, index),
        "inside": members.unpack(members.insides(words)),
        "more": members.unpack(members.toggle(words, index, more & ~mask)),
    }


@pytest.mark.parametrize("size", SIZES)
def test_sets(size: int) -> None:
    for density in (0.0, 0.01, 0.5, 1.0):
        mask, more = random_mask(size, density), random_mask(size, 0.3)
        found = jax.tree.map(np.asarray, facts(mask, more))
        upto = np.cumsum(mask)
        assert int(found["total"]) == mask.sum()
        for name, expected in (
            ("unpacked", mask), ("contains", mask), ("before", upto - mask), ("before some", upto - mask),
            ("up to", upto), ("inside", upto % 2 == 1), ("more", mask | more),
        ):  # fmt: skip
            np.testing.assert_array_equal(found[name], expected, name)


@pytest.mark.parametrize("size", [32, 33_000])
def test_sums_and_maxima_of_what_is_before(size: int) -> None:
    values = np.random.default_rng(size).integers(-5, 1000, size).astype(np.int32)
    np.testing.assert_array_equal(members.sums_before(jnp.asarray(values)), np.cumsum(values) - values)
    values = np.maximum(values, 0)
    expected = np.append(np.int32(-1), np.maximum.accumulate(values)[:-1])
    np.testing.assert_array_equal(members.max_before(jnp.asarray(values)), expected)


@pytest.mark.parametrize("lowering", ["walk", "arrays"])
def test_members_are_taken_in_order(lowering: Lowering) -> None:
    """In chunks, with padding where there are no more, also where words are empty or full."""
    size, chunk = 4096, 300

    @jax.jit
    def step(mask: jax.Array, cursor: Any) -> Any:
        every, none = members_of(members.pack(mask))
        at = jax.tree.map(lambda new, first: jnp.where(cursor.taken == 0, first, new), cursor, none)
        return take_members(every, at, chunk, jnp.int32(-7), lowering=lowering)

    for density in (0.0, 0.002, 0.5, 1.0):
        mask = random_mask(size, density)
        mask[1024:1100] = False
        expected = np.flatnonzero(mask)
        _, cursor = members_of(members.pack(jnp.asarray(mask)))
        for start in range(0, max(len(expected), 1), chunk):
            part, cursor = step(mask, cursor)
            here = expected[start : start + chunk]
            assert part.tolist() == [*here.tolist(), *[-7] * (chunk - len(here))]
            assert int(cursor.taken) == start + len(here)
