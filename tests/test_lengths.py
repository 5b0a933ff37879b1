"""Texts of any length: no compile for one, pieces longer than a block, 64 MB in blocks with bounded memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toktier_jax as tt
from tests.ops.test_transformations import tokenizer
from tests.tokenizer_files import LLAMA_NORMALIZER, bpe, tokenizer_json
from toktier_jax import engine

ROOT = Path(__file__).resolve().parents[1]


class Compiles:
    """Counts what jax compiles while it is open."""

    def __enter__(self) -> Compiles:
        self.names: list[str] = []
        jax.monitoring.register_event_duration_secs_listener(self._heard)
        return self

    def _heard(self, event: str, duration_secs: float, **_: Any) -> None:
        if "compile" in event:
            self.names.append(event)

    def __exit__(self, *_: Any) -> None:
        jax.monitoring.unregister_event_duration_listener(self._heard)


def random_texts(count: int, most: int) -> list[str]:
    rng = np.random.default_rng(count)
    letters = list("theing ab<x>é日\n1'")
    return ["".join(rng.choice(letters, size)) for size in rng.integers(1, most // 3, count)]


def test_no_length_is_compiled_for() -> None:
    """50 random lengths of the least capacity: after the first text there is neither a trace nor a compile."""
    tok, texts = tokenizer(), random_texts(50, 1024)
    tok.encode("the", route="xla")
    before = tok.explain().compiles
    assert before
    with Compiles() as compiles:
        jax.jit(lambda: jnp.zeros(3))()  # the listener hears of compiles
        heard = len(compiles.names)
        found = [tok.encode(text, route="xla").ids.tolist() for text in texts]
    assert heard
    assert compiles.names[heard:] == []
    assert tok.explain().compiles == before
    assert found == [tok.reference.encode(text).ids for text in texts]


@pytest.mark.slow  # all capacities are compiled
def test_nothing_is_compiled_after_warming_up() -> None:
    tok = tokenizer()
    tok.warmup()
    before = tok.explain().compiles
    counts = {1 << 10: 400, 1 << 12: 300, 1 << 14: 200, 1 << 16: 80, 1 << 18: 20}
    texts = [text for most, count in counts.items() for text in random_texts(count, most)]
    with Compiles() as compiles:
        for text in texts:
            assert tok.encode(text, route="xla").ids.tolist() == tok.reference.encode(text).ids
        found = tok.encode("".join(texts), route="xla").ids
    assert compiles.names == []
    assert tok.explain().compiles == before
    assert found.tolist() == tok.reference.encode("".join(texts)).ids


# ---- pieces that no block holds ----


def test_a_piece_longer_than_every_block_is_the_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the call says so; many pieces that fit are no such text."""
    monkeypatch.setattr(engine, "CAPACITIES", (1 << 10,))
    monkeypatch.setattr(engine, "CPU_BLOCK", 1 << 10)
    tok = tokenizer()
    for text, at in (("x" * 1025, 0), ("the in" + "ab" * 800, 3), ("\n" + "é" * 3000 + " the", 1)):
        found = tok.encode(text)
        assert found.route == "reference"
        assert found.fallback_reason == f"a piece of the text, at byte {at}, is longer than 1024 bytes"
        assert found.ids.tolist() == tok.reference.encode(text).ids
        with pytest.raises(tt.UnsupportedError, match=f"at byte {at}, is longer than 1024"):
            tok.encode(text, route="xla")
    for text in ("x" * 1024, "the in" + " ab" * 800, ("é" * 500 + " ") * 5):
        found = tok.encode(text, route="xla")
        assert found.ids.tolist() == tok.reference.encode(text).ids


def llama() -> tt.Tokenizer:
    """No pre-tokenizer: all text is one piece, which is cut where no token lies across: after b, but not between a."""
    vocab = {token: id for id, token in enumerate(["<unk>", "▁", "a", "b", "ab", "aa", "▁a"])}
    model = bpe(vocab, [["a", "b"], ["a", "a"], ["▁", "a"]], unk_token="<unk>", fuse_unk=True)
    return tt.Tokenizer.from_bytes(tokenizer_json(model, normalizer=LLAMA_NORMALIZER))


@pytest.mark.slow  # the largest blocks are compiled
@pytest.mark.parametrize("kind", ["a piece", "no pieces"])
@pytest.mark.parametrize("text", ["ab" * 2_500_000, "a" * 5_000_000], ids=["ab", "a"])
def test_five_million_letters(kind: str, text: str) -> None:
    """Longer than usual blocks: a block of their own."""
    tok = tokenizer() if kind == "a piece" else llama()
    found = tok.encode(text, route="xla")
    assert found.ids.tolist() == tok.reference.encode(text).ids


# ---- 64 MB ----

CHILD = """
import json, resource, sys
import numpy as np
import toktier_jax as tt
from tests import corpus

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

tok = tt.Tokenizer.default()
unit = "Every unit begins with a word" + corpus.mixed(1 << 20) + "\\n"
expected = np.array(tok.reference.encode(unit).ids)
twice = tok.reference.encode(unit * 2).ids
assert twice == [*expected.tolist()] * 2  # whatever the tokenizer: units do not touch
del twice
times = -(-(64 << 20) // len(unit.encode()))
assert np.array_equal(tok.encode(unit * 2, route="xla").ids, np.tile(expected, 2))
text = (unit * times).encode()
before = peak()
found = tok.encode(text, route="xla")
after = peak()
assert np.array_equal(found.ids.reshape(times, -1), np.broadcast_to(expected, (times, len(expected))))
print(json.dumps({"bytes": len(text), "ids": len(found.ids), "growth": after - before}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory as Linux gives it")
def test_64_megabytes() -> None:
    """Equal to the reference, and a few bytes of memory for each: the ids and spans, and not the text in one buffer."""
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    run = [sys.executable, "-c", CHILD]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["bytes"] >= 64 << 20
    assert found["growth"] <= 20 * found["bytes"], found
