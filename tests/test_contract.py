"""The public contract: names and signatures as they were promised, batches with all options, packing, iterating."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
import tokenizers

import toktier_jax as tt
from tests.tokenizer_files import added, bpe, byte_level, template, tokenizer_json
from toktier_jax.spec.byte_alphabet import ALPHABET

TEXTS = ["ab ab", "", "é<s>ab", "abab\n日本", "x" * 30]


@functools.cache
def file() -> bytes:
    vocab = {token: id for id, token in enumerate([*ALPHABET, "ab", "Ġab"])}
    return tokenizer_json(
        bpe(vocab, [["a", "b"], ["Ġ", "ab"]]),
        pre_tokenizer=byte_level(),
        post_processor=template(["<s>"], ["</s>"], {"<s>": 258, "</s>": 259}),
        added=[added(258, "<s>", special=True), added(259, "</s>", special=True), added(260, "<pad>", special=True)],
        decoder=byte_level(),
    )


@functools.cache
def tokenizer() -> tt.Tokenizer:
    return tt.Tokenizer.from_bytes(file())


def reference(**options: Any) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer.from_buffer(file())
    if options:
        made.enable_padding(**options)
    return made


ENCODE = "add_special_tokens=True, special='parse', route='auto'"


@pytest.mark.parametrize(
    ("method", "signature"),
    [
        (tt.Tokenizer.encode, f"(self, text, {ENCODE})"),
        (
            tt.Tokenizer.encode_batch,
            f"(self, texts, length=None, pad_id=None, side=None, overflow='raise', {ENCODE})",
        ),
        (tt.Tokenizer.encode_iter, f"(self, texts, {ENCODE})"),
        (tt.Tokenizer.pack, f"(self, docs, length, {ENCODE})"),
        (tt.Tokenizer.decode, "(self, ids, skip_special_tokens=True)"),
        (tt.Tokenizer.decode_bytes, "(self, ids)"),
        (tt.Tokenizer.token_bytes, "(self, id)"),
        (tt.Tokenizer.warmup, "(self)"),
        (tt.Tokenizer.explain, "(self)"),
        (
            tt.SessionStore,
            "(tok, path=None, ttl=3600.0, max_bytes=1073741824, shadow=0.0, *, policy=None, quarantine=None, "
            "on_mismatch=None)",
        ),
        (tt.SessionStore.open, "(self, name, text=None)"),
        (tt.SessionStore.get, "(self, name)"),
        (tt.SessionStore.list, "(self)"),
        (tt.SessionStore.delete, "(self, name)"),
        (tt.SessionStore.stats, "(self)"),
        (tt.SessionStore.encode, "(self, text)"),
        (tt.SessionStore.close, "(self)"),
        (tt.Session.append, "(self, text)"),
        (tt.Session.update, "(self, text)"),
        (tt.Session.replace, "(self, start, stop, text)"),
        (tt.Session.truncate, "(self, n)"),
        (tt.Session.fork, "(self, name)"),
        (tt.Session.explain, "(self)"),
        (tt.Session.close, "(self)"),
        (tt.Patch, "(keep, ids, tail, revision)"),
        (tt.Patch.apply, "(self, old)"),
        (
            tt.ops.encode_bytes,
            "(program, data, length, *, segment_starts=None, at_end=True, capacity=None, lowering=None)",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_signatures(method: Callable[..., Any], signature: str) -> None:
    found = inspect.signature(method)
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    assert str(inspect.Signature(plain)) == signature


def test_names() -> None:
    constructors = ("from_file", "from_pretrained", "from_tokenizers", "from_tiktoken", "default")
    verbs = ("count", "stream_decoder", "apply_chat_template", "vocab_size", "fingerprint", "program", "reference")
    assert all(hasattr(tt.Tokenizer, name) for name in (*constructors, *verbs))
    errors = {"InputError", "SpecError", "UnsupportedError", "CapacityError", "SessionError"}
    assert {each.__name__ for each in tt.ToktierError.__subclasses__()} >= errors
    assert issubclass(tt.InputError, ValueError)
    assert {each.__name__ for each in tt.SessionError.__subclasses__()} == {
        "RevisionConflict",
        "UnknownSession",
        "ClosedSession",
    }
    out = ("ids", "byte_starts", "byte_ends", "count", "segment_counts", "status", "decided")
    shapes = jax.eval_shape(
        functools.partial(tt.ops.encode_bytes, capacity=5), tokenizer().program, np.zeros(64, np.uint8), np.int32(3)
    )
    assert set(out) == set(shapes._fields)
    assert [getattr(shapes, name).shape for name in out] == [(5,), (5,), (5,), (), (1,), (), ()]
    assert {leaf.dtype.name for leaf in shapes} == {"int32"}


def test_the_program_is_a_pytree_of_tables_with_a_hashable_plan() -> None:
    program = tokenizer().program
    leaves, tree = jax.tree.flatten(program)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    again = tt.Tokenizer.from_bytes(file()).program
    assert hash(program.plan) == hash(again.plan)
    assert tree == jax.tree.structure(again)
    assert jax.tree.map(lambda leaf: leaf.shape, program).plan == program.plan


# ---- batches ----


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("length", [None, 33])
@pytest.mark.parametrize("special", [True, False])
def test_padded_rows_are_the_references(side: Any, length: int | None, special: bool) -> None:
    judge = reference(direction=side, pad_id=260, pad_token="<pad>", length=length)
    batch = tokenizer().encode_batch(TEXTS, length, 260, side, add_special_tokens=special)
    expected = judge.encode_batch(TEXTS, add_special_tokens=special)
    assert batch.ids.tolist() == [row.ids for row in expected]
    assert batch.lengths.tolist() == [sum(row.attention_mask) for row in expected]
    assert batch.status.tolist() == [0] * len(TEXTS)


def test_rows_come_from_the_device_path_however_they_are_asked_for() -> None:
    tok = tt.Tokenizer.from_bytes(file())
    auto = tok.encode_batch([*TEXTS, TEXTS[0].encode()])
    assert tok.explain().calls == {"xla": len(TEXTS) + 1}
    assert tok.encode_batch(tuple(TEXTS), route="xla").ids.tolist() == auto.ids.tolist()[:-1]
    assert tok.encode_batch(TEXTS, route="reference").ids.tolist() == auto.ids.tolist()[:-1]
    assert auto.ids[-1].tolist() == auto.ids[0].tolist()


def test_special_tokens_in_a_batch() -> None:
    tok, plain = tokenizer(), reference()
    plain.encode_special_tokens = True
    batch = tok.encode_batch(TEXTS, special="text", add_special_tokens=False)
    rows = [row[:size] for row, size in zip(batch.ids.tolist(), batch.lengths.tolist(), strict=True)]
    assert rows == [plain.encode(text, add_special_tokens=False).ids for text in TEXTS]
    with pytest.raises(tt.InputError, match="special token at character 1"):
        tok.encode_batch(TEXTS, special="error")
    assert tok.encode_batch(["ab", "é"], special="error").lengths.tolist() == [3, 4]


def test_a_row_that_does_not_fit_is_never_cut() -> None:
    tok = tokenizer()
    with pytest.raises(tt.CapacityError, match="row 4 has 32 ids and length is 31"):
        tok.encode_batch(TEXTS, 31)
    batch = tok.encode_batch(TEXTS, 31, overflow="status")
    assert batch.status.tolist() == [0, 0, 0, 0, 1]
    assert int(batch.lengths[4]) == 32
    assert set(batch.ids[4].tolist()) == {-1}
    assert tok.encode_batch(TEXTS, 32).status.tolist() == [0] * 5


# ---- packing ----


@pytest.mark.parametrize("length", [1, 7, 400])
@pytest.mark.parametrize("special", [True, False])
def test_packed_rows_hold_every_document_once(length: int, special: bool) -> None:
    packed = jax.tree.map(np.asarray, tokenizer().pack(TEXTS * 3, length, add_special_tokens=special))
    judge = reference()
    docs = [row.ids for row in judge.encode_batch(TEXTS * 3, add_special_tokens=special)]
    whole = [id for doc in docs for id in doc]
    assert {part.shape for part in packed} == {(-(-len(whole) // length), length)}
    assert {part.dtype.name for part in packed} == {"int32"}
    flat = [part.reshape(-1) for part in packed]
    assert flat[0].tolist() == whole + [0] * (len(flat[0]) - len(whole))
    assert flat[2][: len(whole)].tolist() == [place for doc in docs for place in range(len(doc))]
    assert not flat[1][len(whole) :].any()
    assert not flat[2][len(whole) :].any()
    for ids, segments, positions in zip(*packed, strict=True):  # a document is where its number is
        assert len(ids) == length
        inside = segments[segments > 0]
        assert inside.tolist() == (1 + np.cumsum(np.append(False, positions[: len(inside)][1:] == 0))).tolist()


def test_packing_takes_the_pad_of_the_file() -> None:
    padding = {
        "strategy": "BatchLongest",
        "direction": "Left",
        "pad_to_multiple_of": None,
        "pad_id": 260,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }
    tok = tt.Tokenizer.from_bytes(tokenizer_json(bpe({"a": 0, "b": 1}, []), padding=padding))
    packed = tok.pack(["ab", "b"], 2, route="reference")
    assert packed.ids.tolist() == [[0, 1], [1, 260]]
    assert packed.segment_ids.tolist() == [[1, 1], [1, 0]]


def test_packing_nothing() -> None:
    assert tokenizer().pack([], 4).ids.shape == (0, 4)
    assert tokenizer().pack(["", ""], 4, add_special_tokens=False).ids.shape == (0, 4)


# ---- one after the other ----


class Text(str):
    """A str that can be watched."""


def test_iterating_keeps_no_text() -> None:
    """Of texts made one by one no more than two are alive, and the results are those of `encode`."""
    alive: weakref.WeakSet[Text] = weakref.WeakSet()
    most = 0

    def texts() -> Iterator[Text]:
        nonlocal most
        for number in range(40):
            text = Text(f"ab {number} é")
            alive.add(text)
            most = max(most, len(alive))
            yield text
            del text

    lengths = [len(encoding) for encoding in tokenizer().encode_iter(texts(), route="reference")]
    assert lengths == [tokenizer().count(f"ab {number} é", route="reference") for number in range(40)]
    assert most <= 2


def test_iterating_takes_the_options_of_encode() -> None:
    tok = tokenizer()
    several: list[dict[str, Any]] = [{"special": "text"}, {"add_special_tokens": False}, {}]
    for options in [{"route": "reference", **each} for each in several]:
        found = [encoding.ids.tolist() for encoding in tok.encode_iter(TEXTS, **options)]
        assert found == [tok.encode(text, **options).ids.tolist() for text in TEXTS]
    stream = tok.encode_iter(["ab", "a<s>"], special="error", route="reference")
    assert next(stream).ids.tolist() == [258, 256, 259]
    with pytest.raises(tt.InputError, match="character 1"):
        next(stream)
