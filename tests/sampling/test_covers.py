"""Covers against brute force: every cover that a suffix shows is found, and every one found is shown by some text."""

from __future__ import annotations

import json
import random
from collections.abc import Collection

import numpy as np
import pytest

import toktier_jax as tt
from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.sampling import covers, futures, splits
from toktier_jax.sampling.covers import _holding, cover_rules
from toktier_jax.sampling.vocabulary import vocabulary_of

from . import brute, small

NAMED = ["  =", "x\n \n", "!'t", "9123", "\n  ", "it'", "don'", "a <", " dampf", " dampft", " dam", "12", "   ", " \n "]


def prompts(count: int, seed: int) -> list[bytes]:
    rng, found = random.Random(seed), []
    while len(found) < count:
        begin = rng.randrange(len(small.TEXT))
        text = small.TEXT[begin : begin + rng.randrange(1, 20)].encode()
        if rng.random() < 0.3:
            text = "".join(rng.choice(" \n'st1a中=x<") for _ in range(rng.randrange(1, 8))).encode()
        if rng.random() < 0.2 and text[-1] >= 0x80:
            text = text[:-1]
        found.append(text)
    return found


def check(tok, prompt: bytes) -> None:
    rules = cover_rules(tok)
    whole = rules.whole(prompt)
    ids = tok.reference.encode(whole.decode(), add_special_tokens=False).ids
    covers = rules.covers(ids, prompt, strict=True)
    for strict in (False, True):
        nodes, tokens = covers.strict[:2] if strict else covers.leaves
        pairs = zip(nodes.tolist(), tokens.tolist(), strict=True)
        ours = [(*covers.trunk, *covers.nodes[node].path, token) for node, token in pairs]
        assert len(ours) == len(set(ours))
        shown = brute.covers(tok, prompt, strict=strict)
        assert shown <= set(ours), f"{prompt!r} lacks {shown - set(ours)}"
        for path in set(ours) - shown:
            assert realized(tok, rules, path), f"{prompt!r}: no text encodes to {[tok.token_bytes(i) for i in path]}"


def realized(tok, rules, path: tuple[int, ...]) -> bool:
    """Whether the reference encodes some text that goes on to something that begins with `path`."""
    text = b"".join(tok.token_bytes(id) for id in path)
    for more in rules.canonical.splitter.futures.after(text[-8:]):
        try:
            whole = (text + more).decode()
        except UnicodeDecodeError:
            continue
        if tuple(tok.reference.encode(whole, add_special_tokens=False).ids[: len(path)]) == path:
            return True
    return False


@pytest.mark.parametrize("prompt", NAMED)
def test_prompts_that_break_simpler_rules(prompt: str) -> None:
    check(small.tokenizer(), prompt.encode())


@pytest.mark.parametrize("options", [{}, {"ignore_merges": True, "added": True}], ids=["plain", "wholes"])
def test_covers_are_those_of_brute_force(options: dict, scale: float) -> None:
    for prompt in prompts(max(1, int(4 * scale)), seed=5):
        check(small.tokenizer(**options), prompt)


def test_a_closed_piece_that_is_a_token_is_that_token_alone() -> None:
    tok = small.tokenizer(ignore_merges=True)
    for prompt in (b"der dampft", b"der dam"):
        check(tok, prompt)


def test_an_added_token_is_a_leaf_where_its_literal_begins() -> None:
    tok = small.tokenizer(added=True)
    think = tok.reference.token_to_id("<think>")
    rules = cover_rules(tok)
    covers = rules.covers(tok.reference.encode("a <th", add_special_tokens=False).ids, b"a <th")
    assert think in covers.leaves[1]
    check(tok, b"a <th")


def test_an_ordinary_token_that_would_complete_a_literal_is_no_leaf() -> None:
    tok = small.tokenizer(added=True)
    rules = cover_rules(tok)
    prompt = b"a <think"
    covers = rules.covers(tok.reference.encode("a <think", add_special_tokens=False).ids, prompt, strict=True)
    past = {
        tok.token_bytes(t) for n, t in zip(*covers.strict[:2], strict=True) if covers.nodes[n].at == len(covers.rest)
    }
    assert b">" not in past
    check(tok, prompt)


def test_the_end_hangs_from_the_prompts_own_encoding_and_from_nothing_inside_a_character() -> None:
    tok = small.tokenizer()
    rules = cover_rules(tok)
    text = "it's 中"
    covers = rules.covers(tok.reference.encode(text, add_special_tokens=False).ids, text.encode(), strict=True)
    assert covers.end is not None
    assert (*covers.trunk, *covers.end.path) == tuple(tok.reference.encode(text, add_special_tokens=False).ids)
    inside = rules.covers(tok.reference.encode("it's ", add_special_tokens=False).ids, text.encode()[:-1], strict=True)
    assert inside.end is None


@pytest.mark.parametrize("prompt", [b"a\xff", b"\xe4a", b"\xc0", b"\xf5", b"a\xed\xa0"])
def test_bytes_that_can_never_become_utf8_are_an_error(prompt: bytes) -> None:
    with pytest.raises(InputError, match="UTF-8 at byte"):
        cover_rules(small.tokenizer()).covers([], prompt)


def test_what_has_no_covers_is_refused_by_name() -> None:
    data = json.loads(small.tokenizer_json())
    data["normalizer"] = {"type": "Lowercase"}
    with pytest.raises(UnsupportedError, match=r"exact.*Lowercase"):
        cover_rules(tt.Tokenizer.from_bytes(json.dumps(data).encode()))


def test_the_pair_test_is_the_merges_own_answer() -> None:
    rules = cover_rules(small.tokenizer())
    merges, rng = rules.canonical.merges, random.Random(3)
    for _ in range(3000):
        left, right = rng.randrange(300), rng.randrange(300)
        whole = merges.encode(merges.strings[left] + merges.strings[right])
        assert merges.pair(left, right) == (whole == (left, right))


@pytest.mark.parametrize("letters", ["ab", "thedampf", "a"])
def test_a_long_piece_is_what_the_reference_makes_of_it(letters: str) -> None:
    tok = small.tokenizer()
    merges, rng = cover_rules(tok).canonical.merges, random.Random(1)
    for size in (63, 64, 65, 1000):
        piece = "".join(rng.choices(letters, k=size))
        assert list(merges.encode(piece.encode())) == tok.reference.encode(piece, add_special_tokens=False).ids


def test_rows_walked_a_few_at_a_time_give_the_same_covers(monkeypatch: pytest.MonkeyPatch) -> None:
    rules, tok = cover_rules(small.tokenizer()), small.tokenizer()
    text = "it's the donaudampf"
    ids = tok.reference.encode(text, add_special_tokens=False).ids
    together = rules.covers(ids, text.encode())
    monkeypatch.setattr(splits, "_CELLS", 1)
    rules._known.clear()
    alone = rules.covers(ids, text.encode())
    assert alone.nodes == together.nodes
    assert all(map(np.array_equal, alone.leaves, together.leaves))


def test_an_end_that_is_one_long_piece_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "LONGEST", 100)
    rules, tok = cover_rules(small.tokenizer()), small.tokenizer()
    for text in ("a" * 99, "word " * 500):
        ids = tok.reference.encode(text, add_special_tokens=False).ids
        assert rules.covers(ids, text.encode()).nodes
    with pytest.raises(UnsupportedError, match=r"exact.* last 101 bytes"):
        rules.covers(tok.reference.encode("a" * 101, add_special_tokens=False).ids, b"a" * 101)


def test_the_next_byte_after_a_long_piece_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covers, "LONGEST_PAST", 100)
    rules, tok = cover_rules(small.tokenizer()), small.tokenizer()
    ids = tok.reference.encode("a" * 101, add_special_tokens=False).ids
    assert rules.covers(ids, b"a" * 101).nodes
    with pytest.raises(UnsupportedError, match=r"no next byte.* last 101 bytes"):
        rules.covers(ids, b"a" * 101, strict=True)


def test_pre_tokenizers_of_too_many_states_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futures, "MOST", 2)
    with pytest.raises(UnsupportedError, match=r"exact.*more than 2 states"):
        _ = futures.Futures(cover_rules(small.tokenizer()).canonical.splitter.stages).all


@pytest.mark.parametrize(
    "contents", [["  ", "   "], ["ab<x>", "<x>"], ["<x>", "<x>y"], ["<think>", "think"]], ids=str
)
def test_an_added_token_in_another_is_refused_by_name(contents: list[str]) -> None:
    """Which of them a text holds depends on what follows."""
    with pytest.raises(UnsupportedError, match=r"exact covers with the added token .*, which holds"):
        cover_rules(with_added(contents))


@pytest.mark.parametrize(
    ("contents", "ends"),
    [(["abab"], (b"aba", b"ab", b"xa")), (["|D|"], (b"a|", b"|D", b"|")), (["ab", "bc"], (b"a", b"b", b"xb"))],
    ids=str,
)
def test_of_added_tokens_that_overlap_the_leftmost_is_found(contents: list[str], ends: tuple[bytes, ...]) -> None:
    tok = with_added(contents)
    for end in ends:
        check(tok, end)


def test_a_prompt_may_end_inside_a_character_of_an_added_token() -> None:
    tok, literal = with_added(["‹a｜>"]), "‹a｜>".encode()
    added = tok.reference.token_to_id("‹a｜>")
    for end in range(1, len(literal)):
        prompt = b"x" + literal[:end]
        check(tok, prompt)
        ids = tok.reference.encode(cover_rules(tok).whole(prompt).decode(), add_special_tokens=False).ids
        assert added in cover_rules(tok).covers(ids, prompt).leaves[1]


def test_of_added_tokens_that_overlap_one_that_is_found_first_is_refused_by_name() -> None:
    """Those that are not normalized are looked for first: "abc" is a and bc here, and not ab and c."""
    for normalized in ({"ab"}, {"bc"}):
        tok = with_added(["ab", "bc"], normalized)
        ids = tok.reference.encode("abc", add_special_tokens=False).ids
        assert (b"".join(map(tok.token_bytes, ids[-1:])) == b"bc") == ("ab" in normalized)
        if "ab" in normalized:
            with pytest.raises(UnsupportedError, match=r"exact covers.*'ab' \(normalized\) and 'bc'"):
                cover_rules(tok)
        else:
            check(tok, b"xa")
            check(tok, b"xb")


def test_added_tokens_that_cannot_overlap_have_covers() -> None:
    tok = with_added(["<think>", "</think>", "<|a|>", "-a"])
    for prompt in (b"a <th", b"a -", b"a<|", b"</think"):
        check(tok, prompt)


def test_tokens_that_hold_an_added_tokens_literal() -> None:
    vocabulary = vocabulary_of(with_added(["a", "th", "中", "mpf;"]))
    found = _holding(vocabulary)
    assert found.tolist() == [any(literal in s for literal in vocabulary.literals) for s in vocabulary.strings]
    assert 10 < found.sum() < 200


def test_special_tokens_that_depend_on_what_follows_are_refused_by_name() -> None:
    """ "a<m>b" has no <m> that is a word alone; what follows <m> decides whether it is <m> or <m>+."""
    for contents, flags in ((["<m>"], {"single_word": True}), (["<m>", "<m>+"], {})):
        with pytest.raises(UnsupportedError, match="no exact covers with the added token '<m>"):
            cover_rules(with_added(contents, special=True, **flags))
    tok = with_added(["<m>", "a<m>"], special=True)
    for prompt in (b"a", b"a<m", b"b<m"):
        check(tok, prompt)


def test_behind_a_special_token_that_takes_white_space_there_are_no_covers() -> None:
    tok = with_added(["<m>"], special=True, rstrip=True)
    ids = tok.reference.encode("a<m>").ids
    with pytest.raises(UnsupportedError, match="white space behind it"):
        cover_rules(tok).covers(ids, b"", strict=True)
    assert cover_rules(tok).covers([*ids, *tok.reference.encode("b").ids], b"b").leaves[1].size


@pytest.mark.parametrize("form", ["NFC", "NFKD"])
def test_covers_are_of_texts_in_the_normal_form(form: str) -> None:
    """After e no text in NFC has an acute accent, and in NFKD none has it after another one."""
    tok = with_added(["<t>"], form=form)
    for prompt in (b"e\xcc", "e\u0316".encode() + b"\xcc", b"it's <"):
        check(tok, prompt)
    covers = cover_rules(tok).covers(tok.reference.encode("e").ids, b"e\xcc", strict=True)
    firsts = covers.strict[2].tolist()
    assert (0x81 in firsts) == (form == "NFKD")
    assert 0x90 in firsts


@pytest.mark.parametrize("prompt", ["e\u0301", "\u212b", "\u0316e\u0316\u0301"[1:], "\u1100\u1161"])
def test_a_text_that_is_not_in_the_normal_form_is_an_error(prompt: str) -> None:
    tok = with_added([], form="NFC")
    with pytest.raises(InputError, match="no text in the tokenizer's normal form, NFC"):
        cover_rules(tok).covers(tok.reference.encode(prompt).ids, prompt.encode())


@pytest.mark.parametrize(("content", "normalized"), [("e\u0301|", False), ("\u0301|", False), ("<t>", True)], ids=str)
def test_an_added_token_that_composes_is_refused_by_name(content: str, normalized: bool) -> None:
    with pytest.raises(UnsupportedError, match="no exact covers with NFC and the added token"):
        cover_rules(with_added([content], [content] if normalized else [], form="NFC"))


def with_added(
    contents: list[str], normalized: Collection[str] = (), form: str | None = None, **flags: bool
) -> tt.Tokenizer:
    data = json.loads(small.tokenizer_json())
    plain = dict.fromkeys(("special", "single_word", "lstrip", "rstrip"), False) | flags
    first = 1 + max(data["model"]["vocab"].values())
    data["added_tokens"] = [
        {"id": first + n, "content": content, "normalized": content in normalized, **plain}
        for n, content in enumerate(contents)
    ]
    data["normalizer"] = None if form is None else {"type": form}
    return tt.Tokenizer.from_bytes(json.dumps(data).encode())
