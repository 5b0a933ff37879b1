"""Added tokens as they count, and the trie of their literals, against slow readings. Matching: tests/ops/test_added."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import toktier_jax as tt
from tests.reference import added as reference
from tests.tokenizer_files import added, bpe, tokenizer_json
from toktier_jax.errors import UnsupportedError
from toktier_jax.program.added import added_stage, added_tables, double_array, effective_tokens
from toktier_jax.spec.byte_alphabet import ALPHABET
from toktier_jax.spec.types import AddedToken
from toktier_jax.variants import special_as_text

EXAMPLES = max(20, int(40 * float(os.environ.get("TOKTIER_JAX_TEST_SCALE", "1"))))
words = st.binary(min_size=1, max_size=6) | st.text("ab<|é", min_size=1, max_size=5).map(str.encode)


def longest_prefix(trie: np.ndarray, text: bytes) -> int:
    """The number of the longest word that `text` begins with, by walking the trie; -1 where there is none."""
    base, parent, longest, _ = trie.tolist()
    node, best = 0, -1
    for byte in text:
        child = base[node] + byte
        if parent[child] != node:
            break
        node, best = child, longest[child]
    return best


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(words, min_size=1, max_size=30, unique=True), st.lists(words, max_size=20))
@example([b"\xff", b"\x00", b"\xff\xff"], [b"\xff\xfe"])
def test_the_longest_prefix_is_found(literals: list[bytes], texts: list[bytes]) -> None:
    trie = double_array(literals)
    size = trie.shape[1]
    assert size & (size - 1) == 0
    assert trie[0].min() >= 0
    assert trie[0].max() + 255 < size  # no look-up leaves the table
    for text in (*literals, *(word + b"a" for word in literals), *(word[:-1] for word in literals), *texts):
        found = [number for number, word in enumerate(literals) if text.startswith(word)]
        assert longest_prefix(trie, text) == max(found, key=lambda number: len(literals[number]), default=-1), text


def test_a_node_says_whether_it_has_children() -> None:
    trie = double_array([b"a", b"ab", b"b"])
    nodes = {word: _node(trie, word) for word in (b"", b"a", b"ab", b"b")}
    assert {word: int(trie[3, node]) for word, node in nodes.items()} == {b"": 1, b"a": 1, b"ab": 0, b"b": 0}


def _node(trie: np.ndarray, word: bytes) -> int:
    node = 0
    for byte in word:
        node = int(trie[0, node]) + byte
    return node


def test_many_words_fit() -> None:
    literals = sorted({f"<|reserved_{k}|>".encode() for k in range(800)})
    trie = double_array(literals)
    assert all(longest_prefix(trie, word + b"x") == number for number, word in enumerate(literals))


flags = st.fixed_dictionaries(
    {name: st.booleans() for name in ("special", "normalized", "lstrip", "rstrip", "single_word")}
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "a", "b", "<s>"]), flags), max_size=6))
def test_which_tokens_count(drawn: list[tuple[str, dict[str, bool]]]) -> None:
    """A repeated content replaces the earlier token's flags, and keeps its id; an empty one is none."""
    parts = [{"content": content, **each} for content, each in drawn]
    judge = reference.assign(parts, {"a": 0})
    ids = {token.content: id for id, token in judge.items()}
    given_ = [AddedToken(id=ids.get(content, 99), content=content, **each) for content, each in drawn]
    found = {token.id: token for token in effective_tokens(given_)}
    assert {id: token.content for id, token in found.items()} == {id: token.content for id, token in judge.items()}
    for id, token in judge.items():
        assert (found[id].normalized, found[id].lstrip, found[id].rstrip, found[id].single_word) == (
            token.normalized, token.lstrip, token.rstrip, token.single_word,
        )  # fmt: skip


def token(content: str, id: int, *, special: bool = False) -> AddedToken:
    return AddedToken(id, content, special, False, False, False, False)


def test_special_tokens_as_text_are_other_entries_of_the_same_tables() -> None:
    stage = added_stage([token("<s>", 7, special=True), token("<a>", 8)])
    assert stage is not None
    tables = added_tables(stage, np.zeros((0, 0), bool))
    assert not tables.rejected.any()
    text = special_as_text(tables)
    assert text.rejected[:3].tolist() == [True, False, False]
    assert text.trie is tables.trie
    assert tables.tokens[:2, :2].tolist() == [[7, 8], [3, 3]]


def test_refusals() -> None:
    assert added_stage([]) is None
    with pytest.raises(UnsupportedError, match="'x', of which the normalizers leave nothing"):
        added_stage([token("x", 1)], lambda content: b"")
    with pytest.raises(UnsupportedError, match="the same as another one when normalized"):
        added_stage([token("X", 1), token("x", 2)], lambda content: content.lower().encode())


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_tokens_that_look_at_neighbours_after_a_byte_level_normalizer_are_refused(flag: str) -> None:
    """There a space is a letter to the reference: no flag sees white space."""
    vocab = {letter: number for number, letter in enumerate(ALPHABET)}
    tokens = [added(256, "Ab", normalized=True, **{flag: True})]
    file = tokenizer_json(bpe(vocab, []), normalizer={"type": "ByteLevel"}, added=tokens)
    tokenizer = tt.Tokenizer.from_bytes(file)
    assert "looks at its neighbours after a ByteLevel normalizer" in tokenizer.explain().reference[0]
    assert tokenizer.encode("9 Ab é").ids.tolist() == tokenizer.reference.encode("9 Ab é").ids
