"""The mask of healing: which tokens it allows, and that it is one fused, elementwise step."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toktier_jax.errors import InputError
from toktier_jax.sampling.draw import choose, in_ranges
from toktier_jax.sampling.healing import heal_tables
from toktier_jax.sampling.vocabulary import Vocabulary

BATCH, SIZE = 4, 4096


def spellable(strings: list[bytes], rest: bytes) -> bool:
    return not rest or any(
        string.startswith(rest) or (rest.startswith(string) and spellable(strings, rest[len(string) :]))
        for string in strings
        if string
    )


def test_the_mask_allows_what_can_spell_the_rest_and_nothing_else(scale: float) -> None:
    """Vocabularies with equal tokens, ids without bytes, and prefixes after which the rest cannot be spelled."""
    rng = random.Random(4)
    checked = barred = 0
    for _ in range(int(30 * max(1, scale))):
        count = rng.randrange(2, 40)
        strings = [bytes(rng.choices(b"ab\xff", k=rng.randrange(0, 5))) for _ in range(count)] + [b""] * (40 - count)
        vocabulary = Vocabulary(tuple(strings), frozenset(), frozenset(), {})
        rests = [bytes(rng.choices(b"ab\xff", k=rng.randrange(0, 6))) for _ in range(3)]
        if not all(spellable(strings, rest) for rest in rests):
            with pytest.raises(InputError):
                heal_tables(vocabulary, rests)
            continue
        tables = heal_tables(vocabulary, rests)
        barred += tables.barred.size
        found = in_ranges(
            jnp.asarray(vocabulary.ranks),
            jnp.asarray(vocabulary.spans),
            jnp.asarray(tables.ranges.reshape(-1, 3)),
            jnp.asarray(tables.barred.reshape(tables.left.size, -1)),
        )
        allowed = np.asarray(found).reshape(*tables.left.shape, -1)
        for row, rest in enumerate(rests):
            for offset in range(len(rest)):
                left = rest[offset:]
                expected = [
                    bool(s)
                    and (s.startswith(left) or (left.startswith(s) and spellable(strings, left[len(s) :])))
                    for s in strings
                ]
                assert allowed[row, offset].tolist() == expected
                checked += 1
    assert checked > 50
    assert barred > 0


def test_the_masked_step_has_no_scatter_and_no_mask_in_memory() -> None:
    arguments = (
        jnp.zeros((BATCH, SIZE), jnp.float32),
        jnp.arange(SIZE, dtype=jnp.int32),
        jnp.ones((SIZE,), jnp.int32),
        jnp.zeros((BATCH, 3), jnp.int32),
        jnp.zeros((BATCH, 2), jnp.int32),
    )
    keys = jax.random.split(jax.random.key(0), BATCH)

    def step(logits: jax.Array, *mask: jax.Array) -> jax.Array:
        return choose(
            jnp.where(in_ranges(*mask), logits, -jnp.inf), keys, jnp.float32(1), truncation=None, greedy=True
        )

    compiled = jax.jit(step).lower(*arguments).compile()
    assert " scatter(" not in compiled.as_text()
    assert compiled.memory_analysis().temp_size_in_bytes < BATCH * SIZE
