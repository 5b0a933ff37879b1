"""BPE in rounds over windows against its definition, with random rules: cascades, ties, pieces longer than a window."""

from __future__ import annotations

import functools
import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toktier_jax as tt
from tests.reference.models import merge
from toktier_jax.ops.merge import Flat
from toktier_jax.ops.merge_arrays import merge_arrays

WINDOW, CAPACITY = 96, 512
"""Room for 64 tokens a window."""


class Rules:
    """Random merges of a small alphabet: listed ones, in which a token's rank may be above those it is merged on at."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        letters = "abc"[: rng.choice((1, 2, 3))]
        values = list(letters)
        merges: list[tuple[str, str]] = []
        for _ in range(rng.randint(1, 14)):
            pair = (rng.choice(values), rng.choice(values))
            if len("".join(pair)) <= 8 and pair not in merges:
                merges.append(pair)
                values += ["".join(pair)] * ("".join(pair) not in values)
        rng.shuffle(merges)
        vocab = {value: id for id, value in enumerate(values)}
        model = {"type": "BPE", "vocab": vocab, "merges": [" ".join(pair) for pair in merges]}
        self.program = tt.Tokenizer.from_bytes(json.dumps({"model": model}).encode()).program
        self.letters, self.vocab, self.rng = letters, vocab, rng
        self.joined = {(vocab[a], vocab[b]): (rank, vocab[a + b]) for rank, (a, b) in enumerate(merges)}

    def piece(self, longest: int) -> str:
        size = self.rng.randint(1, longest)
        if self.rng.random() < 0.3:
            return self.rng.choice(self.letters) * size
        return "".join(self.rng.choices(self.letters, k=size))


@functools.partial(jax.jit, static_argnums=0)
def run(plan, merges, rows, count):
    tokens = jnp.full(CAPACITY, -1, jnp.int32)
    return merge_arrays(plan, merges, Flat(rows, count), tokens, window=WINDOW)


def check(rules: Rules, pieces: list[str]) -> bool:
    """Whether all was decided; then the tokens are those of the definition."""
    plan, tables = rules.program.plan.model, rules.program.tables.model
    rows, want, at = np.zeros((CAPACITY + WINDOW, 2 + plan.cascades), np.int32), np.full(CAPACITY, -1), 0
    for piece in pieces:
        symbols = [(rules.vocab[letter], 1) for letter in piece]
        for i, (id, _) in enumerate(symbols):
            rows[at + i, :2] = id, (at + i) << 1 | (i == 0)
            rows[at + i, 2:] = -1
        merge(symbols, rules.joined)
        for id, size in symbols:
            want[at] = id
            at += size
    tokens, stuck = run(plan, tables.merges, rows, np.int32(at))
    assert stuck or np.array_equal(tokens, want), pieces
    return not stuck


def pieces_of(rules: Rules, longest: int, total: int) -> list[str]:
    pieces = list[str]()
    while total > 0:
        pieces.append(rules.piece(min(longest, total)))
        total -= len(pieces[-1])
    return pieces


@pytest.mark.parametrize("seed", range(6))
def test_pieces_that_fit_a_window(seed: int) -> None:
    """Of rules that cascade some merges cannot be decided, as in the other lowering; all others can."""
    rules = Rules(seed)
    for longest in (3, 12, 40):
        decided = check(rules, pieces_of(rules, longest, rules.rng.choice((40, 64, 500))))
        assert decided or rules.program.plan.model.cascades


@pytest.mark.parametrize("seed", range(6))
def test_pieces_longer_than_a_window(seed: int) -> None:
    rules = Rules(seed)
    for _ in range(4):
        check(rules, pieces_of(rules, 500, 500))


def test_a_run_longer_than_a_window() -> None:
    rules = next(of for of in map(Rules, range(100)) if of.joined.keys() == {(0, 0)})
    for size in (1, 2, 63, 64, 65, 127, 500):
        assert check(rules, ["a" * size])


def test_nothing_to_merge() -> None:
    assert check(Rules(0), [])
