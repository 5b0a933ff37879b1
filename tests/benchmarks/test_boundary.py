"""The summary of boundary.py on made-up rows, and its cuts."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import boundary, boundary_arms, boundary_cuts, loop, mask
from tests.sampling import brute, small
from toktier_jax import Tokenizer
from toktier_jax.errors import UnsupportedError
from toktier_jax.sampling.vocabulary import vocabulary_of
from toktier_jax.spec.gguf import gguf_to_tokenizer_json


def row(gain: float, ends: str = boundary_cuts.CUT, context: int = 0) -> dict:
    arms = boundary.ARMS if ends == boundary_cuts.CUT else ("none", "exact")
    logprob = {arm: -10.0 + (0.0 if arm == "none" else gain) for arm in arms}
    return {
        "corpus": "code", "ends": ends, "kind": "lexer", "context": context, "logprob": logprob,
        "unexplored": dict.fromkeys(arms, 0.0), "through": gain if arms == ("none", "exact") else 0.0,
        "extra": dict.fromkeys(arms, 0), "calls": dict.fromkeys(arms, 0), "nodes": 2, "dropped": 0.01,
        "greedy": {"none": False, "exact": True},
    }  # fmt: skip


def test_the_summary_says_what_is_met_and_what_is_missed() -> None:
    aligned = boundary_cuts.ALIGNED
    good = boundary.summary([row(g, context=int(g)) for g in (1.0, 2.0, 3.0)] + [row(0.0, aligned)])
    assert all(check["ok"] for check in good["corpora"]["code"]["checks"].values())
    assert good["corpora"]["code"]["arms"]["exact"]["over none"] == pytest.approx(2.0)
    bad = boundary.summary([row(g, context=int(g)) for g in (-1.0, 1.0)] + [row(-0.5, aligned)])
    missed = [name for name, check in bad["corpora"]["code"]["checks"].items() if not check["ok"]]
    assert len(missed) == 2
    assert "MISSED aligned: mean of exact - none" in boundary.render(bad)


def test_german_and_chinese_without_their_model_are_a_visible_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "SOURCES", [dataclasses.replace(boundary.SOURCES[1], package="not_installed")])
    rows, skipped = boundary.collect(Path(), 2, 1, 1.0)
    assert rows == []
    assert [line.split(":")[0] for line in skipped] == ["german", "chinese"]
    assert all("Gemma-3-270m" in line and "not-installed" in line for line in skipped)


def test_arms_without_covers_are_summed_up_alone() -> None:
    rows = [row(1.0) | {"corpus": "german"}, row(3.0, context=1) | {"corpus": "german"}]
    for one in rows:
        for arm in ("exact", "oracle"):
            del one["logprob"][arm]
    found = boundary.summary(rows)
    assert tuple(found["corpora"]["german"]["arms"]) == boundary_arms.WITHOUT_COVERS
    assert found["corpora"]["german"]["checks"] == {}
    assert "german: Gemma-3-270m, 2 cut prompts" in boundary.render(found)


def test_scored_prompts_are_kept_by_commit(tmp_path: Path) -> None:
    def begin(commit: str) -> list[str]:
        """What is kept; then a prompt is scored."""
        folder = boundary.kept_for(commit, tmp_path)
        folder.mkdir(exist_ok=True)
        with (folder / "code, cut.jsonl").open("a+") as file:
            file.write(f"{commit}\n")
            file.seek(0)
            return file.read().split()

    for commit, kept in (("one", 1), ("one", 2), ("two", 1), ("one", 3), ("one+", 1), ("one+", 1), ("unknown", 1)):
        assert begin(commit) == [commit] * kept
    assert begin("unknown") == ["unknown"]


def test_a_search_that_found_nothing_is_counted_and_left_out() -> None:
    rows = [row(1.0), row(3.0, context=1)]
    rows[1]["logprob"]["heal 1"] = -np.inf
    arms = boundary.summary(rows)["corpora"]["code"]["arms"]
    assert (arms["heal 1"]["over none"], arms["heal 1"]["infinite"]) == (1.0, 1)


def test_the_interval_holds_the_mean_and_is_wider_where_prompts_share_a_context() -> None:
    values = np.repeat(np.random.default_rng(0).standard_normal(100) + 1, 4)
    low, high = boundary.bootstrap(values, np.arange(400))
    assert low < values.mean() < high
    wide, wider = boundary.bootstrap(values, np.arange(400) // 4)
    assert wider - wide > 1.5 * (high - low)


@pytest.mark.parametrize(
    ("corpus", "ends"),
    [(corpus, ends) for corpus in boundary.CORPORA if corpus != "german" for ends in boundary_cuts.ENDS[corpus]],
)
def test_cuts_fall_inside_a_token_or_on_a_border(corpus: str, ends: str) -> None:
    tok = Tokenizer.default()
    try:
        text = boundary.corpus_text(corpus)
    except UnsupportedError as missing:
        pytest.skip(str(missing))
    for cases in itertools.islice(boundary_cuts.contexts(corpus, text, tok, ends), 3):
        assert len({case.prompt[:30] for case in cases}) == 1
        for case in cases:
            spans = tok.encode(case.prompt + case.after, False, route="reference").byte_spans
            assert (len(case.prompt.encode()) in spans[:, 1]) == (ends != boundary_cuts.CUT)
            assert len(case.continuation.encode()) >= 16
            assert 96 <= len(tok.encode(case.prompt, False, route="reference").ids) <= 128


def total(tok: Any, lm: Any, path: tuple[int, ...], rest: bytes, healed: int) -> float:
    """log p that text beginning with `rest` follows, its first `healed` bytes forced."""
    vocabulary = vocabulary_of(tok)
    row = brute.masked(tok, lm, brute.logprobs(lm, [path]))[path]
    agree = [i for i, s in enumerate(vocabulary.strings) if s and (s.startswith(rest) or rest.startswith(s))]
    forced = rest[:healed]
    if healed:
        allowed = [
            i for i, s in enumerate(vocabulary.strings) if s and (s.startswith(forced) or forced.startswith(s))
        ]
        row = row - np.logaddexp.reduce(row[allowed])
    parts = [
        row[i]
        + (
            0.0
            if len(s := vocabulary.strings[i]) >= len(rest)
            else total(tok, lm, (*path, i), rest[len(s) :], max(0, healed - len(s)))
        )
        for i in agree
    ]
    return float(np.logaddexp.reduce(parts))


def test_the_arms_are_sums_over_all_tokenizations(monkeypatch: pytest.MonkeyPatch) -> None:
    tok = small.tokenizer()
    lm, vocabulary = small.model(tok.vocab_size), vocabulary_of(tok)
    monkeypatch.setattr(boundary_arms, "ENOUGH", 1e-6)
    cases = [boundary_cuts.Case("word", prompt, "ing", "ing that") for prompt in ("it's the th", "it's th")]
    start = tok.reference.token_to_id("<|start|>")

    for case, found in zip(cases, boundary_arms.score(lm, tok, cases, start), strict=True):
        ids = (start, *tok.encode(case.prompt, False).ids.tolist())
        last = vocabulary.strings[ids[-1]]
        assert found.scores["none"].logprob == pytest.approx(total(tok, lm, ids, b"ing", 0), abs=1e-4)
        assert found.scores["back-off"].logprob == pytest.approx(total(tok, lm, ids[:-1], last + b"ing", 0), abs=1e-4)
        healed = total(tok, lm, ids[:-1], last + b"ing", len(last))
        assert found.scores["heal 1"].logprob == pytest.approx(healed, abs=1e-4)
        weights = brute.weights(tok, lm, (start,), brute.covers(tok, case.prompt.encode(), strict=False))
        share = np.logaddexp.reduce(list(weights.values()))
        parts = []
        for path, weight in weights.items():
            past = b"".join(vocabulary.strings[i] for i in path)[len(case.prompt) :]
            if past.startswith(b"ing") or b"ing".startswith(past):
                rest = b"ing"[len(past) :]
                parts.append(weight - share + (total(tok, lm, (start, *path), rest, 0) if rest else 0.0))
        assert found.scores["exact"].logprob == pytest.approx(np.logaddexp.reduce(parts), abs=1e-4)


def test_the_arms_without_covers_are_such_sums_for_merges_over_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SentencePiece vocabulary as Gemma's: spaces replaced, characters that are no token as bytes."""
    monkeypatch.setattr(boundary_arms, "ENOUGH", 1e-6)
    control, characters = ["<pad>", "<eos>", "<bos>", "<unk>"], list("\u2581abdefmpü中文")
    tokens = [*control, *(f"<0x{byte:02X}>" for byte in range(256)), *characters, "am", "dam", "damp", "中文"]
    tok = Tokenizer.from_bytes(
        gguf_to_tokenizer_json(
            {
                "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
                "tokenizer.ggml.token_type": [3, 3, 3, 2] + [6] * 256 + [1] * (len(tokens) - 260),
                "tokenizer.ggml.scores": tuple(-float(place) for place in range(len(tokens))),
                "tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.bos_token_id": 2,
                "tokenizer.ggml.unknown_token_id": 3,
            }
        )
    )  # fmt: skip
    lm, vocabulary = small.model(tok.vocab_size), vocabulary_of(tok)
    cases = [boundary_cuts.Case("long word", prompt, "pf", "pf ab") for prompt in ("ü dam", "国 中文da")]
    for case, found in zip(cases, boundary_arms.score(lm, tok, cases, 2, boundary_arms.WITHOUT_COVERS), strict=True):
        assert tuple(found.scores) == boundary_arms.WITHOUT_COVERS
        ids = (2, *tok.encode(case.prompt, False, route="reference").ids.tolist())
        last = vocabulary.strings[ids[-1]]
        assert found.scores["none"].logprob == pytest.approx(total(tok, lm, ids, b"pf", 0), abs=1e-4)
        healed = total(tok, lm, ids[:-1], last + b"pf", len(last))
        assert found.scores["heal 1"].logprob == pytest.approx(healed, abs=1e-4)


def test_the_mask_is_measured_in_small() -> None:
    found = mask.measure(1000, 2, 1)
    assert found["ranges us"] > 0


def test_the_loop_is_measured_in_small_and_holds_its_figures() -> None:
    row = loop.measure(*loop.small(), tokens=16, repeats=3)
    for ratio, least in loop.LEAST.items():  # other tests run beside this one
        assert row[ratio] >= 0.8 * least, ratio
