"""Generated tokenizer files through the device path: equal to the reference, or refused by name."""

from __future__ import annotations

import json
from collections import Counter

import jax
import numpy as np
import pytest

import toktier_jax as tt
from tests import generated
from toktier_jax.verify.campaign import DeviceSubject, Report, compare
from toktier_jax.verify.oracle import ReferenceFailed, oracle_for

FILES = 520
PARTS = 20


def files_of(part: int) -> range:
    """One of PARTS ranges of files; those in a row share few components, so that each range has some of all."""
    size = FILES // PARTS
    return range(part * size, (part + 1) * size)


def check(index: int) -> str:
    """Compares file `index` on its texts; returns the route it took or the reason why it has no device path."""
    made = next(iter(generated.generate(1, index)))
    tokenizer = tt.Tokenizer.from_bytes(made.file)
    oracle = oracle_for(tokenizer.reference)
    texts = generated.texts(made.file, 14, seed=index, length=60)
    if tokenizer.explain().route == "xla":
        report, subject = Report(), DeviceSubject(tokenizer)
        for text in texts:
            found = compare(subject, oracle, text, report)
            assert not found, f"file {made.name}: {found[0]}"
        assert without_unknown(made.file) or report.refused < len(texts) // 2, report.reasons
        return "xla"
    for text in texts[:4]:
        try:
            expected = oracle.observe(text, None)
        except ReferenceFailed:
            continue
        encoding = tokenizer.encode(text)
        assert encoding.fallback_reason
        assert np.array_equal(encoding.ids, expected.ids), (made.name, text)
        assert np.array_equal(encoding.char_spans, expected.char_spans), (made.name, text)
    return tokenizer.explain().reference[0]


def without_unknown(file: bytes) -> bool:
    """Whether the reference drops characters that no token has: such texts are its own."""
    model = json.loads(file)["model"]
    return model["type"] == "BPE" and model["unk_token"] is None and not model["byte_fallback"]


@pytest.mark.slow  # a compile for nearly each of them
@pytest.mark.parametrize("part", range(PARTS))
def test_all(part: int, device: None) -> None:
    routes = Counter(check(index) for index in files_of(part))
    jax.clear_caches()  # a thousand executables would take tens of gigabytes
    assert routes["xla"] > 0, routes


@pytest.mark.slow  # compiles the tables of all
def test_most_have_a_device_path() -> None:
    routes = Counter(tt.Tokenizer.from_bytes(made.file).explain().route for made in generated.generate(FILES))
    assert routes["xla"] > FILES // 2, routes
