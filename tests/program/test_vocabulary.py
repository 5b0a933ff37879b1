"""Tokens as strings at their places, which of them encode themselves, and the tables in which they are looked up."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.reference.byte_alphabet import spell
from tests.reference.models import build
from tests.tokenizer_files import bpe as bpe_part
from toktier_jax.ops.chunks import stage
from toktier_jax.ops.lookup import as_words, find_long, find_short, load
from toktier_jax.program.merges import pair_table, rules_of
from toktier_jax.program.vocabulary import (
    END,
    START,
    Entries,
    entries,
    lexicon,
    pick,
    self_encoding,
    strings,
    symbols,
    whole_pieces,
)
from toktier_jax.spec import types as spec
from toktier_jax.types import FIRST_CODE

MERGES = [("a", "b"), ("b", "c"), ("ab", "c"), ("é", "é"), ("a", "a"), ("aa", "b")]


def model(vocab: list[str], merges: list[tuple[str, str]], **options: Any) -> tuple[spec.BPE, dict[str, Any]]:
    """As a spec, and as the part of a tokenizer.json."""
    ids = {token: 3 * id + 1 for id, token in enumerate(vocab)}
    default: dict[str, Any] = {
        "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
    }  # fmt: skip
    return spec.BPE(vocab=ids, merges=merges, **{**default, **options}), bpe_part(ids, merges, **options)


def as_dict(of: Entries) -> dict[tuple[bytes, int], int]:
    return {
        (string, place): id for string, place, id in zip(strings(of), of.places.tolist(), of.ids.tolist(), strict=True)
    }


def test_strings_of_a_plain_vocabulary() -> None:
    of, _ = model(["a", "é", "▁a", "", "a▁▁"], [])
    assert as_dict(entries(of, byte_level=False, codes=())) == {
        (b"a", 0): 1, ("é".encode(), 0): 4, ("▁a".encode(), 0): 7, ("a▁▁".encode(), 0): 13,
    }  # fmt: skip
    code = bytes([FIRST_CODE])
    assert as_dict(entries(of, byte_level=False, codes=("▁",))) == {
        (b"a", 0): 1, ("é".encode(), 0): 4, (code + b"a", 0): 7, (b"a" + code * 2, 0): 13,
    }  # fmt: skip


def test_strings_of_a_byte_alphabet() -> None:
    """What is not spelled in the alphabet no text can spell."""
    of, _ = model(["a", spell("é"), spell(" é")[:2], "日", "a b"], [])
    assert as_dict(entries(of, byte_level=True, codes=())) == {
        (b"a", 0): 1, ("é".encode(), 0): 4, (b" \xc3", 0): 7,
    }  # fmt: skip


def test_strings_depend_on_their_place() -> None:
    """`a` begins and goes on, `##b` does not begin, `c</w>` ends; affixes alone spell nothing."""
    of, _ = model(
        ["a", "##a", "b</w>", "##b</w>", "##", "</w>", "##c"],
        [],
        continuing_subword_prefix="##",
        end_of_word_suffix="</w>",
    )
    found = as_dict(entries(of, byte_level=False, codes=()))
    assert found[b"a", START] == 1
    assert found[b"a", 0] == 4
    assert found[b"b", START | END] == 7
    assert found[b"b", END] == 10
    assert found[b"c", 0] == 19
    assert (b"c", END) not in found
    assert not [string for string, _ in found if not string]
    wholes = as_dict(whole_pieces(of, byte_level=False, codes=()))
    assert wholes[b"b</w>", START | END] == 7  # as it is spelled, whatever the affixes


@pytest.mark.parametrize(
    "options",
    [{}, {"continuing_subword_prefix": "##"}, {"end_of_word_suffix": "</w>"}],
    ids=["plain", "prefix", "suffix"],
)
def test_which_tokens_encode_themselves(options: dict[str, str]) -> None:
    """Of a whole piece spelled like the token, by BPE as it is defined."""
    prefix, suffix = options.get("continuing_subword_prefix", ""), options.get("end_of_word_suffix", "")
    letters = [
        p + c + s
        for c in ("a", "b", "c", "é")
        for p in dict.fromkeys(["", prefix])
        for s in dict.fromkeys(["", suffix])
    ]
    rng, words, merges = random.Random(5), list(letters), list[tuple[str, str]]()
    while len(merges) < 40:
        left, right = rng.choice(words), rng.choice(words)
        if (suffix and left.endswith(suffix)) or not right.startswith(prefix) or len(left + right) > 12:
            continue
        merges.append((left, right))
        words.append(left + right[len(prefix) :])
    rng.shuffle(merges)
    vocab = list(dict.fromkeys(["[UNK]", *words, *("".join(rng.choices("abcé", k=3)) + suffix for _ in range(20))]))
    of, part = model(vocab, merges, unk_token="[UNK]", **options)
    every = entries(of, byte_level=False, codes=())
    own = self_encoding(every, symbols(every, "char"), pair_table(rules_of(of)))
    whole = (every.places == START | END) | (not prefix and not suffix)
    tokenize = build(part)
    seen = set()
    kept = pick(every, whole)
    for string, id, good in zip(strings(kept), kept.ids.tolist(), own[whole].tolist(), strict=True):
        assert good == ([token.id for token in tokenize(string.decode())] == [id]), string
        seen.add(good)
    assert seen == {True, False}


# ---- look-ups (ops/lookup.py) ----


def test_look_ups_find_what_is_there_and_nothing_else() -> None:
    """Strings of 1 to 60 bytes that begin anywhere, near misses, and every place."""
    rng = random.Random(2)
    made = {bytes(rng.choices(b"abc\xc3\0", k=size)) for size in (*range(1, 61), *[2, 3, 16, 17] * 9)}
    made |= {string + b"a" for string in list(made)[:30]}
    names = sorted(made)
    of = Entries(
        np.arange(len(names), dtype=np.int32) + 5,
        np.array([rng.choice((0, START, END, START | END)) for _ in names], np.uint8),
        np.frombuffer(b"".join(names), np.uint8),
        np.array([len(name) for name in names], np.int64),
    )
    own = np.array([rng.random() < 0.5 for _ in names])
    tables = lexicon(of, own)
    known = {(string, place): number for number, (string, place) in enumerate(as_dict(of))}
    asked = [(name, place) for name in names for place in range(4)]
    asked += [(name[:-1], place) for name, place in list(known) if len(name) > 1]
    asked += [(bytes(reversed(name)), place) for name, place in list(known)]
    asked += [(b"abc" * 40, 0), (names[0] + b"\0", int(of.places[0])), (names[-1] + b"\0\0\0", int(of.places[-1]))]
    data = np.frombuffer(b"".join(b"z" + string for string, _ in asked), np.uint8)
    size = np.array([len(string) for string, _ in asked], np.int32)
    start = np.cumsum(size + 1).astype(np.int32) - size
    mark = (size << 2 | np.array([place for _, place in asked], np.int32)).astype(np.uint32)
    width = tables.strings.shape[1] - 2

    @jax.jit
    def look(tables: Any, data: jax.Array, start: jax.Array, size: jax.Array, mark: jax.Array) -> Any:
        words, run = as_words(data, 4 * width), stage("walk", jnp.int32(0))
        short = find_short(tables, load(words, start, size, 4), mark, run)
        return short, find_long(tables, load(words, start, size, width), mark)

    short, long = look(tables, data, start, size, mark)
    for number, (string, place) in enumerate(asked):
        found, other = (short, long) if len(string) <= 16 else (long, short)
        assert not (other.hit[number] and other is short), string
        entry = known.get((string, place))
        assert bool(found.hit[number]) == (entry is not None), (string, place)
        if entry is not None:
            assert (int(found.id[number]), bool(found.own[number])) == (entry + 5, bool(own[entry]))
