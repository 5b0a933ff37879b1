"""The campaign finds planted faults, makes them small, counts what it checked, and follows from its seed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import artifacts
from tests.reference.tokenizer import Encoded, ReferenceTokenizer
from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.spec.tokenizer_json import read_tokenizer_json
from toktier_jax.verify.adversarial import Alphabet, alphabet, systematic
from toktier_jax.verify.campaign import Report, campaign, campaign_texts, read_corpus
from toktier_jax.verify.oracle import oracle_for

NAME = "trained-starcoder"


class PureSubject:
    """The pure-Python reference in the place of the device path, its results spoiled by `fault`."""

    def __init__(self, file: bytes, fault: Callable[[str, Encoded], None]) -> None:
        self.tokenizer, self.fault = ReferenceTokenizer(file), fault

    def encode(self, text: str) -> Any:
        found = self._found(text)
        spans = np.array(found.offsets, np.int64).reshape(-1, 2)
        return SimpleNamespace(ids=np.array(found.ids, np.int32), char_spans=spans, byte_spans=0 * spans)

    def pieces(self, text: str) -> np.ndarray:
        pieces = self._found(text).pieces
        return np.array([len(t.decode()) if id is None else -1 - id for t, id in pieces], np.int64)

    def _found(self, text: str) -> Encoded:
        found = self.tokenizer.encode(text)
        self.fault(text, found)
        return found


@pytest.fixture(scope="module")
def letters() -> Alphabet:
    return alphabet(read_tokenizer_json(artifacts.load(NAME).file), ["return", " the"])


def run(letters: Alphabet, fault: Callable[[str, Encoded], None], texts: int = 400) -> Report:
    artifact = artifacts.load(NAME)
    short = (text for text in campaign_texts(letters, ["def f(x):\n    return x\n" * 20], 3) if len(text) < 200)
    return campaign(PureSubject(artifact.file, fault), oracle_for(artifact.reference), itertools.islice(short, texts))


def test_no_fault_no_difference(letters: Alphabet) -> None:
    report = run(letters, lambda text, found: None)
    assert report.ok, report
    assert report.texts == 400
    assert min(report.pieces, report.ids, report.spans) > 700
    assert "0 differences" in str(report)


def test_a_wrong_cut_behind_right_ids_is_found(letters: Alphabet) -> None:
    def fault(text: str, found: Encoded) -> None:
        joined = [i for i in range(1, len(found.pieces)) if re.fullmatch(b"[0-9]", found.pieces[i - 1][0])]
        if joined and found.pieces[joined[0]][1] is None:
            at = joined[0]
            found.pieces[at - 1 : at + 1] = [(found.pieces[at - 1][0] + found.pieces[at][0], None)]

    report = run(letters, fault)
    assert report.difference is not None
    assert report.difference.level == "pieces"
    assert re.fullmatch("[0-9].", report.difference.text)


def test_a_wrong_id_is_found_and_made_small(letters: Alphabet) -> None:
    def fault(text: str, found: Encoded) -> None:
        if "\u3000" in text:
            found.ids[-1] += 1

    report = run(letters, fault)
    assert report.difference is not None
    assert (report.difference.level, report.difference.text) == ("ids", "\u3000")
    assert "smallest text: '\\u3000'" in str(report)


def test_a_wrong_span_is_found(letters: Alphabet) -> None:
    def fault(text: str, found: Encoded) -> None:
        if len(found.offsets) > 3:
            found.offsets[2] = (0, 0)

    report = run(letters, fault)
    assert report.difference is not None
    assert report.difference.level == "char_spans"
    assert report.difference.index == 2


def test_refused_texts_are_counted_not_failed(letters: Alphabet) -> None:
    def fault(text: str, found: Encoded) -> None:
        if "'" in text:
            raise UnsupportedError("no apostrophes")

    artifact = artifacts.load(NAME)
    subject = PureSubject(artifact.file, lambda text, found: None)
    refusing = PureSubject(artifact.file, fault)
    subject.encode = refusing.encode  # type: ignore[method-assign]  # a double
    report = campaign(subject, oracle_for(artifact.reference), ["a", "it's", "b"])
    assert report.ok
    assert (report.texts, report.refused) == (3, 1)
    assert "no apostrophes" in str(report)


def test_a_campaign_that_compared_nothing_is_not_ok() -> None:
    artifact = artifacts.load(NAME)
    subject = PureSubject(artifact.file, lambda text, found: None)
    report = campaign(subject, oracle_for(artifact.reference), [])
    assert not report.ok
    assert str(report).endswith("nothing was compared")


def test_a_campaign_ends_after_its_characters(letters: Alphabet) -> None:
    artifact = artifacts.load(NAME)
    subject = PureSubject(artifact.file, lambda text, found: None)
    report = campaign(subject, oracle_for(artifact.reference), itertools.repeat("ab cd"), characters=12)
    assert (report.texts, report.characters, report.positions) == (3, 15, 15)


def test_the_seed_decides_the_texts(letters: Alphabet) -> None:
    def first(seed: int) -> list[str]:
        return list(itertools.islice(campaign_texts(letters, ["x" * 50], seed), 100))

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_systematic_texts_hold_every_pair_of_classes(letters: Alphabet) -> None:
    texts = set(systematic(letters))
    pairs = [(a, b) for a in letters.classes for b in letters.classes]
    assert len(pairs) > 100
    assert all(a[0] + b[-1] in texts for a, b in pairs)
    assert {"<|endoftext|>", "<|endoftext|>"[:-1], "<|endoftext|>"[1:]} <= texts


def test_a_corpus_is_read_from_a_directory(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("héllo", encoding="utf-8")
    (tmp_path / "b.bin").write_bytes(b"\xff\xfe\x00")
    assert read_corpus(tmp_path) == ["héllo"]
    (tmp_path / "a.txt").unlink()
    with pytest.raises(InputError, match="no UTF-8 text"):
        read_corpus(tmp_path)
    assert sum(map(len, read_corpus(None))) > 100_000
