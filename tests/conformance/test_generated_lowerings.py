"""Generated tokenizer files through `encode_bytes` in both lowerings, their texts packed as documents of one buffer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest
import tokenizers

import toktier_jax as tt
from tests import generated
from toktier_jax.ops.encode import HOST_NEEDED, OK
from toktier_jax.ops.scan import Lowering

from .test_generated import PARTS, files_of

SIZE, DOCUMENTS = 2048, 16
LOWERINGS: tuple[Lowering, ...] = ("arrays", "walk")


@functools.cache
def encoder(lowering: Lowering) -> Callable[..., Any]:
    def run(program: Any, data: jax.Array, length: jax.Array, starts: jax.Array) -> Any:
        return tt.ops.encode_bytes(program, data, length, segment_starts=starts, lowering=lowering)

    return jax.jit(run)


def encode(program: Any, texts: Sequence[str]) -> list[list[int]] | None:
    """The ids of each text, the same in both lowerings with their spans; None where both ask for the host."""
    raw = [text.encode() for text in texts]
    data, starts = np.zeros(SIZE, np.uint8), np.full(DOCUMENTS, SIZE, np.int32)
    joined = b"".join(raw)
    data[: len(joined)] = np.frombuffer(joined, np.uint8)
    starts[: len(raw)] = np.cumsum([0, *map(len, raw[:-1])])
    arrays, walk = (
        jax.tree.map(np.asarray, encoder(lowering)(program, data, np.int32(len(joined)), starts))
        for lowering in LOWERINGS
    )
    assert int(arrays.status) == int(walk.status), texts
    if int(arrays.status) == HOST_NEEDED:
        return None
    assert int(arrays.status) == OK, texts
    count = int(walk.count)
    for name in ("ids", "byte_starts", "byte_ends"):
        assert getattr(arrays, name)[:count].tolist() == getattr(walk, name)[:count].tolist(), (name, texts)
    assert arrays.segment_counts.tolist() == walk.segment_counts.tolist(), texts
    assert walk.segment_counts.sum() == count
    return [part.tolist() for part in np.split(walk.ids[:count], np.cumsum(walk.segment_counts[: len(raw)])[:-1])]


def expected(reference: tokenizers.Tokenizer, text: str) -> list[int] | None:
    """None where the reference panics."""
    try:
        return reference.encode(text, add_special_tokens=False).ids
    except BaseException as error:  # a panic in Rust is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return None


def check(index: int) -> int:
    """Compares file `index` on its texts; returns the number of ids compared."""
    made = next(iter(generated.generate(1, index)))
    tokenizer = tt.Tokenizer.from_bytes(made.file)
    if tokenizer.explain().route != "xla":
        return 0
    reference = tokenizers.Tokenizer.from_buffer(made.file)
    reference.no_truncation()
    reference.no_padding()
    texts = [text for text in dict.fromkeys(generated.texts(made.file, 14, seed=index, length=60)) if text]
    wanted = [expected(reference, text) for text in texts]
    together = encode(tokenizer.program, texts) if sum(len(text.encode()) for text in texts) <= SIZE else None
    compared = 0
    for number, (text, ids) in enumerate(zip(texts, wanted, strict=True)):
        alone = encode(tokenizer.program, [text])
        found = alone if together is None else [together[number]]
        assert together is None or alone == found, (made.name, text)
        if ids is not None and found is not None:
            assert found[0] == ids, (made.name, text)
            compared += len(ids)
    return compared


@pytest.mark.slow  # two compiles for nearly each of them
@pytest.mark.parametrize("part", range(PARTS))
def test_all(part: int) -> None:
    compared = sum(check(index) for index in files_of(part))
    jax.clear_caches()  # a thousand executables would take tens of gigabytes
    assert compared > 0
