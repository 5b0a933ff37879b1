"""Symbols of bytes: every code point, internal codes, what is past the text."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toktier_jax.ops.classify import classify, classify_bytes
from toktier_jax.ops.scan import Lowering
from toktier_jax.program.classes import Partition, everything, partition, probe, single
from toktier_jax.types import CONT, PAD

CODES = np.arange(200, 208, dtype=np.uint8)


@pytest.fixture(scope="module")
def cut() -> Partition:
    return partition([probe(r"\p{L}", "oniguruma"), probe(r"\p{Lu}", "oniguruma"), single("\uffff"), everything()])


run = jax.jit(classify, static_argnames="lowering")


def symbols(cut: Partition, data: bytes, size: int, lowering: Lowering) -> np.ndarray:
    padded = np.frombuffer(data.ljust(size, b"x"), np.uint8)
    return np.asarray(
        classify(padded, jnp.int32(len(data)), cut.pages, cut.table, jnp.asarray(CODES), lowering=lowering)
    )


@pytest.mark.parametrize("lowering", ["arrays", "walk"])
def test_every_code_point(cut: Partition, lowering: Lowering) -> None:
    code_points = np.flatnonzero(everything())
    text = code_points.astype("<u4").tobytes().decode("utf-32-le").encode()
    found = symbols(cut, text, len(text) + 5, lowering)
    lead = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
    assert (found[: len(text)][lead] == cut.lookup(code_points)).all()
    assert (found[: len(text)][~lead] == CONT).all()
    assert (found[len(text) :] == PAD).all()


@pytest.mark.parametrize("lowering", ["arrays", "walk"])
@pytest.mark.parametrize("size", [1, 8193, 30000])
def test_any_size_and_length(cut: Partition, lowering: Lowering, size: int) -> None:
    text = ("plain text " * 900 + "é世\U0001f600" * 100 + "\uffff" + "more plain text " * 2000).encode()[:size]
    expected = symbols(cut, text, len(text), "arrays")
    for length in {0, size // 2, size}:
        found = symbols(cut, text[:length], size, lowering)
        assert (found[: max(0, length - 3)] == expected[: max(0, length - 3)]).all()
        assert (found[length:] == PAD).all()


@pytest.mark.parametrize("lowering", ["arrays", "walk"])
def test_internal_codes(cut: Partition, lowering: Lowering) -> None:
    assert symbols(cut, bytes(range(0xF8, 0x100)), 8, lowering).tolist() == CODES.tolist()


def test_rows_of_a_batch(cut: Partition) -> None:
    texts = ["ab\u00e9", "\uffffab", "A"]
    data = np.stack([np.frombuffer(text.encode().ljust(8, b"x"), np.uint8) for text in texts])
    lengths = jnp.asarray([len(text.encode()) for text in texts], jnp.int32)
    parts = (cut.pages, cut.table, jnp.asarray(CODES))
    rows = jax.jit(jax.vmap(lambda row, length: classify(row, length, *parts, lowering="walk")))
    found = rows(data, lengths)
    for row, text in zip(np.asarray(found), texts, strict=True):
        assert (row == symbols(cut, text.encode(), 8, "arrays")).all()


def test_bytes_as_characters() -> None:
    table = np.random.default_rng(0).integers(0, 250, 256).astype(np.uint8)
    data = np.arange(256, dtype=np.uint8)
    found = np.asarray(jax.jit(classify_bytes)(data, jnp.int32(255), jnp.asarray(table)))
    assert (found[:255] == table[:255]).all()
    assert found[255] == PAD
