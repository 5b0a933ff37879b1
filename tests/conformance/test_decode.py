"""Decoding equals the reference's for every tokenizer; bytes are lossless; a stream adds up to the whole."""

from __future__ import annotations

import random

import pytest

from tests import corpus

from .conftest import Subject


def references_ids(subject: Subject, text: str) -> list[int]:
    reference = subject.artifact.tokenizer.reference
    tiktoken = subject.artifact.kind == "tiktoken"
    return reference.encode(text, allowed_special="all") if tiktoken else reference.encode(text).ids


def reference_decode(subject: Subject, ids: list[int], skip: bool) -> str:
    reference = subject.artifact.tokenizer.reference
    return reference.decode(ids) if subject.artifact.kind == "tiktoken" else reference.decode(ids, skip)


@pytest.fixture(scope="session")
def sequences(subject: Subject) -> list[list[int]]:
    """Ids of real text, torn ones, and random ones."""
    tokenizer, rng = subject.artifact.tokenizer, random.Random(9)
    real = references_ids(subject, corpus.mixed(1500, 6))
    known = (
        real if subject.artifact.kind == "tiktoken" else list(subject.artifact.tokenizer.reference.get_vocab().values())
    )
    special = [token.id for token in tokenizer.spec.added_tokens][:40]
    made = [real, []]
    for _ in range(60):
        start = rng.randrange(len(real))
        made.append(real[start : start + rng.randint(1, 9)])
        made.append([rng.choice(rng.choice((known, real, special or real))) for _ in range(rng.randint(1, 7))])
    return made


def test_decode(subject: Subject, sequences: list[list[int]]) -> None:
    tokenizer = subject.artifact.tokenizer
    for ids in sequences:
        skips = (False,) if subject.artifact.kind == "tiktoken" else (True, False)
        for skip in skips:
            got = tokenizer.decode(ids, skip_special_tokens=skip)
            assert got == reference_decode(subject, ids, skip), (ids[:12], skip)


def test_a_stream_adds_up(subject: Subject, sequences: list[list[int]]) -> None:
    tokenizer = subject.artifact.tokenizer
    for ids in sequences[:30]:
        stream = tokenizer.stream_decoder()
        assert "".join(stream.push([id]) for id in ids) + stream.finish() == tokenizer.decode(ids), ids[:12]


def test_bytes_are_lossless(subject: Subject) -> None:
    tokenizer = subject.artifact.tokenizer
    if not tokenizer.spec.byte_level or subject.artifact.name == "trained-clip":
        pytest.skip("not a tokenizer that keeps every byte")
    text = "the quick brown fox\n\tjumps 123 日本 é \u200b"
    assert text.encode() in tokenizer.decode_bytes(references_ids(subject, text))
