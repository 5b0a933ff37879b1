"""The summary of boundary.py on made-up rows, and its cuts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks import boundary, boundary_cuts, mask
from toktier_jax import Tokenizer


def row(gain: float, *, aligned: bool = False) -> dict:
    arms = ("none", "exact") if aligned else boundary.ARMS
    logprob = {arm: -10.0 + (0.0 if arm == "none" else gain) for arm in arms}
    return {
        "corpus": "code", "aligned": aligned, "kind": "lexer", "logprob": logprob,
        "unexplored": dict.fromkeys(arms, 0.0), "through": 0.0, "extra": dict.fromkeys(arms, 0),
        "greedy": {"none": False, "exact": True}, "dropped": 0.01, "nodes": 2,
    }  # fmt: skip


def test_the_summary_says_what_is_met_and_what_is_missed() -> None:
    good = boundary.summary([row(g) for g in (1.0, 2.0, 3.0)] + [row(0.0, aligned=True)])
    assert all(check["ok"] for check in good["corpora"]["code"]["checks"].values())
    assert good["corpora"]["code"]["arms"]["exact"]["over none"] == pytest.approx(2.0)
    bad = boundary.summary([row(g) for g in (-1.0, 1.0)] + [row(-0.5, aligned=True)])
    assert not all(check["ok"] for check in bad["corpora"]["code"]["checks"].values())
    assert "MISSED" in boundary.render({**bad, "skipped": []})


def test_the_interval_holds_the_mean() -> None:
    values = np.random.default_rng(0).standard_normal(100) + 1
    low, high = boundary.bootstrap(values)
    assert low < values.mean() < high


@pytest.mark.parametrize("corpus", boundary.CORPORA)
def test_cuts_fall_inside_a_token(corpus: str) -> None:
    tok = Tokenizer.default()
    for aligned in (False, True):
        for case in itertools.islice(boundary_cuts.cases(corpus, tok, aligned=aligned), 3):
            spans = tok.encode(case.prompt + case.after, False, route="reference").byte_spans
            assert (len(case.prompt) in spans[:, 1]) == aligned
            assert len(case.continuation.encode()) >= 16


def test_the_mask_is_measured_in_small() -> None:
    found = mask.measure(1000, 2, 1)
    assert found["ranges us"] > 0
