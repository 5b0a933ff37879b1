"""WordPiece and WordLevel on random pieces against their definitions (tests/reference/models.py), in both lowerings."""

from __future__ import annotations

import functools
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.piece_buffers import buffer_of_pieces, rows_of
from tests.reference.byte_alphabet import spell
from tests.reference.models import build
from toktier_jax.ops.scan import Lowering
from toktier_jax.ops.wordpiece import tokenize_words
from toktier_jax.plan import WordPiecePlan
from toktier_jax.program.wordpiece import compile_words
from toktier_jax.spec import types as spec
from toktier_jax.types import FIRST_CODE, FROZEN, REMOVED, TEXT, Buffer

SIZE = 4096
LETTERS = "aabcé漢#\U0001f600▁"
LOWERINGS: tuple[Lowering, ...] = ("walk", "arrays")


def vocabulary(rng: random.Random, prefix: str, *, bytes_: bool = False) -> dict[str, int]:
    """Tokens of one to thirty characters, some only at the start, some only inside; ids in no order."""
    words = ["[UNK]", *("a" * n for n in (1, 2, 5)), prefix + "a", prefix + "b" * 12 + "漢" * 20, "é", prefix + "é"]
    for _ in range(60):
        word = "".join(rng.choices(LETTERS, k=rng.choice((1, 2, 2, 3, 4, 20))))
        words.append(rng.choice(("", prefix)) + word)
    if bytes_:
        words = [token if token == "[UNK]" else spell(token) for token in words]
    words = list(dict.fromkeys(words))
    ids = rng.sample(range(1000), len(words))
    return dict(zip(words, ids, strict=True))


def pieces_of(rng: random.Random, vocab: dict[str, int], prefix: str, bytes_: bool) -> list[str]:
    """Concatenated tokens, and what is none."""
    parts = [token.removeprefix(prefix) for token in vocab if token != "[UNK]" and len(token) > len(prefix)]
    made = ["a" * n for n in (1, 7, 300)]
    while sum(len(piece.encode()) for piece in made) < SIZE - 700:
        text = "".join(rng.choices(parts, k=rng.choice((1, 1, 2, 3, 9))))
        if not bytes_ and rng.random() < 0.2:
            text += rng.choice(LETTERS)
        made.append(text)
    return made


@functools.cache
def compiled(plan: WordPiecePlan, lowering: Lowering, capacity: int):
    return jax.jit(lambda tables, buffer: tokenize_words(plan, tables, buffer, capacity, lowering=lowering))


def run(
    model: spec.WordPiece | spec.WordLevel,
    pieces: list[bytes],
    lowering: Lowering,
    *,
    byte_level: bool = False,
    codes: tuple[str, ...] = (),
    kinds: list[int] | None = None,
    capacity: int = SIZE,
) -> Any:
    """Tokens of pieces one after another; piece k is of kind `kinds[k]`, and an added token k where it is FROZEN."""
    plan, tables = compile_words(model, byte_level=byte_level, codes=codes)
    buffer = buffer_of_pieces(pieces, SIZE, kinds)
    return rows_of(compiled(plan, lowering, capacity)(tables, jax.tree.map(jnp.asarray, buffer)), capacity)


def expected(part: dict[str, Any], pieces: list[str], sizes: list[int] | None = None) -> list[list[int]]:
    tokens, at = [], 0
    model = build(part)
    for number, piece in enumerate(pieces):
        tokens += [[token.id, at + token.start, at + token.stop] for token in model(piece)]
        at += len(piece.encode()) if sizes is None else sizes[number]
    return tokens


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("prefix", ["##", ""])
def test_wordpiece(prefix: str, lowering: Lowering) -> None:
    for seed, most in enumerate((100, 6, 1)):
        rng = random.Random(seed)
        vocab = vocabulary(rng, prefix)
        pieces = pieces_of(rng, vocab, prefix, False)
        part = {
            "type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]",
            "continuing_subword_prefix": prefix, "max_input_chars_per_word": most,
        }  # fmt: skip
        found = run(spec.WordPiece(vocab, "[UNK]", prefix, most), [piece.encode() for piece in pieces], lowering)
        want = expected(part, pieces)
        assert found == (want, len(want), False), (seed, most)


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_bytes_are_the_characters_of_a_byte_alphabet(lowering: Lowering) -> None:
    """`max_input_chars_per_word` counts bytes, and a token can end inside a character."""
    rng = random.Random(5)
    vocab = vocabulary(rng, "##", bytes_=True) | {"##Ã": 1001, "Ã": 1002, "##©": 1003}
    del vocab["Ã©"]
    words = ["é", "aé", "漢", "aaa", "aaaaaaaa", "ab", "éa"]
    part = {
        "type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]",
        "continuing_subword_prefix": "##", "max_input_chars_per_word": 7,
    }  # fmt: skip
    found, _, _ = run(
        spec.WordPiece(vocab, "[UNK]", "##", 7), [word.encode() for word in words], lowering, byte_level=True
    )
    want, at = [], 0
    for word in words:
        spelled = spell(word)
        for token in build(part)(spelled):
            places = [at + len(spelled.encode()[:place].decode()) for place in (token.start, token.stop)]
            want.append([token.id, *places])
        at += len(word.encode())
    assert found == want
    assert [1002, 0, 1] in found


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_wordlevel(lowering: Lowering) -> None:
    vocab = {"[UNK]": 7, "a": 3, "漢字" * 9: 4, "ab": 5}
    pieces = ["a", "ab", "abc", "漢字" * 9, "漢字" * 8, "漢字" * 40, "é"]
    found, count, failed = run(spec.WordLevel(vocab, "[UNK]"), [piece.encode() for piece in pieces], lowering)
    assert found == expected({"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}, pieces)
    assert (count, failed) == (7, False)


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_codes_added_tokens_and_removed_pieces(lowering: Lowering) -> None:
    """A contracted character is one byte and one character; what is no text has its token, or none."""
    vocab = {"[UNK]": 0, "▁a": 1, "##▁": 2, "##b": 3}
    model = spec.WordPiece(vocab, "[UNK]", "##", 3)
    mark = bytes([FIRST_CODE])
    pieces = [mark + b"a", b"zz", b"a", mark + b"a" + mark, mark + b"ab" + mark, mark + b"ab"]
    kinds = [TEXT, FROZEN, REMOVED, TEXT, TEXT, REMOVED]
    found, count, _ = run(model, pieces, lowering, codes=("▁",), kinds=kinds)
    assert found == [[1, 0, 2], [1, 2, 4], [1, 5, 7], [2, 7, 8], [0, 8, 12]]
    assert count == 5


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_without_a_token_for_unknown_words_the_host_is_asked(lowering: Lowering) -> None:
    model = spec.WordPiece({"a": 0, "##a": 1}, "[UNK]", "##", 100)
    assert run(model, [b"aa", b"a"], lowering) == ([[0, 0, 1], [1, 1, 2], [0, 2, 3]], 3, False)
    assert run(model, [b"aa", b"b"], lowering)[2]
    assert run(spec.WordLevel({"a": 0}, "[UNK]"), [b"a", b"b"], lowering)[2]
    assert run(model, [], lowering) == ([], 0, False)


def test_more_tokens_than_the_capacity_are_counted() -> None:
    model = spec.WordPiece({"a": 0, "##a": 1}, "[UNK]", "##", 100)
    found, count, _ = run(model, [b"a" * 90] * 40, "walk", capacity=64)
    assert (len(found), count) == (64, 3600)


def test_rows_of_a_batch() -> None:
    model = spec.WordPiece({"a": 0, "##a": 1, "b": 2, "[UNK]": 3}, "[UNK]", "##", 100)
    plan, tables = compile_words(model, byte_level=False)
    rows = [b"aab", b"b", b"", b"ba" * 20]
    data = np.stack([np.frombuffer(row.ljust(64, b"\0"), np.uint8) for row in rows])
    lengths = np.array([len(row) for row in rows], np.int32)
    starts = (np.arange(64) % 2 == 0)[None].repeat(4, 0)
    kind = np.full((4, 64), TEXT, np.uint8)
    buffer = Buffer(data, lengths, starts, starts, kind, None, None, lengths)
    for lowering in LOWERINGS:
        batched = jax.vmap(
            lambda tables, row, lowering=lowering: tokenize_words(plan, tables, row, 64, lowering=lowering), (None, 0)
        )
        out = jax.jit(batched)(tables, jax.tree.map(jnp.asarray, buffer))
        assert out.count.tolist() == [3, 1, 0, 40]
        assert out.ids[0, :3].tolist() == [0, 1, 2]
        assert out.ids[3, :40].tolist() == [2, 1] * 20
