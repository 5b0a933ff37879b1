"""The façade: routes, batches, packing, special tokens, errors, threads, processes. Ids: see tests/conformance."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tokenizers

import toktier_jax as tt
from tests import artifacts, corpus
from tests.tokenizer_files import added, bpe, byte_level, template, tokenizer_json
from toktier_jax import routes
from toktier_jax.spec.byte_alphabet import ALPHABET

TEXT = "Hello, wörld! 日本語 😀 <|endoftext|> 1234\n\n  e\u0301 end "


@pytest.fixture(scope="module")
def tok() -> tt.Tokenizer:
    return tt.Tokenizer.default()


def small(**parts: Any) -> bytes:
    vocab = {letter: i for i, letter in enumerate(ALPHABET)} | {"ab": 256}
    file: dict[str, Any] = {
        "pre_tokenizer": byte_level(use_regex=False),
        "post_processor": template(["<s>"], ["</s>"], {"<s>": 257, "</s>": 258}),
        "added": [added(257, "<s>", special=True), added(258, "</s>", special=True), added(259, "<x>")],
        "decoder": byte_level(),
        **parts,
    }
    return tokenizer_json(bpe(vocab, [["a", "b"]]), **file)


TRUNCATION = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    "strategy": "BatchLongest",
    "direction": "Left",
    "pad_to_multiple_of": 4,
    "pad_id": 258,
    "pad_type_id": 0,
    "pad_token": "</s>",
}


# ---- one text ----


def test_both_routes_give_the_same(tok: tt.Tokenizer) -> None:
    device, reference = tok.encode(TEXT, route="xla"), tok.encode(TEXT, route="reference")
    assert (device.route, device.fallback_reason) == ("xla", None)
    assert (reference.route, reference.fallback_reason) == ("reference", "requested")
    assert device.ids.tolist() == reference.ids.tolist() == tok.reference.encode(TEXT).ids
    assert device.char_spans.tolist() == reference.char_spans.tolist()
    assert device.byte_spans.tolist() == reference.byte_spans.tolist()
    assert len(device) == tok.count(TEXT) == len(device.ids)
    assert tok.encode(TEXT.encode()).ids.tolist() == device.ids.tolist()


def test_a_tiny_text_goes_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "TINY", 8)
    tok = tt.Tokenizer.from_bytes(small())
    for text, route, reason in (("", "reference", "tiny"), ("abc é", "reference", "tiny"), ("abcd efg", "xla", None)):
        found = tok.encode(text)
        assert (found.route, found.fallback_reason) == (route, reason)
        assert found.ids.tolist() == tok.encode(text, route="xla").ids.tolist()
        assert tok.count(text) == len(found)
    assert tok.encode_batch(["ab", "c"]).lengths.tolist() == [3, 3]
    assert tok.explain().fallbacks == {"tiny": 6}
    assert tok.encode_batch(["abcd", "efgh"], add_special_tokens=False).lengths.tolist() == [3, 4]
    assert tok.explain().fallbacks == {"tiny": 6}


def test_arrays_are_read_only_and_pickle(tok: tt.Tokenizer) -> None:
    encoding = tok.encode("abc é", route="reference")
    for array, dtype in ((encoding.ids, np.int32), (encoding.char_spans, np.int64), (encoding.byte_spans, np.int64)):
        assert array.dtype == dtype
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        encoding.ids = encoding.ids  # pyright: ignore  # the type is wrong: that is the test
    copy = pickle.loads(pickle.dumps(encoding))
    assert copy.ids.tolist() == encoding.ids.tolist()
    assert copy.byte_spans.tolist() == encoding.byte_spans.tolist()
    assert (copy.route, copy.truncated, repr(copy)) == ("reference", False, repr(encoding))


def test_what_only_the_reference_can_do_says_so() -> None:
    tok = tt.Tokenizer.from_bytes(small().replace(b'"dropout": null', b'"dropout": 1.0'))
    encoding = tok.encode("ab")
    assert encoding.route == "reference"
    assert encoding.fallback_reason is not None
    assert "dropout" in encoding.fallback_reason
    with pytest.raises(tt.UnsupportedError, match="dropout"):
        tok.encode("ab", route="xla")
    with pytest.raises(tt.UnsupportedError, match="dropout"):
        _ = tok.program
    explained = tok.explain()
    assert explained.route == "reference"
    assert "dropout" in str(explained)


def test_special_tokens() -> None:
    tok = tt.Tokenizer.from_bytes(small())
    assert tok.encode("a<s>ab").ids.tolist() == [257, ALPHABET.index("a"), 257, 256, 258]
    assert tok.encode("<s>", add_special_tokens=False, special="text").ids.tolist() == [*b"<s>"]
    assert tok.encode("<x>", special="error").ids.tolist() == [257, 259, 258]
    with pytest.raises(tt.InputError, match="special token at character 2"):
        tok.encode("é <s>", special="error")
    plain = tok.reference
    plain.encode_special_tokens = True
    assert tok.encode("<s><x>", special="text").ids.tolist() == plain.encode("<s><x>").ids


def test_truncation_and_padding_of_the_file() -> None:
    file = small(truncation=TRUNCATION, padding=PADDING)
    tok, reference = tt.Tokenizer.from_bytes(file), tokenizers.Tokenizer.from_buffer(file)
    for text in ("", "x", "xyz", "wxyz", "ab" * 10):
        for special in (True, False):
            expected = reference.encode(text, add_special_tokens=special)
            for route in ("auto", "reference"):
                found = tok.encode(text, special, route=route)
                assert found.ids.tolist() == expected.ids
                assert found.char_spans.tolist() == [list(pair) for pair in expected.offsets]
                assert found.truncated == bool(expected.overflowing)
    assert tok.encode("wxyz").byte_spans.tolist() == [[0, 0]] * 4 + [[0, 1], [1, 2], [2, 3], [0, 0]]
    texts = ["", "ab" * 10, "x"]
    assert tok.encode_batch(texts).ids.tolist() == [row.ids for row in reference.encode_batch(texts)]
    assert tok.count("ab" * 10) == 5


# ---- many texts ----


def test_batches(tok: tt.Tokenizer) -> None:
    texts = ["one", "", "three é 日本", b"four"]
    batch = tok.encode_batch(texts)
    rows = [tok.encode(text).ids.tolist() for text in texts]
    assert batch.lengths.tolist() == [len(row) for row in rows]
    assert [row[:size] for row, size in zip(batch.ids.tolist(), batch.lengths.tolist(), strict=True)] == rows
    assert isinstance(batch.ids, jax.Array)
    assert {part.dtype.name for part in batch} == {"int32"}
    assert len(jax.tree.leaves(batch)) == 3
    left = tok.encode_batch(texts, length=20, pad_id=7, side="left", route="reference")
    assert left.ids.shape == (4, 20)
    assert left.ids[1].tolist() == [7] * (20 - len(rows[1])) + rows[1]
    assert tok.encode_batch([]).ids.shape == (0, 0)


def test_rows_that_do_not_fit(tok: tt.Tokenizer) -> None:
    with pytest.raises(tt.CapacityError, match="row 1 has 4 ids and length is 2"):
        tok.encode_batch(["a", "a b c d"], length=2, route="reference")
    batch = tok.encode_batch(["a", "a b c d"], length=2, overflow="status", route="reference")
    assert batch.status.tolist() == [0, 1]
    assert batch.lengths.tolist() == [1, 4]
    assert batch.ids[1].tolist() == [-1, -1]


def test_iterates_without_reading_ahead(tok: tt.Tokenizer) -> None:
    taken: list[int] = []

    def texts() -> Iterator[str]:
        for i in range(10**9):
            taken.append(i)
            yield f"text {i}"

    stream = tok.encode_iter(texts(), route="reference")
    assert next(stream).ids.tolist() == tok.encode("text 0").ids.tolist()
    next(stream)
    assert len(taken) <= 64


def test_packs_documents(tok: tt.Tokenizer) -> None:
    docs = ["one two", "", "three four five six seven"]
    packed = tok.pack(docs, length=4, route="reference")
    whole = [index for doc in docs for index in tok.encode(doc).ids.tolist()]
    inside = np.asarray(packed.segment_ids) > 0
    assert np.asarray(packed.ids)[inside].tolist() == whole
    assert packed.positions.shape == packed.ids.shape == (-(-len(whole) // 4), 4)


# ---- decode ----


def test_decode(tok: tt.Tokenizer) -> None:
    ids = tok.encode(TEXT).ids
    assert tok.decode(ids) == tok.reference.decode(ids.tolist())
    assert tok.decode(ids, skip_special_tokens=False) == tok.decode_bytes(ids).decode() == TEXT
    assert tok.decode(jax.numpy.asarray(ids)) == tok.decode(ids.tolist())
    stream = tok.stream_decoder(skip_special_tokens=False)
    assert "".join(stream.push([index]) for index in ids.tolist()) + stream.finish() == TEXT
    assert b"".join(tok.token_bytes(index) for index in ids.tolist()) == TEXT.encode()
    assert tok.vocab_size == tok.reference.get_vocab_size()
    with pytest.raises(tt.InputError, match="out of range"):
        tok.decode([tok.vocab_size])
    with pytest.raises(tt.InputError):
        tok.token_bytes(-1)


# ---- bad input ----


@pytest.mark.parametrize("route", ["auto", "reference"])
def test_bad_texts(tok: tt.Tokenizer, route: Any) -> None:
    with pytest.raises(tt.InputError, match="character 1"):
        tok.encode("a\udfff", route=route)
    with pytest.raises(tt.InputError, match="byte 1"):
        tok.encode(b"a\xff", route=route)
    for bad in (None, 3, ["a"], object()):
        with pytest.raises(tt.InputError, match="must be str or UTF-8 bytes"):
            tok.encode(bad, route=route)  # pyright: ignore  # the type is wrong: that is the test
    for call in (tok.encode_batch, tok.encode_iter, lambda texts, **kw: tok.pack(texts, 4, **kw)):
        with pytest.raises(tt.InputError, match="not one str"):
            call("text", route=route)
    with pytest.raises(tt.InputError, match="text 1"):
        tok.encode_batch(["a", None], route=route)  # pyright: ignore  # the type is wrong: that is the test


def test_bad_options(tok: tt.Tokenizer) -> None:
    calls: list[Any] = [
        lambda: tok.encode("a", route="gpu"),  # pyright: ignore  # the type is wrong: that is the test
        lambda: tok.encode("a", special="skip"),  # pyright: ignore  # the type is wrong: that is the test
        lambda: tok.encode_batch(["a"], side="up"),  # pyright: ignore  # the type is wrong: that is the test
        lambda: tok.encode_batch(["a"], overflow="cut"),  # pyright: ignore  # the type is wrong: that is the test
        lambda: tok.encode_batch(["a"], length=0),
        lambda: tok.pack(["a"], length=True),
    ]
    for call in calls:
        with pytest.raises(tt.InputError, match="must be"):
            call()


# ---- constructors ----


def test_constructors_agree(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(small())
    made = [
        tt.Tokenizer.from_file(tmp_path / "tokenizer.json"),
        tt.Tokenizer.from_pretrained(tmp_path),
        tt.Tokenizer.from_bytes(small()),
    ]
    assert len({tok.fingerprint for tok in made}) == 1
    made.append(tt.Tokenizer.from_tokenizers(tokenizers.Tokenizer.from_buffer(small())))
    made += pickle.loads(pickle.dumps(made))
    assert {tuple(tok.encode("<s>ab é", route="reference").ids.tolist()) for tok in made} == {
        (257, 257, 256, ALPHABET.index("Ġ"), 0xC3, 0xA9, 258)
    }


def test_a_loaded_tokenizer_can_change_without_changing_ours() -> None:
    loaded = tokenizers.Tokenizer.from_buffer(small())
    tok = tt.Tokenizer.from_tokenizers(loaded)
    loaded.add_tokens(["ab "])
    assert tok.encode("ab ", add_special_tokens=False, route="reference").ids.tolist() == [256, ALPHABET.index("Ġ")]


def test_constructors_name_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(tt.SpecError, match="cannot read"):
        tt.Tokenizer.from_file(tmp_path / "none.json")
    with pytest.raises(tt.SpecError, match="damaged JSON at byte"):
        tt.Tokenizer.from_bytes(small()[:-1])
    with pytest.raises(tt.SpecError, match="'zz', which is not in the vocabulary"):
        tt.Tokenizer.from_bytes(small().replace(b'["a", "b"]', b'["a", "zz"]'))
    with pytest.raises(tt.SpecError, match="not a tiktoken"):
        tt.Tokenizer.from_tiktoken(3)


def test_tiktoken() -> None:
    try:
        tok = artifacts.load("cl100k_base").tokenizer
    except artifacts.Missing as error:
        pytest.skip(str(error))
    encoding = tok.reference
    text = corpus.mixed(3000, seed=5) + "<|endoftext|>"
    found = tok.encode(text, route="reference")
    assert found.ids.tolist() == encoding.encode(text, allowed_special="all")
    assert tok.encode(text, special="text", route="reference").ids.tolist() == encoding.encode_ordinary(text)
    assert tok.decode(found.ids, skip_special_tokens=False) == encoding.decode(found.ids.tolist()) == text
    assert tok.decode_bytes(found.ids) == text.encode()
    assert tok.vocab_size == encoding.n_vocab
    data = text.encode()
    spans = found.byte_spans.tolist()
    assert b"".join(data[start:stop] for start, stop in spans) == data
    with pytest.raises(tt.InputError, match=f"character {len(text) - 13}"):
        tok.encode(text, special="error")
    assert pickle.loads(pickle.dumps(tok)).fingerprint == tok.fingerprint


# ---- about itself ----


def test_explain(tok: tt.Tokenizer) -> None:
    before = tok.explain().calls.get("reference", 0)
    tok.encode("a", route="reference")
    explained = tok.explain()
    assert explained.calls["reference"] == before + 1
    assert explained.versions["tokenizers"] == tokenizers.__version__
    assert explained.vocab_size == tok.vocab_size
    assert json.loads(json.dumps(explained.to_dict()))["fingerprint"] == tok.fingerprint
    assert "xla" in str(explained)
    assert repr(tok) == f"Tokenizer('default', tokenizer.json, {tok.vocab_size} tokens)"
    with pytest.raises(AttributeError):
        tok.vocab_size = 3  # pyright: ignore  # the type is wrong: that is the test


# ---- threads and processes ----


def test_threads() -> None:
    tok = tt.Tokenizer.from_bytes(small())
    texts = [f"ab {i} é<s>" for i in range(40)]
    expected = [tt.Tokenizer.from_bytes(small()).encode(text, route="reference").byte_spans.tolist() for text in texts]
    found: dict[int, Any] = {}

    def work(first: int) -> None:
        for i in range(first, len(texts), 4):
            encoding = tok.encode(texts[i], route="reference")
            assert tok.decode(encoding.ids) == tok.reference.decode(encoding.ids.tolist())
            found[i] = encoding.byte_spans.tolist()

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(len(texts))] == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")  # of forking: that is the test
def test_a_child_forked_after_jax_started_is_told(tok: tt.Tokenizer) -> None:
    jax.numpy.zeros(1).block_until_ready()
    reader, writer = multiprocessing.get_context("fork").Pipe()
    child = os.fork()
    if child == 0:
        told = []
        for call in (lambda: tok.encode("a", route="xla"), lambda: tok.encode_batch(["a"])):
            try:
                call()
            except tt.UnsupportedError as error:
                told.append(str(error))
        told.append(tok.encode("a", route="reference").ids.tolist())
        writer.send(told)
        os._exit(0)
    assert reader.poll(60)
    first, second, ids = reader.recv()
    os.waitpid(child, 0)
    assert "forked after JAX had started" in first
    assert "forked after JAX had started" in second
    assert ids == tok.encode("a", route="reference").ids.tolist()


def test_importing_starts_nothing() -> None:
    script = """
import sys
import toktier_jax as tt
assert "jax" not in sys.modules, "import toktier_jax imports jax"
import jax
before = dict(jax.config.values)
tt.Tokenizer, tt.Encoding
assert dict(jax.config.values) == before
assert not jax._src.xla_bridge.backends_are_initialized()
assert "tokenizers" not in sys.modules and "torch" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_public_names() -> None:
    for name in tt.__all__:
        assert getattr(tt, name) is not None
    assert set(tt.__all__) <= set(dir(tt))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = tt.Nothing  # pyright: ignore  # the type is wrong: that is the test


@pytest.mark.parametrize("text", ["ab <x> é" * 3, "ab <x> é" * 300], ids=["reference", "device"])
def test_chats_are_neither_cut_nor_padded(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As transformers, which switches off what the file says of it."""
    monkeypatch.setattr(routes, "TINY", 1 << 10)
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    made = tt.Tokenizer.from_bytes(small(truncation=TRUNCATION, padding={**PADDING, "strategy": {"Fixed": 16}}))
    found = made.apply_chat_template([{"role": "user", "content": text}], chat_template=template, return_dict=True)
    expected = tt.Tokenizer.from_bytes(small()).encode(text, add_special_tokens=False, route="reference")
    assert found["input_ids"] == expected.ids.tolist()
    assert found["attention_mask"] == [1] * len(expected.ids)
    assert made.encode(text).truncated


def test_what_is_done_to_the_reference_changes_nothing() -> None:
    made = tt.Tokenizer.from_bytes(small(normalizer={"type": "Lowercase"}))
    before = made.encode("AB ab", route="reference").ids.tolist()
    shown = made.reference
    shown.model.dropout = 1.0
    shown.normalizer = None
    shown.add_tokens(["ab"])
    shown.enable_truncation(1)
    assert made.encode("AB ab", route="reference").ids.tolist() == before
    assert shown.encode("ab").ids != before


def test_executables_of_windows_are_counted_too() -> None:
    made = tt.Tokenizer.default()
    tt.SessionStore(made).open("a", "word " * 5000).append("x" * 9000)
    assert any(name.startswith("window of") for name in made.explain().compiles)
