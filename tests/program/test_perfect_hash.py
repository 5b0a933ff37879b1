"""Perfect hash tables of every small size: a bucket that fits nowhere once made the search endless."""

from __future__ import annotations

import numpy as np
import pytest

from toktier_jax.errors import SpecError
from toktier_jax.program import perfect_hash


@pytest.mark.parametrize("count", [0, 1, 2, 7, 33, 54, 60, 1000, 40_000])
def test_each_key_has_a_slot_of_its_own(count: int) -> None:
    random = np.random.default_rng(count)
    for _ in range(100 if count < 100 else 1):
        keys = np.unique(random.integers(0, 1 << 32, (2 * count, 2), np.uint32), axis=0)[:count]
        table = perfect_hash.build(list(keys.T))
        slots = table.slots(list(keys.T))
        assert len(np.unique(slots)) == count
        assert count == 0 or (slots.min() >= 0 and slots.max() < table.size)


def test_equal_keys_are_refused() -> None:
    with pytest.raises(SpecError, match="2 keys"):
        perfect_hash.build([np.array([7, 7], np.uint32)])
