"""What is decided of a text stays, whatever follows it: generated patterns, every behaviour, against plain Python."""

from __future__ import annotations

import functools
import itertools
import random
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.program.test_automaton import generate
from tests.reference.pattern import find_matches
from toktier_jax.errors import UnsupportedError
from toktier_jax.ops.classify import classify
from toktier_jax.ops.scan import Lowering
from toktier_jax.ops.split import split
from toktier_jax.plan import SplitPlan
from toktier_jax.program.classes import Partition, partition
from toktier_jax.program.split import SplitStage, split_stages, split_tables
from toktier_jax.spec.types import Behavior, Pattern, Split
from toktier_jax.types import FROZEN, REMOVED, TEXT, Buffer, FunctionTables, SplitTables

ROWS, SIZE = 96, 32
LETTERS = "aS1 \né"
BEHAVIORS: tuple[Behavior, ...] = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
FIXED = [r"a+|\s", r"a(?:S+1)?", r"\s+$|1", r"(?:aS)+1|S", r"1{2}", r"\S+(?=\n)|a"]

Pieces = list[tuple[int, int, bool]]
"""Begin and end (bytes) of each piece, and whether it is removed."""


class Case(NamedTuple):
    """Two Splits, or one, as plain data and as tables for one partition."""

    steps: tuple[Split, ...]
    stages: list[SplitStage]
    classes: Partition


def case(steps: tuple[Split, ...]) -> Case:
    stages = split_stages(steps, "oniguruma")
    return Case(steps, stages, partition([mask for stage in stages for mask in stage.masks]))


def expected(steps: tuple[Split, ...], text: str, start: int = 0) -> Pieces:
    """The pieces of an open segment: reference matches, then the rule by its definition."""
    pieces: Pieces = [(0, len(text.encode()), False)] if text else []
    for step in steps:
        pieces = [new for piece in pieces for new in ([piece] if piece[2] else _cut(step, text.encode(), piece))]
    return [(begin + start, end + start, gone) for begin, end, gone in pieces]


def _cut(step: Split, data: bytes, piece: tuple[int, int, bool]) -> Pieces:
    begin, end, _ = piece
    found = find_matches({"Regex": step.pattern.text}, data[begin:end].decode())
    parts = [(begin + a, begin + b, matched != step.invert) for (a, b), matched in found]
    if step.behavior in ("Isolated", "Removed"):
        return [(a, b, matched and step.behavior == "Removed") for a, b, matched in parts]
    joined: Pieces = []
    before = False
    for a, b, matched in parts:
        joins = {
            "MergedWithPrevious": matched and not before,
            "MergedWithNext": before and not matched,
            "Contiguous": matched == before,
        }[step.behavior]
        joined = [*joined[:-1], (joined[-1][0], b, False)] if joins and joined else [*joined, (a, b, False)]
        before = matched
    return joined


@functools.cache
def compiled(plan: SplitPlan, lowering: Lowering, at_end: bool):
    def run(tables, data, starts, kind, length, decided, classes):
        symbols = classify(data, length, *classes, jnp.zeros(8, jnp.uint8), lowering="arrays")
        buffer = Buffer(data, length, starts, starts, kind, None, None, decided)
        buffer = split(plan, tables, buffer, symbols, at_end=at_end, lowering=lowering)
        return buffer.starts, buffer.kind, buffer.decided

    return jax.jit(jax.vmap(run, in_axes=(None, 0, 0, 0, 0, 0, None)))


def padded(tables: SplitTables) -> SplitTables:
    """Composed functions with states that are never reached: one shape for all patterns."""

    def wide(table: np.ndarray, columns: int) -> np.ndarray:
        return np.pad(table, [(0, 0), (0, columns - table.shape[1])]).astype(np.uint16)

    right, left, tail, begins = tables.functions
    states = 128
    within, begun, same = np.split(left, [len(left) // 2, len(left) - 1])
    rows = np.concatenate([np.pad(part, [(0, states - len(part)), (0, 0)]) for part in (within, begun)])
    functions = FunctionTables(wide(right, states), wide(np.concatenate([rows, same]), 128), wide(tail, 128), begins)
    return tables._replace(functions=functions)


def pieces(
    of: Case, texts: list[str], frozen: list[tuple[int, int]], lowering: Lowering, *, at_end: bool
) -> tuple[list[Pieces], list[int]]:
    """Pieces and `decided` of each text. Of each, the bytes `frozen` (a range, empty for none) are an added token."""
    assert len(texts) <= ROWS
    data, starts = np.zeros((ROWS, SIZE), np.uint8), np.zeros((ROWS, SIZE + 1), bool)
    kind, lengths = np.full((ROWS, SIZE), TEXT, np.uint8), np.zeros(ROWS, np.int32)
    starts[:, 0] = True
    for row, (text, (first, last)) in enumerate(zip(texts, frozen, strict=True)):
        raw = np.frombuffer(text.encode(), np.uint8)
        data[row, : len(raw)], lengths[row] = raw, len(raw)
        if first < last:
            starts[row, [first, last]] = True
            kind[row, first:last] = FROZEN
    begins, decided = starts[:, :SIZE], lengths
    taken = 0
    for stage in of.stages:
        members = of.classes.members[:, taken : taken + len(stage.masks)]
        taken += len(stage.masks)
        tables = padded(split_tables(stage, members))
        table = np.zeros((256, 256), np.uint8)
        table[: len(of.classes.table)] = of.classes.table
        run = compiled(stage.plan, lowering, at_end)
        begins, kind, decided = run(tables, data, begins, kind, lengths, decided, (of.classes.pages, table))
    found: list[Pieces] = []
    for row, length in enumerate(lengths[: len(texts)].tolist()):
        places = [*np.flatnonzero(np.asarray(begins[row])[:length]).tolist(), length]
        gone = np.asarray(kind[row]) == REMOVED
        found.append([(a, b, bool(gone[a])) for a, b in itertools.pairwise(places)])
    return found, np.asarray(decided).tolist()[: len(texts)]


def check(of: Case, rng: random.Random, lowering: Lowering) -> int:
    """Compares heads with their longer texts; returns how many heads were decided somewhere."""
    wholes, heads, frozen = [], [], []
    while len(wholes) < ROWS:
        text = "".join(rng.choice(LETTERS) * rng.choice((1, 1, 2, 3)) for _ in range(rng.randint(1, 8)))
        if len(text.encode()) <= SIZE:
            heads.append(text[: rng.randint(0, len(text))])
            wholes.append(text)
            size = len(heads[-1].encode())
            range_ = sorted(rng.choices([len(heads[-1][:k].encode()) for k in range(len(heads[-1]) + 1)], k=2))
            frozen.append((range_[0], range_[1]) if rng.random() < 0.3 and size else (0, 0))
    cut, decided = pieces(of, heads, frozen, lowering, at_end=False)
    for whole, head, (first, last), found, limit in zip(wholes, heads, frozen, cut, decided, strict=True):
        data = whole.encode()

        def wanted(place: int = 0, data: bytes = data, first: int = first, last: int = last) -> Pieces:
            """What the reference makes of the text from `place` on."""
            parts = (
                [(place, first), (first, last), (last, len(data))] if place <= first < last else [(place, len(data))]
            )
            if first <= place < last:
                parts = [(place, last), (last, len(data))]
            out: Pieces = []
            for a, b in parts:
                out += [(a, b, False)] if (a, b) == (first, last) else expected(of.steps, data[a:b].decode(), a)
            return out

        shown = (of.steps, whole, head, (first, last), limit)
        assert [each for each in found if each[1] <= limit] == [each for each in wanted() if each[1] <= limit], shown
        assert [each for each in wanted() if each[1] > limit] == wanted(limit), shown
        assert limit in [0, *[begin for begin, _, _ in wanted()], len(data)], shown
    return sum(limit > 0 for limit in decided)


def _tables_of(stage: SplitStage) -> tuple[np.ndarray, ...]:
    return stage.machine.right, stage.machine.left, stage.machine.tail


@pytest.mark.parametrize("lowering", ["walk", "arrays"])
@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_decided(behavior: Behavior, lowering: Lowering, scale: float) -> None:
    rng = random.Random(f"{behavior} {lowering}")
    patterns = [*FIXED]
    while len(patterns) < len(FIXED) + round(4 * scale):
        patterns.append("|".join(generate(rng) for _ in range(rng.randint(1, 3))))
    useful = 0
    for number, pattern in enumerate(patterns):
        steps = [Split(Pattern(pattern, True), behavior, rng.random() < 0.5)]
        if number % 2:
            steps.append(Split(Pattern(rng.choice(FIXED), True), rng.choice(BEHAVIORS), rng.random() < 0.5))
        try:
            made = case(tuple(steps))
        except UnsupportedError:
            continue
        if any(len(table) > 128 for stage in made.stages for table in _tables_of(stage)):
            continue
        useful += check(made, rng, lowering)
    assert useful > 100
