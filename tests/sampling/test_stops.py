"""Stop strings: the automaton, what a stream holds back, and tokenizers that put bytes between tokens."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers

import toktier_jax as tt
from toktier_jax import sampling
from toktier_jax.errors import UnsupportedError
from toktier_jax.sampling import outcome, stops

from . import small
from .test_generate import Recorder


def test_the_automaton_finds_what_a_search_finds_and_knows_what_may_begin() -> None:
    rng = random.Random(0)
    for _ in range(100):
        given = stops.check_stops(
            [bytes(rng.choices(b"ab\xe4", k=rng.randint(1, 4))) for _ in range(rng.randint(1, 5))]
        )
        machine, data, state = given.automaton, b"", 0
        while not machine.found(state) and len(data) < 30:
            assert given.find(data) is None
            ends = [data[len(data) - k :] for k in range(min(given.memory, len(data)), 0, -1)]
            begun = [len(end) for end in ends if any(string.startswith(end) for string in given.strings)]
            assert machine.begun[state] == next(iter(begun), 0)
            data += bytes(rng.choices(b"abc\xe4"))
            state = machine.after(state, data[-1:])
        assert (given.find(data) is not None) == machine.found(state)


def test_a_long_stop_string_takes_no_time() -> None:
    began = time.process_time()
    given = stops.check_stops(["ab" * 1000, "x" * 2000])
    shown = outcome._Shown(SimpleNamespace(cut=b"", kept=(0,), context=SimpleNamespace(tail=b"")))  # type: ignore[arg-type]  # a double
    for _ in range(1999):  # all of it may begin a stop string
        assert shown.push(b"x", given, False) == ""
    assert shown.push(b"y", given, False) == "x" * 1999 + "y"
    assert time.process_time() - began < 2


def test_nothing_follows_a_stop_string() -> None:
    given = stops.check_stops("stop")
    shown = outcome._Shown(SimpleNamespace(cut=b"st", kept=(0,), context=SimpleNamespace(tail=b"")))  # type: ignore[arg-type]  # a double
    texts = [shown.push(data, given, False) for data in (b"st", b"op s", b"top now", b" and then")]
    assert "".join(texts) == "op "


# ---- tokenizers whose tokens are not simply joined ----


def word_piece(decoder: Any) -> Any:
    words = ["[UNK]", "[CLS]", "hello", "wor", "world", "##ld", "##k", "a", "b", "ab", ",", "##b"]
    model = tokenizers.models.WordPiece(vocab={word: id for id, word in enumerate(words)}, unk_token="[UNK]")
    found = tokenizers.Tokenizer(model)
    found.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    if decoder is not None:
        found.decoder = decoder
    found.add_special_tokens(["[UNK]", "[CLS]"])
    return tt.Tokenizer.from_bytes(found.to_str().encode())


@pytest.mark.parametrize(
    ("text", "stop", "data"),
    [
        (b" a b ab", "a b", b" "),  # a space that no token spells
        (b" a b ab", "ab", b" a b "),  # not at the word b
        (b" ab a, b", "a,", b" ab "),  # a cleaned up space
        (b" a b ab", " ab", b" a b"),
    ],
)
def test_a_stop_string_meets_the_spaces_of_word_piece(text: bytes, stop: str, data: bytes) -> None:
    tok = word_piece(tokenizers.decoders.WordPiece())
    lm = small.model(16)
    options: dict[str, Any] = {"boundary": "none", "context_start": 1, "max_tokens": 4, "stop": stop}
    options["constraint"] = Recorder(tok, lm.vocab_size, text)
    out = sampling.generate(lm, tok, "hello", **options)
    assert (out.data, out.finish_reason) == (data, "stop")
    assert "".join(event.text for event in sampling.stream(lm, tok, "hello", **options)) == out.text


@pytest.mark.parametrize("more", [b"ld a", b" ab", b"k"])
def test_healing_spells_word_pieces_again(more: bytes) -> None:
    tok = word_piece(tokenizers.decoders.WordPiece())
    lm = small.model(16)
    constraint = Recorder(tok, lm.vocab_size, more)
    out = sampling.generate(lm, tok, "hello wor", boundary="heal", context_start=1, max_tokens=1, constraint=constraint)
    assert out.boundary.cut == b" wor"
    assert out.data
    assert more.startswith(out.data)
    assert tok.decode_bytes([*out.boundary.kept, *out.ids]) == b"[CLS] hello wor" + out.data
    with pytest.raises(UnsupportedError, match="WordPiece"):
        sampling.generate(lm, tok, "hello wor", boundary="exact", context_start=1)


@pytest.mark.parametrize(
    ("decoder", "name"),
    [
        (None, "none"),
        (tokenizers.decoders.CTC(), "CTC"),
        (tokenizers.decoders.Sequence([tokenizers.decoders.BPEDecoder("ld")]), "BPEDecoder"),
    ],
    ids=str,
)
def test_where_neighbours_change_a_token_it_is_neither_healed_nor_stopped_at(decoder: Any, name: str) -> None:
    tok = word_piece(decoder)
    lm = small.model(16)
    options: dict[str, Any] = {"context_start": 1, "max_tokens": 2}
    with pytest.raises(UnsupportedError, match=f"stop strings with the decoder {name}"):
        sampling.generate(lm, tok, "hello wor", boundary="none", stop="a", **options)
    for boundary in ("heal", "exact"):
        with pytest.raises(UnsupportedError, match=f'boundary="{boundary}" with the decoder {name}'):
            sampling.generate(lm, tok, "hello wor", boundary=boundary, **options)
    assert len(sampling.generate(lm, tok, "hello wor", boundary="none", stop_ids=(), **options).ids) == 2


def test_a_stop_string_may_be_any_kind_of_bytes() -> None:
    assert stops.check_stops(bytearray(b"ab")).strings == stops.check_stops([bytearray(b"ab")]).strings == (b"ab",)
