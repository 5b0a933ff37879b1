"""BPE of pieces, from look-up to emit, against BPE by its definition (tests/reference/models.py), in both lowerings."""

from __future__ import annotations

import functools
import random
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.ops.piece_buffers import buffer_of_pieces, rows_of
from tests.reference.byte_alphabet import CHAR_OF_BYTE, spell
from tests.reference.models import build
from tests.tokenizer_files import bpe as bpe_part
from toktier_jax.ops.scan import Lowering
from toktier_jax.ops.tokenize import tokenize
from toktier_jax.plan import BPEPlan
from toktier_jax.program.bpe import compile_bpe
from toktier_jax.spec import types as spec
from toktier_jax.types import FROZEN, TEXT

SIZE = 2048
LETTERS = "abcé漢"
WHOLES = ("cab", "aéca", "漢漢a", "bacbaacbabcabbcacbcaacbb")  # two longer than the words that are looked up at once
SLOW = pytest.mark.slow


def model(seed: int, *, bytes_: bool, **options: Any) -> dict[str, Any]:
    """A BPE part: merges in random order, so that tokens cascade, have several derivations, or are never made."""
    rng = random.Random(seed)
    prefix, suffix = options.get("continuing_subword_prefix") or "", options.get("end_of_word_suffix") or ""
    heads, tails = dict.fromkeys(["", prefix]), dict.fromkeys(["", suffix])
    letters = [head + letter + tail for letter in LETTERS for head in heads for tail in tails]
    parts = [*spell(LETTERS)] if bytes_ else letters
    words = ["[UNK]", *(CHAR_OF_BYTE if bytes_ else letters)]
    merges = list[tuple[str, str]]()
    while len(merges) < 48:
        left, right = rng.choice(parts), rng.choice(parts)
        new = left + right[len(prefix) :]
        if (suffix and left.endswith(suffix)) or not right.startswith(prefix) or len(new) > 14 or new in words:
            continue
        merges.append((left, right))
        words.append(new)
        parts = [*parts, new, new]
    rng.shuffle(merges)
    if options.get("ignore_merges"):
        words += [spell(word) if bytes_ else word for word in WHOLES]
    if options.get("byte_fallback"):
        words += [f"<0x{byte:02X}>" for byte in range(256)]
    words = list(dict.fromkeys(words))
    ids = rng.sample(range(len(words) + 50), len(words))
    return bpe_part(dict(zip(words, ids, strict=True)), merges, **options)


def pieces_of(seed: int, letters: str) -> list[str]:
    """Short and long pieces, runs, and repetitions of the same ones."""
    rng = random.Random(f"pieces {seed}")
    made = ["a" * 37, "ab" * 30, "c", "aab" * 20, *WHOLES]
    while sum(len(piece.encode()) for piece in made) < SIZE - 400:
        few = rng.choices(letters, k=rng.randint(1, 3))
        piece = "".join(rng.choices(few, k=rng.choice((1, 2, 3, 5, 9, 20, 60))))
        made += [piece] * rng.choice((1, 1, 2))
    rng.shuffle(made)
    return made


@functools.cache
def compiled(plan: BPEPlan, lowering: Lowering, capacity: int):
    return jax.jit(lambda tables, buffer: tokenize(plan, tables, buffer, capacity, lowering=lowering))


def run(
    part: dict[str, Any], pieces: list[bytes], lowering: Lowering, *, bytes_: bool, kinds: list[int] | None = None,
    capacity: int = SIZE,
) -> tuple[list[list[int]], int, bool]:  # fmt: skip
    """Tokens of pieces one after another; piece k is of kind `kinds[k]`, and an added token k where it is FROZEN."""
    options = {name: value for name, value in part.items() if name not in ("type", "merges")}
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        options[name] = options[name] or ""
    merges = [(left, right) for left, right in part["merges"]]
    plan, tables = compile_bpe(spec.BPE(merges=merges, **options), byte_level=bytes_)
    buffer = buffer_of_pieces(pieces, SIZE, kinds)
    return rows_of(compiled(plan, lowering, capacity)(tables, jax.tree.map(jnp.asarray, buffer)), capacity)


def check(part: dict[str, Any], pieces: list[str], lowering: Lowering, *, bytes_: bool) -> None:
    """Ids, and spans that lie end to end over every piece."""
    judge = build(part)
    expected = [[token.id for token in judge(spell(piece) if bytes_ else piece)] for piece in pieces]
    found, count, unresolved = run(part, [piece.encode() for piece in pieces], lowering, bytes_=bytes_)
    assert not unresolved
    at, end = 0, 0
    for piece, ids in zip(pieces, expected, strict=True):
        here = found[at : at + len(ids)]
        end += len(piece.encode())
        assert [id for id, _, _ in here] == ids, piece
        assert here[-1][2] == end, piece
        at += len(ids)
    assert count == at == len(found)
    assert [start for _, start, _ in found] == [0, *(end for _, _, end in found[:-1])]


CASES: dict[str, dict[str, Any]] = {
    "bytes": {},
    "bytes whole": {"ignore_merges": True},
    "unknown": {"unk_token": "[UNK]"},
    "fused": {"unk_token": "[UNK]", "fuse_unk": True},
    "fallback": {"unk_token": "[UNK]", "byte_fallback": True},
    "prefix": {"continuing_subword_prefix": "##", "unk_token": "[UNK]"},
    "suffix": {"end_of_word_suffix": "</w>", "unk_token": "[UNK]"},
    "whole suffix": {"end_of_word_suffix": "</w>", "unk_token": "[UNK]", "ignore_merges": True},
}


@pytest.mark.parametrize("lowering", ["arrays", pytest.param("walk", marks=SLOW)])
@pytest.mark.parametrize("name", [name if name == "bytes" else pytest.param(name, marks=SLOW) for name in CASES])
def test_random_models(name: str, lowering: Lowering, scale: float) -> None:
    bytes_ = name.startswith("bytes")
    for seed in range(max(1, round(scale))):
        part = model(seed, bytes_=bytes_, **CASES[name])
        check(part, pieces_of(seed, LETTERS if bytes_ else LETTERS + "x😀"), lowering, bytes_=bytes_)


@pytest.mark.parametrize("lowering", ["arrays", pytest.param("walk", marks=SLOW)])
def test_an_added_token_is_itself_whatever_its_bytes(lowering: Lowering) -> None:
    part = model(0, bytes_=True)
    judge = build(part)
    pieces, kinds = ["ab", "abcab", "ca", "ab"], [TEXT, FROZEN, TEXT, TEXT]
    ids = [[token.id for token in judge(piece)] for piece in pieces]
    found, count, _ = run(part, [piece.encode() for piece in pieces], lowering, bytes_=True, kinds=kinds)
    assert [id for id, _, _ in found] == [*ids[0], 1, *ids[2], *ids[3]]
    assert found[len(ids[0])] == [1, 2, 7]
    assert count == len(found)


@SLOW
@pytest.mark.parametrize("lowering", ["walk", "arrays"])
def test_a_long_piece_that_is_a_token_only_as_a_whole(lowering: Lowering) -> None:
    """With a suffix such tokens are spelled without it, and merges do not make them."""
    vocab = {"a": 0, "a</w>": 1, "a" * 17: 2, "a" * 16: 3}
    part = bpe_part(vocab, [], end_of_word_suffix="</w>", ignore_merges=True)
    check(part, ["a" * 17, "a" * 16, "a" * 18, "a"], lowering, bytes_=False)
