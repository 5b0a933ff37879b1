"""The batch protocol in small: packing, and equal ids by every way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import batch, report
from tests import artifacts


def test_pack_fills_buffers_with_whole_documents() -> None:
    packed = batch.pack([b"aaaa", b"bbb", b"cc", b"ddddd"], 8, 2)
    assert [bytes(row[:length]) for row, length in zip(packed.data, packed.lengths, strict=True)] == [
        b"aaaabbb",
        b"ccddddd",
    ]
    assert packed.starts.tolist() == [[0, 4], [0, 2]]


def test_pack_adds_empty_buffers_up_to_a_multiple() -> None:
    packed = batch.pack([b"aaaa"], 8, 3)
    assert packed.lengths.tolist() == [4, 0, 0]
    assert packed.starts.tolist() == [[0], [8], [8]]


@pytest.mark.parametrize("engine", ["encode_batch", "packed"])
def test_ids_equal_the_references(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "TOKENIZER", "gpt2")
    monkeypatch.setattr(batch, "DOCUMENT", 512)
    monkeypatch.setattr(report, "REPEATS", 1)
    try:
        expected = batch.measure("tokenizers", 1, 5, 1 << 12, "code")
    except artifacts.Missing as reason:
        pytest.skip(str(reason))
    assert batch.measure(engine, 1, 5, 1 << 12, "code")["digest"] == expected["digest"]


@pytest.mark.slow
def test_the_whole_protocol_in_small(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need the bench extra")
    assert batch.main(["--small", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "batch.json").exists()


def test_digest_depends_on_ids_alone() -> None:
    assert report.digest(np.array([1, 2], np.int64)) == report.digest(np.array([1, 2], np.uint32))
