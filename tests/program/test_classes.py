"""Probed classes are the engine's own, the disk cache heals, the partition respects every mask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

from toktier_jax.errors import SpecError, UnsupportedError
from toktier_jax.program import classes
from toktier_jax.program.classes import CODE_POINTS, everything, partition, probe, single

EXPRESSIONS = [r"\p{L}", r"\s", r"\w", r"[^\r\n\p{L}\p{N}]", "(?i:k)", "(?i:s)", "(?i:[a-z])", "."]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKTIER_JAX_CACHE", str(tmp_path))
    return tmp_path / "classes"


def edges(mask: np.ndarray) -> list[str]:
    """Characters on both sides of every edge of a mask, at most 300."""
    places = np.flatnonzero(mask[1:] != mask[:-1])
    chosen = np.unique(np.concatenate([places, places + 1]))
    chosen = chosen[(chosen < 0xD800) | (chosen >= 0xE000)]
    return [chr(code) for code in chosen[:: max(1, len(chosen) // 300)]]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_oniguruma_matches_each_character_by_itself(expression: str) -> None:
    mask = probe(expression, "oniguruma")
    split = pre_tokenizers.Split(Regex(expression), "removed")
    for char in [*edges(mask), "a", "s", "S", "ſ", "K", " ", "\n", "\0", "\U0010ffff"]:
        assert mask[ord(char)] == (split.pre_tokenize_str(char) == []), f"{char!r}"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_tiktoken_matches_each_character_by_itself(expression: str) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    mask = probe(expression, "tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding("test", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
    for char in [*edges(mask), "a", "s", "S", "ſ", "K", " ", "\n", "\0", "\U0010ffff"]:
        assert mask[ord(char)] == bool(encoding.encode_ordinary(char)), f"{char!r}"


def test_case_folding_is_the_engines() -> None:
    assert probe("(?i:s)", "oniguruma")[ord("ſ")]
    assert probe("(?i:s)", "tiktoken")[ord("ſ")]
    assert probe("(?i:k)", "oniguruma")[ord("\u212a")]


@pytest.mark.parametrize("expression", ["(?i:ß)", "(?i:[ﬆ])", r"(?i:[\p{L}])"])
def test_a_class_that_matches_two_characters_is_refused(expression: str) -> None:
    with pytest.raises(UnsupportedError, match="more than one character"):
        probe(expression, "oniguruma")
    probe(expression, "tiktoken")  # that engine folds one to one


@pytest.mark.parametrize("dialect", ["oniguruma", "tiktoken"])
def test_an_expression_that_the_engine_rejects(dialect: classes.Dialect) -> None:
    with pytest.raises(SpecError, match="rejects"):
        probe(r"\p{NoSuchProperty}", dialect)


def test_components_are_what_the_pre_tokenizers_do() -> None:
    digits = pre_tokenizers.Digits(individual_digits=True)
    for name, cut in {
        "Digits": lambda char: len(digits.pre_tokenize_str(f"a{char}a")) == 3,
        "Punctuation": lambda char: pre_tokenizers.Punctuation("removed").pre_tokenize_str(char) == [],
        "WhitespaceSplit": lambda char: pre_tokenizers.WhitespaceSplit().pre_tokenize_str(char) == [],
        "Whitespace.space": lambda char: pre_tokenizers.Whitespace().pre_tokenize_str(char) == [],
        "Whitespace.word": lambda char: len(pre_tokenizers.Whitespace().pre_tokenize_str(f"a{char}a")) == 1,
        "Bert.space": lambda char: pre_tokenizers.BertPreTokenizer().pre_tokenize_str(char) == [],
        "Bert.punctuation": lambda char: len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{char}a")) == 3,
    }.items():
        mask = probe(name, "component")
        for char in [*edges(mask), "a", "-", "1", " "]:
            assert mask[ord(char)] == cut(char), (name, char)
    with pytest.raises(SpecError):
        probe("NoSuchComponent", "component")


def test_added_tokens_use_the_same_words_and_spaces() -> None:
    """`single_word`, `lstrip` and `rstrip` read the classes that `Whitespace` and `WhitespaceSplit` show."""
    word, space = probe("Whitespace.word", "component"), probe("WhitespaceSplit", "component")
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([AddedToken("<w>", single_word=True), AddedToken("<r>", rstrip=True)])
    tokenizer.add_tokens([AddedToken("<l>", lstrip=True)])
    for char in edges(word) + edges(space):
        ids = tokenizer.encode(f"{char}<w>").ids
        assert word[ord(char)] == (1 not in ids), f"{char!r}"
        assert space[ord(char)] == (tokenizer.encode(f"<r>{char}").offsets[0] == (0, 4)), f"{char!r}"
        assert space[ord(char)] == (tokenizer.encode(f"{char}<l>").offsets[0] == (0, 4)), f"{char!r}"


def test_literals_need_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "_ask_oniguruma", None)
    for char in ("a", " ", "é", "\U0001f600"):
        mask = probe(classes.literal_class(char), "oniguruma")
        assert np.flatnonzero(mask).tolist() == [ord(char)]


def test_probes_are_cached_and_damaged_entries_heal(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = probe(r"\p{N}", "oniguruma")
    (entry,) = own_cache.iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(classes, "_ask_oniguruma", None)
        assert (probe(r"\p{N}", "oniguruma") == first).all()
    entry.write_bytes(entry.read_bytes()[:-40])
    assert (probe(r"\p{N}", "oniguruma") == first).all()
    assert not first[0xD800:0xE000].any()


def test_partition() -> None:
    masks = [probe(r"\p{L}", "oniguruma"), probe(r"\p{Lu}", "oniguruma"), single("'"), everything()]
    cut = partition(masks)
    assert cut.count == 4
    assert cut.table.shape == (1 << (len(cut.table) - 1).bit_length(), 256)
    assert cut.pages.shape == (CODE_POINTS >> 8,)
    code_points = np.flatnonzero(everything())
    numbers = cut.lookup(code_points)
    assert numbers[0] == 0
    for column, mask in zip(cut.members.T, masks, strict=True):
        assert (column[numbers] == mask[code_points]).all()


def test_partition_beside_surrogates() -> None:
    """What ends at the surrogates must not go on after them."""
    mask = np.zeros(CODE_POINTS, bool)
    mask[0xD700:0xD800] = True
    cut = partition([mask])
    assert cut.members[cut.lookup(np.array([0xD6FF, 0xD7FF, 0xE000])), 0].tolist() == [False, True, False]


def test_too_many_classes() -> None:
    low = np.arange(CODE_POINTS) * (np.arange(CODE_POINTS) < 256)
    masks = [(low >> bit & 1).astype(bool) for bit in range(8)]
    with pytest.raises(UnsupportedError, match="256 character classes"):
        partition(masks)
