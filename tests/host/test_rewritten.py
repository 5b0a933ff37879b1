"""Windows in XLA: each lowering finds the tables that it reads."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from tests.tokenizer_files import bpe, byte_level, replace, tokenizer_json
from toktier_jax import Tokenizer
from toktier_jax.executables import encoder
from toktier_jax.host import rewritten
from toktier_jax.host.rewritten import RewrittenEncoder
from toktier_jax.ops.anchors import cut_with_anchors
from toktier_jax.ops.encode import OK, Pieces
from toktier_jax.ops.scan import Lowering
from toktier_jax.spec.byte_alphabet import ALPHABET

FILE = tokenizer_json(
    bpe({token: id for id, token in enumerate(ALPHABET)}, []),
    normalizer=replace(r"\s+x", "y", regex=True),
    pre_tokenizer=byte_level(),
)
"""A split, and a rewrite that holds another."""


@pytest.mark.parametrize("lowering", ["arrays", "walk"])
def test_a_window_on_a_device_is_traced_in_both_lowerings(lowering: Lowering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewritten, "default_lowering", lambda: lowering)
    device = Tokenizer.from_bytes(FILE)._routes.device
    assert device is not None
    made = RewrittenEncoder(device.programs["parse"], on_device=True)
    program, found_lowering = made._place()
    assert found_lowering == lowering
    block, yes = np.zeros(1 << 12, np.uint8), np.bool_(True)
    cut = functools.partial(cut_with_anchors, lowering=lowering)
    window = jax.eval_shape(cut, program, block, np.int32(3), yes, yes)
    pieces = Pieces(window.buffer, window.limit, np.int32(OK))  # type: ignore[arg-type]  # numpy for jax
    out = jax.eval_shape(encoder(lowering, made._model), program.tables.model, pieces)
    assert out.ids.dtype == np.int32


def test_only_the_tables_of_the_lowering_go_to_the_device() -> None:
    device = Tokenizer.from_bytes(FILE)._routes.device
    assert device is not None
    program, lowering = RewrittenEncoder(device.programs["parse"])._place()
    splits = [getattr(part, "split", None) or part for part in program.tables.steps]
    splits = [part for part in splits if hasattr(part, "functions")]
    assert lowering == "walk"
    assert len(splits) == 2
    assert all(part.functions is None and part.walk is not None for part in splits)
