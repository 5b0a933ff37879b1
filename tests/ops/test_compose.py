"""Composed automata against a plain loop."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from toktier_jax.ops.compose import RADIX, automaton_states

states_of = jax.jit(automaton_states, static_argnames="identity")


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


def random_automaton(states: int, rows: int, dtype: type) -> np.ndarray:
    """uint [rows + 1, states]: random functions, then the identity."""
    table = np.random.default_rng(states).integers(0, states, (rows + 1, states))
    table[-1] = np.arange(states)
    return table.astype(dtype)


def states_by_loop(rows: np.ndarray, table: np.ndarray, entry: int) -> np.ndarray:
    states = np.empty(len(rows), table.dtype)
    for i, row in enumerate(rows):
        entry = states[i] = table[row, entry]
    return states


@pytest.mark.parametrize("size", [1, RADIX, RADIX + 1, RADIX**2 + 1, RADIX**3 - 5])
def test_every_size(size: int):
    table = random_automaton(7, 20, np.uint8)
    rows = np.random.default_rng(size).integers(0, 20, size).astype(np.uint16)
    np.testing.assert_array_equal(states_of(rows, table, np.uint8(3), identity=20), states_by_loop(rows, table, 3))


def test_states_beyond_a_byte():
    table = random_automaton(300, 9, np.uint16)
    rows = np.random.default_rng(0).integers(0, 10, 500).astype(np.int32)
    states = states_of(rows, table, np.uint16(299), identity=9)
    assert states.dtype == np.uint16
    np.testing.assert_array_equal(states, states_by_loop(rows, table, 299))


def test_a_cycle_keeps_its_phase():
    r"""A counter modulo 3, as in `\p{N}{1,3}`: nothing on the way forgets where it began."""
    table = np.array([[1, 2, 0], [0, 1, 2]], np.uint8)
    states = states_of(np.zeros(5000, np.int32), table, np.uint8(0), identity=1)
    np.testing.assert_array_equal(states, np.arange(1, 5001) % 3)


def test_maps_over_a_batch():
    table = random_automaton(5, 8, np.uint8)
    rows = np.random.default_rng(1).integers(0, 8, (3, 100)).astype(np.int32)
    entries = np.array([0, 4, 2], np.uint8)
    states = jax.jit(jax.vmap(lambda r, e: automaton_states(r, jax.numpy.asarray(table), e, identity=8)))(rows, entries)
    for got, row, entry in zip(states, rows, entries, strict=True):
        np.testing.assert_array_equal(got, states_by_loop(row, table, entry))
