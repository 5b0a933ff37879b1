"""Merge rules of whole models, and BPE of many strings at once, against BPE by its definition."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.models import merge
from toktier_jax.errors import SpecError
from toktier_jax.program.merges import Rules, merge_all, pair_table, rules_of
from toktier_jax.spec import types as spec
from toktier_jax.types import NEVER

EXAMPLES = max(20, int(25 * float(os.environ.get("TOKTIER_JAX_TEST_SCALE", "1"))))
LETTERS = 3


@st.composite
def rule_lists(draw: st.DrawFn) -> Rules:
    """Rules in random order over a few letters and the tokens that earlier rules made: they cascade and compete."""
    rules, count = list[tuple[int, int, int]](), LETTERS
    for _ in range(draw(st.integers(1, 12))):
        pair = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        if pair not in [rule[:2] for rule in rules]:
            rules.append((*pair, count))
            count += 1
    ranks = draw(st.permutations(range(len(rules))))
    left, right, new = np.array(rules, np.int64).T
    return Rules(left, right, np.array(ranks, np.int64), new)


@settings(max_examples=EXAMPLES, deadline=None)
@given(rule_lists(), st.lists(st.lists(st.integers(-1, LETTERS - 1), min_size=1, max_size=20), min_size=1, max_size=9))
def test_many_strings_at_once(rules: Rules, strings: list[list[int]]) -> None:
    """-1 is a symbol without a token: nothing merges with it."""
    joined = {(a, b): (rank, new) for a, b, rank, new in zip(*(column.tolist() for column in rules), strict=True)}
    expected = []
    for string in strings:
        symbols = [(symbol, 1) for symbol in string]
        merge(symbols, joined)
        expected.append((symbols[0][0], len(symbols)))
    sizes = np.array([len(string) for string in strings], np.int64)
    first, count = merge_all(np.concatenate(strings).astype(np.int32), sizes, pair_table(rules))
    assert list(zip(first.tolist(), count.tolist(), strict=True)) == expected


@settings(max_examples=EXAMPLES, deadline=None)
@given(rule_lists())
def test_every_pair_is_found_and_no_other(rules: Rules) -> None:
    size = LETTERS + len(rules.left)
    left, right = (side.reshape(-1) for side in np.meshgrid(np.arange(size), np.arange(size)))
    rank, new = pair_table(rules).find(left, right)
    known = {(a, b): (c, d) for a, b, c, d in zip(*(column.tolist() for column in rules), strict=True)}
    for a, b, found_rank, found_new in zip(left.tolist(), right.tolist(), rank.tolist(), new.tolist(), strict=True):
        assert (found_rank, found_new if found_rank < NEVER else None) == known.get((a, b), (NEVER, None))


def bpe(vocab: list[str], merges: list[tuple[str, str]], prefix: str = "") -> spec.BPE:
    return spec.BPE(
        vocab={token: 10 + id for id, token in enumerate(vocab)},
        merges=merges,
        dropout=None,
        unk_token=None,
        continuing_subword_prefix=prefix,
        end_of_word_suffix="",
        fuse_unk=False,
        byte_fallback=False,
        ignore_merges=False,
    )


def as_sets(rules: Rules) -> set[tuple[int, ...]]:
    return set(zip(*(column.tolist() for column in rules), strict=True))


def test_rules_of_listed_merges() -> None:
    """Ids, not places in the vocabulary; a pair listed twice has its last rank, as in the reference."""
    rules = rules_of(bpe(["a", "b", "ab", "aab"], [("a", "b"), ("a", "ab"), ("a", "b")]))
    assert as_sets(rules) == {(10, 12, 1, 13), (10, 11, 2, 12)}


def test_a_prefix_is_dropped_where_tokens_are_joined() -> None:
    rules = rules_of(bpe(["a", "##b", "ab"], [("a", "##b")], "##"))
    assert as_sets(rules) == {(10, 11, 0, 12)}


@pytest.mark.parametrize("merges", [[("a", "b"), ("a", "zz")], [("a", "b"), ("zz", "a")], [("a", "b"), ("b", "a")]])
def test_a_merge_of_what_is_no_token_is_named(merges: list[tuple[str, str]]) -> None:
    with pytest.raises(SpecError, match=r"model\.merges\[1\] = "):
        rules_of(bpe(["a", "b", "ab"], merges))


def test_rules_of_ranks() -> None:
    """Every split of a token into two tokens is a rule of the token's rank: tiktoken's definition."""
    model = spec.BytePairRanks({b"a": 0, b"b": 1, b"ab": 2, b"ba": 3, b"aba": 4, b"xyz": 5}, offset=7)
    assert as_sets(rules_of(model)) == {(7, 8, 2, 9), (8, 7, 3, 10), (9, 7, 4, 11), (7, 10, 4, 11)}
