"""The bimachine against the engines: generated patterns on every short text, and texts that go on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest
import tiktoken
from tokenizers import Regex, pre_tokenizers

from tests.reference.bimachine import known, matches
from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import Atom, Repeat
from toktier_jax.program.automaton import Bimachine, compile_bimachine
from toktier_jax.program.classes import first_seen, probe
from toktier_jax.program.pattern import parse
from toktier_jax.spec.types import Dialect

LETTERS = "aS1 \n"
TEXTS = ["".join(text) for length in range(1, 5) for text in itertools.product(LETTERS, repeat=length)]
CLASSES = ["a", "S", r"\s", r"\S", r"\d", "[aS]", "[^a]", "(?i:s)", r"[^\s\p{L}]", ".", r"\n", " "]
FIXED = [
    r"\s+$",
    r"a$|\S",
    r"a\s*$|\s+",
    r"\s+(?!\S)|\s+",
    r"\S+(?=\s*$)|\s",
    r"a(?!\d(?=\s))|\d",
    r"(?:a(?=S))+|(?:a|Sa?)+",
    r"(?:a|S)+(?=1)|\p{L}+",
    r"[^\n\p{L}]?+\p{L}++|\d{1,2}+",
    r"(?:\d{1,2}){2}|\d",
    r"a{2,3}S|a{2}|S+1?",
    r"\s++$|\s+(?!\S)|\s",
    r"(?:aS?)+1|\S",
]


def machine(pattern: str, dialect: Dialect) -> tuple[Bimachine, dict[str, int]]:
    """The bimachine of a pattern over the classes of LETTERS, and the class of each letter."""
    parsed = parse(pattern, dialect)
    masks = [probe(expression, dialect) for expression in parsed.classes]
    members = np.array([[mask[ord(letter)] for mask in masks] for letter in LETTERS])
    rows, numbers = first_seen(members)
    return compile_bimachine(parsed.root, rows), dict(zip(LETTERS, numbers.tolist(), strict=True))


def of_tokenizers(pattern: str) -> Callable[[str], list[tuple[str, bool]]]:
    isolated, removed = (pre_tokenizers.Split(Regex(pattern), behavior) for behavior in ("isolated", "removed"))

    def pieces(text: str) -> list[tuple[str, bool]]:
        gaps = {span for _, span in removed.pre_tokenize_str(text)}
        return [(piece, span not in gaps) for piece, span in isolated.pre_tokenize_str(text)]

    return pieces


def of_tiktoken(pattern: str) -> Callable[[str], list[tuple[str, bool]]]:
    """Every text is a token of its own, so a piece is one token. Gaps are dropped."""
    ranks = {token.encode(): rank for rank, token in enumerate(dict.fromkeys([*map(chr, range(128)), *TEXTS]))}
    ranks |= {bytes([byte]): len(ranks) + byte for byte in range(128, 256)}
    encoding = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def pieces(text: str) -> list[tuple[str, bool]]:
        return [(encoding.decode([token]), True) for token in encoding.encode_ordinary(text)]

    return pieces


REFERENCES = {"oniguruma": of_tokenizers, "tiktoken": of_tiktoken}


def check(pattern: str, dialect: Dialect) -> None:
    """Every text is cut as the engine cuts it, and what is known of a text holds for all that begin with it."""
    bimachine, numbers = machine(pattern, dialect)
    reference = REFERENCES[dialect](pattern)
    found: dict[str, list[tuple[int, bool]]] = {}
    for text in TEXTS:
        classes = [numbers[letter] for letter in text]
        found[text] = matches(bimachine, classes)
        ends = [at for at, _ in found[text][1:]] + [len(text)]
        pieces = [(text[at:end], match) for (at, match), end in zip(found[text], ends, strict=True)]
        expected = reference(text)
        assert [piece for piece in pieces if piece[1] or dialect == "oniguruma"] == expected, (pattern, text)
    for text in TEXTS:
        limit = known(bimachine, [numbers[letter] for letter in text])
        settled = up_to(limit, found[text])
        for more in LETTERS:
            longer = found.get(text + more)
            if longer is not None:
                assert up_to(limit, longer) == settled, (pattern, text, more)


def up_to(limit: int, pieces: list[tuple[int, bool]]) -> list[tuple[int, bool | None]]:
    """The beginnings at or before `limit`, and the kinds of pieces before it."""
    return [(at, match if at < limit else None) for at, match in pieces if at <= limit]


def generate(rng: random.Random, depth: int = 3) -> str:
    """A random pattern of supported constructs (some will turn out to be unsupported)."""
    kind = rng.randrange(12) if depth else 0
    inner = depth - 1
    if kind < 4:
        return rng.choice(CLASSES)
    if kind < 7:
        return "".join(generate(rng, inner) for _ in range(rng.randint(2, 3)))
    if kind < 9:
        return "(?:" + "|".join(generate(rng, inner) for _ in range(rng.randint(2, 3))) + ")"
    if kind == 9:
        return rng.choice(CLASSES) + rng.choice(["*", "+", "?", "{2}", "{1,2}", "{2,}", "++", "?+", "*+", "{1,2}+"])
    if kind == 10:
        return "(?:" + generate(rng, inner) + ")" + rng.choice(["+", "?", "*", "{1,2}", "{2}"])
    return rng.choice(["(?=", "(?!"]) + generate(rng, inner) + ")" if rng.random() < 0.7 else "$"


@pytest.mark.parametrize("dialect", ["oniguruma", "tiktoken"])
@pytest.mark.parametrize("pattern", FIXED)
def test_fixed_patterns(pattern: str, dialect: Dialect) -> None:
    check(pattern, dialect)


@pytest.mark.parametrize("dialect", ["oniguruma", "tiktoken"])
def test_generated_patterns(dialect: Dialect, scale: float) -> None:
    rng, compared, wanted = random.Random(0), 0, round(12 * scale)
    while compared < wanted:
        pattern = "|".join(generate(rng) for _ in range(rng.randint(1, 3)))
        try:
            machine(pattern, dialect)
        except UnsupportedError:
            continue
        check(pattern, dialect)
        compared += 1


def test_known_keeps_every_atom_apart() -> None:
    """o200k: after `a'r` an `e` makes the apostrophe part of the piece; without it a piece begins there."""
    bimachine, numbers = machine(r"[^\n1 ]?[a]+(?i:S1)?|\S", "oniguruma")
    assert known(bimachine, [numbers[letter] for letter in "aS"]) == 0


def test_limits_are_refused_by_name() -> None:
    both = np.array([[True], [False]])
    with pytest.raises(UnsupportedError, match="more than 2048"):
        compile_bimachine(Repeat(Atom(0), 3000, 3000), both)
    with pytest.raises(UnsupportedError, match="more than 4096 states"):  # the next 14 letters all decide
        compile_bimachine(parse("a(?:a|b){13}a|b", "oniguruma").root, np.eye(2, dtype=bool))
