"""valid_utf8 against Python's strict decoder."""

from __future__ import annotations

import itertools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toktier_jax.ops.utf8 import valid_utf8

SCALE = float(os.environ.get("TOKTIER_JAX_TEST_SCALE", "1"))
EDGES = bytes([0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE])
EDGES += bytes([0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF7, 0xF8, 0xFF])


def python_says(raw: bytes) -> bool:
    try:
        raw.decode("utf-8", "strict")
    except UnicodeDecodeError:
        return False
    return True


rows = jax.jit(jax.vmap(valid_utf8))


def check(texts: list[bytes], size: int) -> None:
    """Each text is followed by rubbish that must not matter."""
    data = np.full((len(texts), size), 0xA5, np.uint8)
    for row, text in zip(data, texts, strict=True):
        row[: len(text)] = np.frombuffer(text, np.uint8)
    got = rows(jnp.asarray(data), jnp.asarray([len(text) for text in texts], jnp.int32))
    wrong = [text for text, ok in zip(texts, np.asarray(got), strict=True) if ok != python_says(text)]
    assert not wrong, wrong[0]


def test_every_sequence_of_four_edge_bytes():
    check([bytes(four) for four in itertools.product(EDGES, repeat=4)], 7)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_every_short_sequence(length: int):
    """All sequences of one and two bytes; of three after a lead byte of three or four."""
    first = range(256) if length < 3 else range(0xE0, 0xF5)
    texts = [bytes(t) for t in itertools.product(first, *[range(0, 256, 1 if length < 3 else 3)] * (length - 1))]
    check(texts, 5)


def test_random_damage():
    rng = np.random.default_rng(0)
    alphabet = ["a", "é", "߿", "ࠀ", "漢", "\ud7ff", "\ue000", "\uffff", "\U00010000", "🎉", "\U0010ffff"]
    texts = []
    for _ in range(int(2000 * SCALE)):
        raw = bytearray("".join(rng.choice(alphabet, rng.integers(1, 12))).encode())
        for _ in range(rng.integers(0, 2)):
            raw[rng.integers(len(raw))] = rng.integers(256)
        texts.append(bytes(raw[: rng.integers(len(raw)) + 1]))
    check(texts, 64)


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_the_end_cuts_a_character(cut: int):
    """Where the buffer is full as well as where it is not."""
    raw = ("x" * 4 + "🎉").encode()[: 4 + cut]
    for size in (len(raw), len(raw) + 3):
        check([raw], size)


def test_empty():
    check([b"", b"\x80"], 4)


def test_strict_dtypes_and_ranks():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        assert valid_utf8(jnp.asarray([0xC3, 0xA9, 0x41], jnp.uint8), jnp.int32(3))
