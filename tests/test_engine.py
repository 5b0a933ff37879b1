"""Texts of many blocks and blocks of many texts: nothing is lost, doubled or merged otherwise where one ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import toktier_jax as tt
from tests import artifacts, corpus
from toktier_jax import engine
from toktier_jax.host.align import align

NAMES = (
    "trained-llama",
    pytest.param("trained-sentencepiece-unk", marks=pytest.mark.slow),  # compiling for each takes most of its time
    pytest.param("trained-bert-cased", marks=pytest.mark.slow),
    pytest.param("trained-roberta", marks=pytest.mark.slow),
)
"""No split at all; runs of spaces replaced; words; byte-level with a prefix."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(engine, "CAPACITIES", (1 << 10, 1 << 13))
    monkeypatch.setattr(engine, "CPU_BLOCK", 1 << 10)
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


def test_texts_share_blocks_in_order() -> None:
    block, sizes = 1 << 12, [10, 0, 1025, 1000, 1000, 1000, 1000, 1000, 7]
    packs = list(engine._packs(sizes, block))
    assert packs == [[0, 3, 4, 5, 6], [7, 8]]  # 1 has nothing to encode, 2 is long
    places = block // engine._LEAST
    assert [len(pack) for pack in engine._packs([1] * (2 * places + 1), block)] == [places, places]


def test_a_batch_is_its_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CAPACITIES", (1 << 12, 1 << 14))
    monkeypatch.setattr(engine, "CPU_BLOCK", 1 << 12)
    tokenizer = tt.Tokenizer.default()
    draw, text = random.Random(0), corpus.mixed(12_000, 7)
    texts = [text[at : at + draw.choice((0, 1, 7, 60, 400, 3000))] for at in range(0, len(text), 300)]
    batch = tokenizer.encode_batch(texts, route="xla")
    for row, each in enumerate(texts):
        expected = tokenizer.encode(each, route="reference").ids
        assert np.array_equal(np.asarray(batch.ids)[row, : len(expected)], expected), each
        assert int(batch.lengths[row]) == len(expected)


def test_progress_is_that_of_the_original_text_and_never_less() -> None:
    class Blocks(engine.DeviceEngine):
        def _blocks(self, data: bytes, special: Any, progress: Any, *, checked: bool) -> Iterator[Any]:
            for done in (4, 12, len(data)) if checked else (15,):
                progress(done)
            if not checked:
                raise engine.QuickCheckFailed
            return iter(())

    seen: list[int] = []
    device = Blocks({}, (), lambda data, special: align("NFC", data.decode()))
    device.encode(("e\u0301" * 10).encode(), "parse", seen.append)
    assert seen == [15, 15, 18, 30]
