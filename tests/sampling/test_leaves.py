"""One draw among leaves: what truncation, temperature and bad logits do to a node's path, on two nodes by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toktier_jax.sampling.leaves import LeafTables, draw_leaf

VOCAB = 8
TABLES = LeafTables(  # the trunk, and a node after its token 5; the leaves are token 1 of the first and 2 of the second
    tokens=np.array([[0, 5]], np.int32),
    parents=np.zeros((1, 2), np.int32),
    above=np.array([[[False, False], [False, True]]]),
    nodes=np.array([[0, 1, -1, -1]], np.int32),
    leaves=np.array([[1, 2, 0, 0]], np.int32),
    ranges=np.array([[[1, 2], [2, 3]]], np.int32),
)


def logits() -> np.ndarray:
    """Token 5 is improbable after the trunk, but less so than token 1; after it comes token 2, nearly always."""
    found = np.zeros((1, 2, VOCAB), np.float32)
    found[0, 0, [0, 5, 1]] = 5.0, 1.0, 0.0
    found[0, 1, 2] = 10.0
    return found


def draw(
    logits: np.ndarray,
    known: np.ndarray | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    tables: LeafTables = TABLES,
) -> list[float]:
    """Leaf, its share, log of the mass, dropped share."""
    truncation = jnp.int32(top_k), jnp.float32(1), jnp.float32(0)
    found = draw_leaf(
        jnp.asarray(logits), jnp.asarray(np.ones(VOCAB, bool) if known is None else known),
        jnp.arange(VOCAB, dtype=jnp.int32), jax.tree.map(jnp.asarray, tables), jax.random.split(jax.random.key(0), 1),
        jnp.float32(temperature), truncation, jnp.float32(1), greedy=False, truncate=top_k > 0, penalize=False,
    )  # fmt: skip
    return [float(array[0]) for array in found]


def test_truncation_leaves_out_no_inner_node() -> None:
    """Filtered inner nodes beside unfiltered leaves would lose the better leaf: token 5 is not among the best."""
    assert draw(logits(), top_k=1)[0] == 1


def weights(temperature: float = 1.0) -> np.ndarray:
    """log w of the two leaves."""
    rows = logits().astype(np.float64) / temperature
    rows -= np.logaddexp.reduce(rows, axis=2, keepdims=True)
    return np.array([rows[0, 0, 1], rows[0, 0, 5] + rows[0, 1, 2]])


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_temperature_acts_once_on_every_conditional(temperature: float) -> None:
    count = 4096
    many = jax.tree.map(lambda array: jnp.asarray(np.repeat(array, count, axis=0)), (logits(), TABLES))
    truncation = jnp.int32(0), jnp.float32(1), jnp.float32(0)
    leaves = draw_leaf(
        many[0], jnp.ones(VOCAB, bool), jnp.arange(VOCAB, dtype=jnp.int32), many[1],
        jax.random.split(jax.random.key(0), count), jnp.float32(temperature), truncation, jnp.float32(1),
        greedy=False, truncate=False, penalize=False,
    )[0]  # fmt: skip
    scores = weights(temperature)
    share = np.exp(scores[0] - np.logaddexp.reduce(scores))
    assert float((leaves == 0).mean()) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / count))


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_numbers_are_at_temperature_1(temperature: float) -> None:
    leaf, share, total, dropped = draw(logits(), temperature=temperature)
    assert total == pytest.approx(np.logaddexp.reduce(weights()), abs=1e-5)
    assert share == pytest.approx(weights()[int(leaf)] - np.logaddexp.reduce(weights()), abs=1e-5)
    assert dropped == pytest.approx(0.0, abs=1e-5)


def test_what_a_constraint_forbids_is_not_dropped_mass() -> None:
    total, dropped = draw(logits())[2:]
    leaf, share, *after = draw(logits(), tables=TABLES._replace(kept=np.array([[True, False, False, False]])))
    assert (leaf, share) == (0.0, 0.0)
    assert after == [total, dropped]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_logits_give_nan_but_not_where_there_is_no_token(value: float) -> None:
    found = logits()
    found[0, 1, 7] = value
    assert np.isnan(draw(found)[2])
    known = np.ones(VOCAB, bool)
    known[7] = False
    assert np.isfinite(draw(found, known)[2])
