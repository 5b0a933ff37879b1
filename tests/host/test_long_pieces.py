"""Long pieces made of those before are what a merge of the whole gives, and cost what lies round the change."""

from __future__ import annotations

import random
import string

import pytest

from tests import artifacts
from toktier_jax import Tokenizer
from toktier_jax.host import long_pieces
from toktier_jax.host.word_merge import LONG_PIECE, WordMerger
from toktier_jax.plan import BPEPlan


def _merger(name: str) -> WordMerger:
    try:
        program = (artifacts.load(name).tokenizer if name else Tokenizer.default()).program
    except artifacts.Missing as missing:
        pytest.skip(str(missing))
    assert isinstance(program.plan.model, BPEPlan)
    merger = WordMerger(program.plan.model, program.tables.model)
    merger.load()
    return merger


@pytest.mark.parametrize("name", ["", "qwen-3"])
@pytest.mark.parametrize("letters", ["ab", "a", " ", "0123456789", string.ascii_letters, "\u4e2d\u6587\u5b57\u7684"])
def test_changes_of_a_long_piece(name: str, letters: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_pieces, "REACH", 16)  # that it has to be widened
    merger, draw = _merger(name), random.Random(letters)
    piece = "".join(draw.choices(letters, k=LONG_PIECE + 500))
    for _ in range(int(12 * scale)):
        assert merger.find([piece.encode()])[0] == merger._merge_piece(piece.encode())
        at, size = draw.choice((0, len(piece), draw.randrange(len(piece)))), draw.choice((0, 1, 40))
        piece = piece[:at] + "".join(draw.choices(letters + "xZ", k=draw.randrange(60))) + piece[at + size :]
    assert len(merger._long._kept) > 1


def test_only_what_lies_round_a_change_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[int] = []

    def merge(data: bytes) -> long_pieces.Tokens:
        merged.append(len(data))
        return tuple(data), tuple(range(1, len(data) + 1))

    pieces = long_pieces.LongPieces(merge)
    text = random.Random(1).randbytes(100_000)
    for piece in (text, text + b"more", text[:50_000] + b"!" + text[50_000:], b"?" + text, text[:60_000]):
        assert pieces.encode(piece) == (tuple(piece), tuple(range(1, len(piece) + 1)))
    assert merged[0] == 100_000
    assert max(merged[1:]) <= 2 * long_pieces.REACH + 10
    monkeypatch.setattr(long_pieces, "KEPT", 150_000)
    pieces.encode(text[::-1])
    assert pieces._kept[0].piece == text[::-1]
    assert sum(len(each.piece) for each in pieces._kept) <= 150_000
    for number in range(2 * long_pieces.PIECES):
        pieces.encode(b"%d" % number)
    assert len(pieces._kept) == long_pieces.PIECES
