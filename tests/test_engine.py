"""Texts of many blocks: where a block ends, nothing is lost, doubled or merged otherwise."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests import artifacts, corpus
from toktier_jax import engine

NAMES = ("trained-llama", "trained-sentencepiece-unk", "trained-bert-cased", "trained-roberta")
"""No split at all; runs of spaces replaced; words; byte-level with a prefix."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(engine, "CAPACITIES", (1 << 9, 1 << 12, 1 << 15))
    monkeypatch.setattr(engine, "CPU_BLOCK", 1 << 9)
    return


@pytest.mark.parametrize("name", NAMES)
def test_blocks_join_without_a_seam(name: str) -> None:
    loaded = artifacts.load(name)
    rng = random.Random(name)
    contents = [token.content for token in loaded.tokenizer.spec.added_tokens]
    texts = [corpus.mixed(9000, 5), "ab " * 1500, " " * 2000 + "x" + "  y" * 900, "e" * 1500]
    texts.append("".join(rng.choice([*contents, "a", " ", "  ", "\n", "é", "漢字", "word"]) for _ in range(2500)))
    for text in texts:
        found, expected = loaded.tokenizer.encode(text, route="xla"), loaded.reference.encode(text)
        assert found.ids.tolist() == expected.ids, (name, text[:30])
        assert found.char_spans.tolist() == [list(span) for span in expected.offsets], (name, text[:30])
