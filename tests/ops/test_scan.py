"""Scans against numpy, in both lowerings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toktier_jax.ops.scan import Lowering, prefix_sum, running_max, running_min

VALUES = np.random.default_rng(0).integers(-(2**31), 2**31 - 1, 1000).astype(np.int32)


@pytest.mark.parametrize("lowering", ["arrays", "walk"])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_extremes(lowering: Lowering, reverse: bool) -> None:
    step = -1 if reverse else 1
    for function, expected in ((running_max, np.maximum), (running_min, np.minimum)):
        found = jax.jit(function, static_argnames=("lowering", "reverse"))(VALUES, lowering=lowering, reverse=reverse)
        assert (np.asarray(found) == expected.accumulate(VALUES[::step])[::step]).all()


@pytest.mark.parametrize("lowering", ["arrays", "walk"])
def test_prefix_sum(lowering: Lowering) -> None:
    values = VALUES % 100
    rows = jnp.asarray(np.stack([values, values[::-1]]))
    found = jax.jit(jax.vmap(lambda row: prefix_sum(row, lowering=lowering)))(rows)
    assert (np.asarray(found) == np.cumsum(np.asarray(rows), axis=1)).all()
    assert found.dtype == jnp.int32
