"""Token paths as a tree: what is forwarded, and which rows of log-probs are kept."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from toktier_jax import sampling
from toktier_jax.sampling import bytetree
from toktier_jax.sampling.distribution import ByteWalk

from . import small

VOCAB = 302


def tree(**options: int) -> bytetree.PathTree:
    return bytetree.PathTree(small.model(VOCAB, context=512), np.ones(VOCAB, bool), 64, **options)


def rows_kept(node: bytetree.PathNode) -> int:
    return (node.logprobs is not None) + sum(map(rows_kept, node.children.values()))


def test_a_chain_is_the_sum_over_its_rows_and_keeps_none() -> None:
    ids = [(7 * k) % VOCAB for k in range(200)]
    rows = tree().logprobs([ids[:end] for end in range(1, len(ids))])
    expected = sum(float(row[id]) for row, id in zip(rows, ids[1:], strict=True))
    chain = tree()
    assert chain.chain(ids) == pytest.approx(expected, abs=1e-4)
    assert chain.forwarded == len(ids) - 1
    assert rows_kept(chain.root) == 0
    assert chain.chain(ids) == pytest.approx(expected, abs=1e-4)
    assert chain.chain(ids[:1]) == 0.0


def test_a_chain_reads_the_rows_that_the_tree_has() -> None:
    ids = list(range(5, 25))
    known = tree()
    known.logprobs([ids[:end] for end in range(1, len(ids))])
    forwarded = known.forwarded
    assert known.chain(ids) == pytest.approx(tree().chain(ids), abs=1e-5)
    assert known.forwarded == forwarded


def test_paths_behind_a_trunk_are_the_whole_paths() -> None:
    trunk, tails = list(range(40)), [[], [50], [50, 51], [60]]
    whole = tree().logprobs([[*trunk, *tail] for tail in tails])
    behind = tree().logprobs(tails, trunk)
    assert all(np.array_equal(a, b) for a, b in zip(whole, behind, strict=True))


def test_a_trunk_is_walked_once_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    walk = bytetree.PathTree._walk
    monkeypatch.setattr(
        bytetree.PathTree, "_walk", staticmethod(lambda node, ids: walked.append(len(ids)) or walk(node, ids))
    )
    tree().logprobs([[1], [1, 2], [3]], range(60))
    assert sum(walked) == 64


def test_a_text_that_grows_keeps_the_rows_of_its_end_only() -> None:
    tok = small.tokenizer(bos=True)
    walk = ByteWalk(small.model(tok.vocab_size), tok, "h")
    text = b"ttps://example.org: https://"
    most = 0
    for byte in text:
        walk.next()
        most = max(most, rows_kept(walk.tree.root))
        walk.push(byte)
    assert most <= 8
    assert walk.tree.forwarded <= 2 * len(text)


def test_the_memory_of_a_score_does_not_grow_with_the_prompt() -> None:
    tok = small.tokenizer(bos=True)
    lm = small.model(1 << 13, context=1 << 10)
    row = 8 * lm.vocab_size

    def peak(text: str) -> int:
        sampling.prompt_logprob(lm, tok, text)  # compiles, and makes tables
        tracemalloc.start()
        sampling.prompt_logprob(lm, tok, text)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak("it's 1 " * 160) < peak("it's 1 " * 40) + 100 * row
