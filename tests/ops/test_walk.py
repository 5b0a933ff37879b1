"""The walk in lanes against the two walks one character at a time (tests/reference/bimachine.py)."""

from __future__ import annotations

import functools
import itertools
import random
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.reference.bimachine import known, matches
from toktier_jax.errors import UnsupportedError
from toktier_jax.ops.walk import split_walk
from toktier_jax.program.automaton import Bimachine, compile_bimachine
from toktier_jax.program.classes import first_seen, probe
from toktier_jax.program.pattern import parse
from toktier_jax.program.walk import walk_tables
from toktier_jax.types import CONT, PAD, WalkTables

LETTERS = "aS1 \n'!é"
WORDS = r"'S|[^\n\p{L}\d]?\p{L}+|\d{1,3}| ?[^\s\p{L}\d]+\n*|\s*\n+|\s+(?!\S)|\s+"
PATTERNS = {
    "words": WORDS,
    "end": r"\s+$|1+",
    "gaps": r"a+S|1(?=\d\d)",
    "wide": r"\d{2,90}|\p{L}+",  # more than 256 states: 16-bit tables
}
SIZES = (1, 300, 2048)


class Walker(NamedTuple):
    machine: Bimachine
    numbers: dict[str, int]
    tables: WalkTables


@functools.cache
def walker(name: str) -> Walker:
    parsed = parse(PATTERNS[name], "oniguruma")
    masks = [probe(expression, "oniguruma") for expression in parsed.classes]
    rows, numbers = first_seen(np.array([[mask[ord(letter)] for mask in masks] for letter in LETTERS]))
    machine = compile_bimachine(parsed.root, rows)
    return Walker(
        machine, dict(zip(LETTERS, numbers.tolist(), strict=True)), walk_tables(machine, np.arange(len(rows)))
    )


@functools.cache
def compiled(at_end: bool):
    return jax.jit(functools.partial(split_walk, at_end=at_end))


def expected(walker: Walker, text: str, starts: set[int], frozen: set[int]) -> tuple[np.ndarray, np.ndarray]:
    """Piece starts and bytes of matches, segment by segment. Places are characters of `text`."""
    widths = [len(letter.encode()) for letter in text]
    byte = np.cumsum([0, *widths])
    begins, match = np.zeros(byte[-1], bool), np.zeros(byte[-1], bool)
    bounds = [*sorted(starts), len(text)]
    for start, stop in itertools.pairwise(bounds):
        begins[byte[start]] = True
        if start in frozen:
            continue
        pieces = matches(walker.machine, [walker.numbers[letter] for letter in text[start:stop]])
        ends = [at for at, _ in pieces[1:]] + [stop - start]
        for (at, is_match), end in zip(pieces, ends, strict=True):
            begins[byte[start + at]] = True
            match[byte[start + at] : byte[start + end]] = is_match
    return begins, match


def arrays(walker: Walker, text: str, starts: set[int], frozen: set[int], size: int) -> tuple[np.ndarray, ...]:
    """Symbols, segment starts and frozen bytes. Frozen segments are those whose start is in `frozen`."""
    symbols, begins, stays = np.full(size, PAD, np.uint8), np.zeros(size, bool), np.zeros(size, bool)
    at, still = 0, False
    for place, letter in enumerate(text):
        width = len(letter.encode())
        if place in starts:
            begins[at], still = True, place in frozen
        symbols[at : at + width] = [walker.numbers[letter], *[CONT] * (width - 1)]
        stays[at : at + width] = still
        at += width
    return symbols, begins, stays


def check(name: str, text: str, size: int, starts: set[int] = frozenset({0}), frozen: set[int] = frozenset()) -> None:  # type: ignore[assignment]  # frozen
    length = jnp.int32(len(text.encode()))
    begins, match = expected(walker(name), text, starts, frozen)
    given = map(jnp.asarray, arrays(walker(name), text, starts, frozen, size))
    found = compiled(at_end=True)(walker(name).tables, *given, length, length)
    for values, wanted in zip(found, (begins, match), strict=False):
        assert (np.asarray(values) == np.pad(wanted, (0, size - len(wanted)))).all()
    assert found[2] == length


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PATTERNS)
def test_random_texts(name: str, size: int) -> None:
    rng = random.Random(size)
    for _ in range(4):
        letters = rng.choices(LETTERS, k=rng.randint(1, max(1, size // 2 - 8)))
        text = "".join(letter * rng.choice((1, 1, 1, 2, 5)) for letter in letters)
        while len(text.encode()) > size:
            text = text[:-1]
        if not text:
            continue
        starts = {0, *(rng.randrange(len(text)) for _ in range(rng.choice((0, 3, 20))))}
        check(name, text, size, starts, {start for start in starts if rng.random() < 0.3})


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("text", ["1" * 2047, "a" + "1" * 2040, " " * 2046 + "a", " " * 2000, "a" * 2048, "é" * 1024])
def test_runs_that_keep_lanes_in_doubt(name: str, text: str) -> None:
    """Digits in threes keep a wrong phase for ever; a run of spaces is cut by what stands at its end."""
    check(name, text, 2048)


def test_long_buffers_are_walked_up_to_their_length() -> None:
    size = 40_000
    for text in ("ab 1111 \n'S!é"[0] + "a S1\n" * 900, "1" * 39_000, "a1 é" * 7_999 + "\n"):
        check("words", text, size)


def test_empty_text() -> None:
    empty = (jnp.full(300, PAD, jnp.uint8), jnp.zeros(300, bool).at[0].set(True), jnp.zeros(300, bool))
    begins, match, _ = compiled(at_end=True)(walker("words").tables, *empty, jnp.int32(0), jnp.int32(0))
    assert not np.asarray(begins | match).any()


@pytest.mark.parametrize("name", PATTERNS)
def test_known_up_to_the_limit(name: str) -> None:
    rng, size = random.Random(0), 300
    for _ in range(12):
        text = "".join(rng.choices(LETTERS, k=rng.randint(1, 60)))
        while not text.isascii() and rng.random() < 0.5:
            text = text.replace("é", "a", 1)
        cut = rng.randint(0, len(text))
        starts = {0} | ({rng.randrange(len(text))} if rng.random() < 0.5 else set())
        last = max(start for start in starts if start <= cut)
        classes = [walker(name).numbers[letter] for letter in text[last:cut]]
        wanted = cut if cut in starts else last + known(walker(name).machine, classes)
        given = map(jnp.asarray, arrays(walker(name), text, starts, set(), size))
        byte = [len(text[:place].encode()) for place in (len(text), cut, wanted)]
        found = compiled(at_end=False)(walker(name).tables, *given, jnp.int32(byte[0]), jnp.int32(byte[1]))
        assert found[2] == byte[2], (text, cut, starts)


def test_rows_of_a_batch() -> None:
    texts, size = ["a1111 S'S", "", "1" * 290, " \n é"], 300
    given = [
        np.stack(parts)
        for parts in zip(*(arrays(walker("words"), text, {0}, set(), size) for text in texts), strict=True)
    ]
    given[1][:, 0] = True
    lengths = jnp.asarray([len(text.encode()) for text in texts], jnp.int32)
    batched = jax.vmap(functools.partial(split_walk, at_end=True), in_axes=(None, 0, 0, 0, 0, 0))
    begins, match, _ = jax.jit(batched)(walker("words").tables, *given, lengths, lengths)
    for row, text in enumerate(texts):
        wanted = expected(walker("words"), text, {0}, set()) if text else (np.zeros(0, bool),) * 2
        for values, part in zip((begins, match), wanted, strict=True):
            assert (np.asarray(values[row]) == np.pad(part, (0, size - len(part)))).all(), text


def test_batched_tables_are_refused() -> None:
    tables = jax.tree.map(lambda table: np.stack([table, table]), walker("end").tables)
    given = (jnp.zeros((2, 8), jnp.uint8), jnp.zeros((2, 8), bool), jnp.zeros((2, 8), bool))
    with pytest.raises(UnsupportedError, match="same for all rows"):
        jax.vmap(functools.partial(split_walk, at_end=True))(tables, *given, *[jnp.full(2, 8, jnp.int32)] * 2)
