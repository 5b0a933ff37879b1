"""What `cut_pieces` says of a text that its rewrites make longer than its room: never fewer tokens in silence."""

from __future__ import annotations

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
