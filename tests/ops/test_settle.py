"""The last place at which a text may be cut in two, against looking at every place."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tokenizer_files import bpe, tokenizer_json
from toktier_jax.ops.settle import cuts_of, settle
from toktier_jax.program.bpe import compile_bpe
from toktier_jax.spec.tokenizer_json import read_tokenizer_json
from toktier_jax.spec.types import BPE
from toktier_jax.types import FROZEN, TEXT, Buffer

SIZE = 10_000
"""More than two windows."""

run = jax.jit(settle, static_argnames="lowering")


def buffer(starts: list[int], length: int, decided: int, **fields: np.ndarray) -> Buffer:
    mask = np.zeros(SIZE, bool)
    mask[starts] = True
    first = np.arange(SIZE) == 0
    data = np.full(SIZE, 0x78, np.uint8)
    given = Buffer(data, np.int32(length), mask | first, first, np.zeros(SIZE, np.uint8), None, None, np.int32(decided))
    return given._replace(**fields)


def found(of: Buffer) -> int:
    return int(run(jax.tree.map(jnp.asarray, of), None, lowering="walk"))


@pytest.mark.parametrize(
    ("starts", "length", "decided", "expected"),
    [
        ([], 100, 100, 0),
        ([5, 50], 100, 100, 50),
        ([5, 50], 100, 50, 50),  # a start is decided at `decided` itself
        ([5, 50], 100, 49, 5),
        ([5, 50], 50, 50, 5),  # what begins at the end of the text is no place in it
        ([5], 100, 4, 0),
        ([5], SIZE, SIZE, 5),  # windows away
        ([1], SIZE, SIZE, 1),
        ([], SIZE, SIZE, 0),
        ([SIZE - 1], SIZE, SIZE, SIZE - 1),
        ([4096, 5904], SIZE, SIZE, 5904),
        ([], 0, 0, 0),
        ([3], 100, 0, 0),
    ],
)
def test_segment_starts(starts: list[int], length: int, decided: int, expected: int) -> None:
    assert found(buffer(starts, length, decided)) == expected


@pytest.mark.parametrize("seed", range(4))
def test_where_work_may_be_resumed_and_originals_begin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        starts = rng.choice(SIZE, rng.integers(0, 40), replace=False).tolist()
        length = int(rng.integers(1, SIZE))
        decided = int(rng.integers(0, length + 1))
        resume = rng.random(SIZE) < 0.5
        begins = np.cumsum(rng.random(SIZE) < 0.5).astype(
            np.int32
        )  # half of the bytes share theirs with the one before
        origin = np.stack([begins, begins + 1])
        of = buffer(starts, length, decided, resume=resume, origin=origin)
        good = [
            place
            for place in sorted({0, *starts})
            if 0 < place <= decided and place < length and resume[place] and begins[place] >= origin[1, place - 1]
        ]
        assert found(of) == (good[-1] if good else 0)


@functools.cache
def model():
    """Tokens that lie across `ab` and `b `; every other pair may be cut between."""
    vocab = {token: id for id, token in enumerate(["a", "b", "x", " ", "ab", "b "])}
    file = tokenizer_json(bpe(vocab, [["a", "b"], ["b", " "]]))
    of = read_tokenizer_json(file, file="f", source="tokenizer.json", fingerprint="").model
    assert isinstance(of, BPE)
    return compile_bpe(of, byte_level=False)


def test_text_without_pieces_is_cut_where_no_token_lies() -> None:
    plan, tables = model()
    cuts = cuts_of((), plan, tables)
    assert cuts is not None

    def last(text: str, frozen: slice = slice(0, 0)) -> int:
        of = buffer([], len(text), len(text))
        of.data[: len(text)] = np.frombuffer(text.encode(), np.uint8)
        of.kind[:] = TEXT
        of.kind[frozen] = FROZEN
        tables = jax.tree.map(jnp.asarray, cuts)
        return int(run(jax.tree.map(jnp.asarray, of), tables, lowering="walk"))

    assert last("ab ab") == 3  # before the last `ab`
    assert last("ab " + "ab") == 3
    assert last("xx" + "ab ") == 2
    assert last("abx") == 2
    assert last("xab ", slice(0, 2)) == 0  # never inside an added token
    assert last("ab") == 0
