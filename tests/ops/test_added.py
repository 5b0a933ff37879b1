"""Added tokens on the device against the reference's AddedVocabulary, through ids and offsets of a tiny tokenizer."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from tokenizers import models

from toktier_jax.errors import UnsupportedError
from toktier_jax.ops.added import match_added
from toktier_jax.plan import AddedPlan
from toktier_jax.program.added import AddedStage, added_stage, added_tables, effective_tokens
from toktier_jax.program.classes import everything, partition, probe
from toktier_jax.spec.types import AddedToken
from toktier_jax.types import CONT, FROZEN, PAD, AddedTables, Buffer
from toktier_jax.variants import special_as_text

SCALE = float(os.environ.get("TOKTIER_JAX_TEST_SCALE", "1"))
SIZE = 192
LOWERINGS = ["arrays", "walk"]


def token(content: str, id: int, flags: str = "", *, special: bool = False) -> AddedToken:
    """Flags: l(strip), r(strip), s(ingle word)."""
    return AddedToken(id, content, special, False, "l" in flags, "r" in flags, "s" in flags)


def reference(tokens: list[AddedToken], *, special_as_text: bool = False) -> tokenizers.Tokenizer:
    tok = tokenizers.Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    for each in tokens:
        flags = {name: getattr(each, name) for name in ("normalized", "lstrip", "rstrip", "single_word")}
        add = tok.add_special_tokens if each.special else tok.add_tokens
        add([tokenizers.AddedToken(each.content, special=each.special, **flags)])
    assert all(tok.token_to_id(each.content) == each.id for each in tokens)
    tok.encode_special_tokens = special_as_text
    return tok


def reference_segments(tok: tokenizers.Tokenizer, text: str) -> list[tuple[int, int, int]]:
    """(id or -1, first byte, byte after) of each segment."""
    ends = np.concatenate([[0], np.cumsum([len(c.encode()) for c in text])])
    encoding = tok.encode(text, add_special_tokens=False)
    return [(i or -1, int(ends[a]), int(ends[b])) for i, (a, b) in zip(encoding.ids, encoding.offsets, strict=True)]


GENERAL = AddedPlan(longest=64, pairs=0, lstrip=True, rstrip=True, single_word=True)
"""Any token can be found with it, at a price: most tests use it, so that only a few plans are compiled."""


def build(tokens: list[AddedToken], plan: AddedPlan | None = GENERAL) -> tuple[AddedStage, AddedTables, np.ndarray]:
    """Stage, tables, and the symbol of each code point."""
    stage = added_stage(tokens)
    assert stage is not None
    if plan is not None:
        masks = probe("Whitespace.space", "component"), probe("Whitespace.word", "component")
        stage = replace(stage, plan=plan, masks=masks)
    parts = partition((*stage.masks, everything()))
    return stage, one_size(added_tables(stage, parts.members[:, :-1])), parts.lookup(np.arange(0x110000))


def one_size(tables: AddedTables) -> AddedTables:
    """Longer tables of the same meaning: one compilation serves all tests."""
    trie, tokens = np.full((4, 2048), -1, np.int32), np.zeros((3, 64), np.int32)
    trie[:, : tables.trie.shape[1]] = tables.trie
    tokens[:, : tables.tokens.shape[1]] = tables.tokens
    return tables._replace(trie=trie, tokens=tokens, rejected=np.resize(tables.rejected, 64))


def symbols_of(text: str, classes: np.ndarray, size: int) -> np.ndarray:
    symbols = np.full(size, PAD, np.uint8)
    at = 0
    for char in text:
        width = len(char.encode())
        symbols[at : at + width] = CONT
        symbols[at] = classes[ord(char)]
        at += width
    return symbols


def buffer_of(documents: list[str], size: int) -> Buffer:
    raw = [document.encode() for document in documents]
    data = np.full(size, 0x3C, np.uint8)  # what is past the text must not matter
    joined = b"".join(raw)
    data[: len(joined)] = np.frombuffer(joined, np.uint8)
    texts = np.zeros(size, bool)
    texts[np.cumsum([0, *map(len, raw[:-1])])] = True
    kind = np.zeros(size, np.uint8)
    length = np.int32(len(joined))
    return Buffer(data, length, texts, texts, kind, None, None, length)


@cache
def runner(plan, lowering: str, at_end: bool, batch: bool = True):
    def run(tables, buffer, symbols):
        return match_added(plan, tables, buffer, symbols, at_end=at_end, lowering=lowering)

    return jax.jit(jax.vmap(run, in_axes=(None, 0, 0)) if batch else run)


def stack(items):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *items)


def segments(row: Buffer, first: int = 0, last: int | None = None) -> list[tuple[int, int, int]]:
    """What the buffer says of bytes [first, last)."""
    last = int(row.length) if last is None else last
    cuts = [*np.flatnonzero(np.asarray(row.starts)[first:last]) + first, last]
    out = []
    for start, stop in itertools.pairwise(cuts):
        kinds = np.unique(np.asarray(row.kind)[start:stop])
        assert len(kinds) == 1
        id = int(row.token[start])
        assert (id >= 0) == (kinds[0] == FROZEN)
        assert (np.asarray(row.token)[start + 1 : stop] == -1).all()
        out.append((id, int(start), int(stop)))
    return out


BATCH = 100
"""Texts of one call: the same shape everywhere, so that plans are compiled once."""


def batched(run, tables, buffers: list[Buffer], symbols: list[np.ndarray]) -> list[Buffer]:
    """Results of each buffer, as numpy."""
    out: list[Buffer] = []
    for at in range(0, len(buffers), BATCH):
        some, more = buffers[at : at + BATCH], symbols[at : at + BATCH]
        missing = BATCH - len(some)
        result = run(tables, stack(some + some[:1] * missing), np.stack(more + more[:1] * missing))
        result = jax.tree.map(np.asarray, result)
        out += [jax.tree.map(lambda leaf, index=index: leaf[index], result) for index in range(len(some))]
    return out


def compare(
    tokens: list[AddedToken], texts: list[str], lowering: str = "walk", *, as_text: bool = False, general: bool = True
) -> None:
    stage, tables, classes = build(tokens, GENERAL if general else None)
    if as_text:
        tables = special_as_text(tables)
    tok = reference(tokens, special_as_text=as_text)
    buffers = [buffer_of([text], SIZE) for text in texts]
    symbols = [symbols_of(text, classes, SIZE) for text in texts]
    for text, row in zip(texts, batched(runner(stage.plan, lowering, True), tables, buffers, symbols), strict=True):
        assert segments(row) == reference_segments(tok, text), (text, tokens)


def random_texts(rng: np.random.Generator, alphabet: list[str], count: int, longest: int = 60) -> list[str]:
    texts = ["".join(rng.choice(alphabet, rng.integers(1, longest))) for _ in range(count)]
    return [text for text in texts if len(text.encode()) <= SIZE]


CASES = {
    "overlapping": ["ab", "abc", "bca", "cab", "aaaa", "aa", "b"],
    "nested prefixes": ["<", "<|", "<|im", "<|im|>", "|>", "<<<"],
    "one long": ["abababababababababababababababababababababababababababababab", "ab"],
    "single letters": ["ü", "ø", "a", "é"],
    "spaces": ["  ", "    ", "     ", "\n\n", " a"],
    "beyond ASCII": ["<｜a｜>", "<｜b｜>", "｜", "漢字", "字漢", "🎉🎉"],
    "many beginnings": [chr(97 + i) + chr(97 + j) + "z" for i in range(5) for j in range(5)],
}


@pytest.mark.parametrize("name", CASES)
def test_dense_texts(name: str):
    """Texts over the tokens' own characters, in which nearly every match has a rival."""
    contents = CASES[name]
    rng = np.random.default_rng(len(name))
    alphabet = [*sorted({char for content in contents for char in content}), *contents, "x"]
    tokens = [token(content, index + 1) for index, content in enumerate(contents)]
    compare(tokens, random_texts(rng, alphabet, int(200 * SCALE)))


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_plans_for_plain_tokens(lowering: str):
    """What real files mostly have: few beginnings, no flags."""
    tokens = [token(content, index + 1) for index, content in enumerate(["<|im_start|>", "<|im_end|>", "</think>"])]
    alphabet = [
        "<",
        "<|",
        "<|im_",
        "start",
        "end",
        "|>",
        "</",
        "think>",
        "x ",
        "<|im_start|>",
        "<|im_end|>",
        "</think>",
    ]
    texts = random_texts(np.random.default_rng(5), alphabet, int(200 * SCALE), 30)
    compare(tokens, texts, lowering, general=False)


def flagged(rng: np.random.Generator) -> list[AddedToken]:
    contents = ["<a>", "b", "bc", "é", "cb<", "c c", "_1", "a>", "<a><a>"]
    if rng.integers(2):
        contents += [" b", "\u3000", "\n"]
    flags = ["", "l", "r", "s", "lr", "ls", "rs", "lrs"]
    return [
        token(content, index + 1, rng.choice(flags), special=bool(rng.integers(2)))
        for index, content in enumerate(contents)
    ]


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_random_flags(lowering: str):
    """Every combination of flags, special tokens read and as text, refused where white space would be shared."""
    rng = np.random.default_rng(7)
    alphabet = [
        "<",
        "a",
        ">",
        "b",
        "c",
        "é",
        "_",
        "1",
        " ",
        "\u3000",
        "\n",
        "\x85",
        "-",
        "<a>",
        "<a>",
        "b",
        "漢",
        "\u200d",
    ]
    for trial in range(max(6, int(24 * SCALE))):
        tokens = flagged(rng)
        texts = random_texts(rng, alphabet, 100)
        begins_with_space = any(each.content[0].isspace() for each in tokens)
        if begins_with_space and any(each.rstrip for each in tokens):
            with pytest.raises(UnsupportedError, match="begins with white space"):
                added_stage(tokens)
            continue
        compare(tokens, texts, lowering, as_text=bool(trial % 2))


def test_rejected_matches_use_up_their_text():
    tokens = [token("ab", 1, "s"), token("bc", 2)]
    compare(tokens, ["xabc abc bc", "abc", "ab abc", "bcab bc"])


def test_packed_documents():
    """A match never crosses the start of a document, and flags see nothing beyond it."""
    rng = np.random.default_rng(3)
    tokens = [token("ab", 1, "l"), token("bc", 2, "s"), token("cc", 3, "r"), token("abcabc", 4)]
    stage, tables, classes = build(tokens)
    tok = reference(tokens)
    rows = []
    for _ in range(60):
        rows.append([text[:20] for text in random_texts(rng, ["a", "b", "c", " ", "abc"], 5, 12)])
    buffers = [buffer_of(documents, SIZE) for documents in rows]
    symbols = [symbols_of("".join(documents), classes, SIZE) for documents in rows]
    results = batched(runner(stage.plan, "walk", True), tables, buffers, symbols)
    for documents, row in zip(rows, results, strict=True):
        at = 0
        for document in documents:
            want = [(id, a + at, b + at) for id, a, b in reference_segments(tok, document)]
            assert segments(row, at, at + len(document)) == want
            at += len(document)


@pytest.mark.parametrize("text", ["a" * 5000, "ab" * 2500, "aab" * 1700, "aaaab" * 1000])
def test_thousands_of_overlapping_candidates(text: str):
    """More than one chunk, with matches that lie across chunks."""
    tokens = [token("aa", 1), token("aaa", 2), token("ba", 3), token("aab", 4), token("abababab", 5)]
    stage, tables, _ = build(tokens, None)
    buffer = buffer_of([text], 5120)
    result = runner(stage.plan, "walk", True, False)(tables, buffer, None)
    assert segments(jax.tree.map(np.asarray, result)) == reference_segments(reference(tokens), text)


def test_finality():
    """Whatever is appended, the segments up to `decided` stay; and work resumed there finds the same."""
    rng = np.random.default_rng(11)
    alphabet = ["<", "a", ">", "b", "c", " ", "\n", "é", "_"]
    decided_somewhere = 0
    for trial in range(max(3, int(8 * SCALE))):
        flags = [["", "l", "r", "s", "lr", "ls", "rs", "lrs"], [""], ["", "l"], ["", "r"]][trial % 4]
        contents = ["<a>", "bc", "b", "é", "c<c", "a>", "<a><a>"]
        tokens = [token(c, i + 1, rng.choice(flags)) for i, c in enumerate(contents)]
        flagged = any(each.lstrip or each.rstrip or each.single_word for each in tokens)
        stage, tables, classes = build(tokens, GENERAL if flagged else None)
        tok = reference(tokens)
        wholes = [text for text in random_texts(rng, alphabet, int(100 * SCALE), 40) if len(text) > 1]
        cuts = [int(rng.integers(1, len(text))) for text in wholes]
        heads = [text[:cut] for text, cut in zip(wholes, cuts, strict=True)]
        buffers = [buffer_of([text], SIZE) for text in heads]
        symbols = [symbols_of(text, classes, SIZE) for text in heads]
        results = batched(runner(stage.plan, "walk", False), tables, buffers, symbols)
        for whole, head, row in zip(wholes, heads, results, strict=True):
            decided = int(row.decided)
            assert 0 <= decided <= len(head.encode())
            want, have = reference_segments(tok, whole), segments(row)
            # text segments are cut at `decided`: what is after it may join or not
            settled = [segment for segment in have if segment[0] > 0 and segment[2] <= decided]
            assert settled == [segment for segment in want if segment[0] > 0 and segment[2] <= decided]
            assert not [segment for segment in want if segment[0] > 0 and segment[1] < decided < segment[2]]
            places = [start for _, start, _ in have if start <= decided] + [decided]
            for place in set(places):
                if row.resume is not None and place < len(head.encode()) and not row.resume[place]:
                    continue
                decided_somewhere += place > 0
                rest = whole.encode()[place:].decode()
                again = [(id, a + place, b + place) for id, a, b in reference_segments(tok, rest)] if rest else []
                assert [s for s in again if s[0] > 0] == [s for s in want if s[0] > 0 and s[1] >= place], (
                    whole, head, place, tokens,
                )  # fmt: skip
    assert decided_somewhere > 100


def test_decided_waits_for_no_more_than_it_must():
    tokens = [token("<|im_start|>", 1), token("<think>", 2)]
    stage, tables, _ = build(tokens, None)
    run = runner(stage.plan, "walk", False, False)
    for text, want in {
        "hello": 5,
        "hello <": 6,
        "hello <|im": 6,
        "a <|im_start|>": 14,
        "a <|im_x": 8,
        "<thin": 0,
    }.items():
        assert int(run(tables, buffer_of([text], 64), None).decided) == want


def test_the_tokens_that_count():
    """A repeated content keeps its first id and takes the last flags, as in the reference."""
    tokens = [token("a", 1), token("", 2), token("b", 3, special=True), token("a", 4, "l"), token("b", 5)]
    assert effective_tokens(tokens) == [token("a", 1, "l"), token("b", 3, special=True)]


def test_strict_dtypes_and_ranks():
    tokens = [token("<a>", 1, "lrs"), token("b", 2, "s")]
    stage, tables, classes = build(tokens)
    text = "x <a> b bb"
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        arrays = jax.tree.map(jnp.asarray, (tables, buffer_of([text], 64), symbols_of(text, classes, 64)))
        for lowering in LOWERINGS:
            jax.jit(lambda *args, low=lowering: match_added(stage.plan, *args, at_end=False, lowering=low)).lower(
                *arrays
            )
