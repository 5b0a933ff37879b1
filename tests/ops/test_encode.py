"""What the encode says of texts and lengths beyond its room, and of arguments of another kind: never fewer tokens in
silence."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import toktier_jax as tt
from tests.tokenizer_files import bpe, replace, sequence, tokenizer_json
from toktier_jax.ops.encode import HOST_NEEDED, OK, cut_pieces


@pytest.mark.parametrize("checked", [False, True])
def test_a_text_that_outgrows_its_room_needs_the_host(checked: bool) -> None:
    grows = sequence("normalizers", {"type": "NFC"}, replace(" ", "▁" * 12))
    tokenizer = tt.Tokenizer.from_bytes(tokenizer_json(bpe({"a": 0, "▁": 1}, []), normalizer=grows))
    for text, status in (("a" * 64, OK), (" " * 64, HOST_NEEDED)):
        data = jnp.asarray(np.frombuffer(text.encode(), np.uint8))
        pieces = cut_pieces(tokenizer.program, data, jnp.int32(64), checked=checked, at_end=True, lowering="walk")
        assert int(pieces.status) == status, text


@pytest.mark.parametrize("length", [-1, 65, 1 << 30])
def test_a_length_beyond_the_array_is_no_room(length: int) -> None:
    program = tt.Tokenizer.from_bytes(tokenizer_json(bpe({"a": 0}, []))).program
    out = tt.ops.encode_bytes(program, np.full(64, 97, np.uint8), np.int32(length))
    assert (int(out.status), int(out.count)) == (1, 0)
    assert (np.asarray(out.ids) == -1).all()


@pytest.mark.parametrize(
    ("program", "data", "says"),
    [("tok", np.zeros(4, np.uint8), "pass tok.program"), (None, b"hi", "np.frombuffer"), (None, [1, 2], "not list")],
)
def test_arguments_of_another_kind(program: Any, data: Any, says: str) -> None:
    program = program or tt.Tokenizer.from_bytes(tokenizer_json(bpe({"a": 0}, []))).program
    with pytest.raises(tt.InputError, match=says):
        tt.ops.encode_bytes(program, data, np.int32(2))
