"""The two references agree: `tokenizers` and the pure-Python one, at every level, on real and generated files.

And what the reference does that a reader of its documentation would not expect, one test a fact: whoever encodes like
it has to do the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers

from tests import artifacts, corpus, generated
from tests.reference.models import EncodeError
from tests.reference.tokenizer import ReferenceTokenizer
from tests.tokenizer_files import (
    LLAMA_NORMALIZER,
    added,
    bpe,
    byte_level,
    metaspace,
    replace,
    sequence,
    split,
    template,
    tokenizer_json,
)

FILES = 520


def both(file: bytes) -> Callable[..., tuple[Any, Any]]:
    """A function of a text: ids, strings, pieces and offsets by either; "fails" where it raises or panics."""
    theirs, ours = tokenizers.Tokenizer.from_buffer(file), ReferenceTokenizer(file)

    def encode(text: str, *, add_special_tokens: bool = True, encode_special_tokens: bool = False) -> tuple[Any, Any]:
        theirs.encode_special_tokens = encode_special_tokens
        try:
            found = theirs.encode(text, add_special_tokens=add_special_tokens)
            expected = found.ids, found.tokens, found.word_ids, found.offsets
        except BaseException as error:  # a panic in Rust is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            expected = "fails"
        try:
            own = ours.encode(text, add_special_tokens=add_special_tokens, encode_special_tokens=encode_special_tokens)
            got = own.ids, own.values, own.words, own.offsets
        except (EncodeError, AssertionError):
            got = "fails"
        return expected, got

    return encode


@pytest.mark.parametrize("block", range(13))
def test_generated_files(block: int) -> None:
    size = FILES // 13
    for made in generated.generate(size, block * size):
        sides = both(made.file)
        for k, text in enumerate(generated.texts(made.file, 12, seed=int(made.name))):
            options = {"add_special_tokens": k % 4 != 3, "encode_special_tokens": k % 5 == 4}
            expected, got = sides(text, **options)
            assert got == expected, (made.name, text, options)


def test_generated_files_cover_everything() -> None:
    tags = [tag for made in generated.generate(FILES) for tag in made.tags]
    names = {
        "normalizer": "NFC NFD NFKC NFKD Lowercase Strip StripAccents Replace Prepend Nmt BertNormalizer ByteLevel "
        "Sequence none",
        "pre_tokenizer": "Split ByteLevel Digits Punctuation Whitespace Metaspace WhitespaceSplit BertPreTokenizer "
        "CharDelimiterSplit UnicodeScripts FixedLength Sequence none",
        "model": "BPE WordPiece WordLevel",
        "bpe": "unk_token fuse_unk byte_fallback ignore_merges continuing_subword_prefix end_of_word_suffix dropout",
        "truncation": "Left Right",
        "padding": "Left Right",
    }
    components = {f"{kind}:{name}" for kind, line in names.items() for name in line.split()}
    components |= {f"pre_tokenizer:Split:{b}:{way}" for b in generated.BEHAVIORS for way in ("plain", "invert")}
    components |= {"bpe:bytes all", "bpe:bytes some", "bpe:incomplete alphabet"}
    assert {tag for tag in components if tags.count(tag) < 4} == set()
    flags = {tag for tag in tags if tag.startswith("added:") and tag != "added:none"}
    assert len(flags) == 32, "every combination of the five flags"


@pytest.mark.parametrize(
    "name", ["gpt2", "mistral-v1", "mistral-v3", *filter(lambda n: "trained" in n, artifacts.NAMES)]
)
def test_real_files(name: str, artifact: Any) -> None:
    file = artifact(name).file
    contents = [token["content"] for token in json.loads(file)["added_tokens"]]
    texts = [*(make(40) for make in corpus.STRESS.values()), *(corpus.mixed(300, seed) for seed in range(3))]
    sides = both(file)
    for text in [*texts, corpus.chat(contents, 200), "  hi  <s> there</s> x\n"]:
        expected, got = sides(text)
        assert got == expected, text


# ---- facts ----

ABC = {"a": 0, "b": 1, "c": 2, " ": 3, "▁": 4, "é": 5, "ab": 6}


def encode(text: str, model: Any = None, **parts: Any) -> tokenizers.Encoding:
    """`text` through the reference with these parts; the pure-Python one must agree."""
    file = tokenizer_json(bpe(ABC, [("a", "b")]) if model is None else model, **parts)
    expected, got = both(file)(text)
    assert got == expected
    return tokenizers.Tokenizer.from_buffer(file).encode(text)


def test_the_ids_of_added_tokens_in_the_file_are_not_read() -> None:
    found = encode("a<x><y>", added=[added(70, "<x>"), added(60, "<y>"), added(50, "a")])
    assert found.ids == [0, 7, 8]


def test_dollar_is_also_before_every_newline() -> None:
    pieces = encode("a \nb", pre_tokenizer=split(r"\s+$", "Removed"), model=bpe({**ABC, "\n": 9}, []))
    assert pieces.tokens == ["a", "\n", "b"]


def test_replaced_text_stands_at_the_last_character_of_the_match() -> None:
    assert encode("cabc", normalizer=replace("ab", "a")).offsets == [(0, 1), (2, 3), (3, 4)]


def test_prepended_text_stands_at_the_first_character() -> None:
    found = encode("ab", normalizer=LLAMA_NORMALIZER)
    assert list(zip(found.tokens, found.offsets, strict=True)) == [("▁", (0, 1)), ("ab", (0, 2))]


def test_a_character_without_a_token_moves_later_offsets_of_its_piece() -> None:
    found = encode("axcaxb")
    pairs = list(zip(found.tokens, found.offsets, strict=True))
    assert pairs == [("a", (0, 1)), ("c", (1, 2)), ("ab", (2, 4))], "and its neighbours merge"


def test_bytes_of_byte_fallback_overtake_a_waiting_unknown() -> None:
    model = bpe({"[UNK]": 0, "<0x79>": 1, "a": 2}, [], unk_token="[UNK]", byte_fallback=True)
    assert encode("xya", model).tokens == ["<0x79>", "[UNK]", "a"]


def test_byte_fallback_needs_all_bytes_of_the_character() -> None:
    model = bpe({"[UNK]": 0, "<0xC3>": 1, "a": 2}, [], unk_token="[UNK]", byte_fallback=True)
    assert encode("éa", model).tokens == ["[UNK]", "a"]


def test_byte_fallback_spells_the_suffix_too() -> None:
    model = bpe({f"<0x{byte:02X}>": byte for byte in range(256)}, [], byte_fallback=True, end_of_word_suffix="</w>")
    found = encode("a", model)
    assert bytes(found.ids) == b"a</w>"
    assert found.offsets == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


def test_unknown_characters_fuse_inside_a_piece_only() -> None:
    model = bpe({"[UNK]": 0, "a": 1}, [], unk_token="[UNK]", fuse_unk=True)
    found = encode("xy xya", model, pre_tokenizer={"type": "WhitespaceSplit"})
    assert list(zip(found.tokens, found.offsets, strict=True)) == [("[UNK]", (0, 2)), ("[UNK]", (3, 5)), ("a", (5, 6))]


def test_of_a_repeated_merge_the_last_rank_counts() -> None:
    model = bpe({"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}, [("a", "b"), ("b", "c"), ("a", "b")])
    assert encode("abc", model).tokens == ["a", "bc"]


def test_a_rejected_single_word_match_uses_up_its_text() -> None:
    tokens = [added(0, "ab", normalized=False, single_word=True), added(0, "b", normalized=False)]
    assert encode("cab", added=tokens).tokens == ["c", "ab"], "not c, a, b: the b was inside the rejected match"


def test_a_special_token_taken_as_text_uses_up_its_text() -> None:
    file = tokenizer_json(bpe(ABC, []), added=[added(0, "<ab>", special=True), added(0, "b>", normalized=False)])
    expected, got = both(file)("<ab>c", encode_special_tokens=True)
    assert expected == got
    assert expected[1] == ["a", "b", "c"]


def test_a_token_can_begin_in_the_white_space_that_rstrip_took() -> None:
    tokens = [added(0, "<x>", normalized=False, rstrip=True), added(0, " <y>", normalized=False)]
    found = encode("<x>  <y>", added=tokens)
    assert list(zip(found.tokens, found.offsets, strict=True)) == [("<x>  ", (0, 5)), (" <y>", (4, 8))]


def test_the_string_of_an_added_token_holds_its_white_space() -> None:
    found = encode("a  <x> b", added=[added(0, "<x>", normalized=False, lstrip=True, rstrip=True)])
    assert found.tokens == ["a", "  <x> ", "b"]


def test_raw_tokens_are_found_before_the_normalizer_runs_normalized_ones_after_it_in_their_normalized_form() -> None:
    lower = {"type": "Lowercase"}
    assert encode("c<X>", normalizer=lower, added=[added(0, "<X>")]).tokens == ["c", "<x>"]
    tokens = [added(0, "<X>"), added(0, "X", normalized=False)]
    assert encode("<X>", normalizer=lower, added=tokens).tokens == ["X"], "the raw X took its text"


def test_with_prepend_a_normalized_token_needs_the_prefix() -> None:
    found = encode("<x>a <x>", normalizer=LLAMA_NORMALIZER, added=[added(0, "<x>")])
    assert found.tokens == ["▁<x>", "a", "▁<x>"]
    assert "▁<x>" not in encode("a<x>", normalizer=LLAMA_NORMALIZER, added=[added(0, "<x>")]).tokens


def test_prefixes_come_before_every_part_between_added_tokens() -> None:
    tokens = [added(0, "<x>", normalized=False)]
    assert encode("a<x>b", normalizer=LLAMA_NORMALIZER, added=tokens).tokens == ["▁", "a", "<x>", "▁", "b"]
    spaced = bpe({"Ġ": 0, "a": 1, "b": 2}, [])
    found = encode("a<x>b", spaced, pre_tokenizer=byte_level(add_prefix_space=True), added=tokens)
    assert found.tokens == ["Ġ", "a", "<x>", "Ġ", "b"]


def test_metaspace_first_means_the_part_at_offset_zero() -> None:
    first = metaspace("first")
    assert encode("ab", pre_tokenizer=first).tokens == ["▁", "ab"]
    assert encode("<x>a", pre_tokenizer=first, added=[added(0, "<x>", normalized=False)]).tokens == ["<x>", "a"]
    stripped = {"type": "Strip", "strip_left": True, "strip_right": False}
    assert encode(" ab", pre_tokenizer=first, normalizer=stripped).tokens == ["ab"], "the part begins at 1 then"


def test_metaspace_prepends_to_every_piece_of_an_earlier_split() -> None:
    steps = sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("always"))
    assert encode("a b", pre_tokenizer=steps).tokens == ["▁", "a", "▁", "b"]


def test_pieces_can_begin_inside_a_character_after_byte_level() -> None:
    model = bpe({"Ð": 0, "²": 1, "Ġ": 2}, [])
    steps = sequence("pretokenizers", byte_level(use_regex=False), {"type": "Digits", "individual_digits": False})
    found = encode("в", model, pre_tokenizer=steps)
    assert list(zip(found.tokens, found.word_ids, found.offsets, strict=True)) == [("Ð", 0, (0, 1)), ("²", 1, (0, 1))]


def test_trim_offsets_trims_once_for_every_processor() -> None:
    model = bpe({"Ġ": 0, "a": 1, "ĠĠ": 2, "ĠĠa": 3}, [("Ġ", "Ġ"), ("ĠĠ", "a")])
    pre, once = byte_level(use_regex=False), byte_level()
    assert encode("a  a", model, pre_tokenizer=pre, post_processor=once).offsets[1] == (3, 4)
    twice = sequence("processors", once, once)
    assert encode("a  a", model, pre_tokenizer=pre, post_processor=twice).offsets[1] == (4, 4)


def test_trim_offsets_keeps_one_space_at_the_start_under_add_prefix_space() -> None:
    model = bpe({"Ġ": 0, "a": 1, "Ġa": 2}, [("Ġ", "a")])
    parts = {"pre_tokenizer": byte_level(), "post_processor": byte_level(add_prefix_space=True)}
    assert encode(" a a", model, **parts).offsets == [(0, 2), (3, 4)]
    first = sequence("processors", template(["<s>"], [], {"<s>": 9}), byte_level(add_prefix_space=True))
    assert encode(" a a", model, **{**parts, "post_processor": first}).offsets == [(0, 0), (0, 2), (3, 4)]


def test_trim_offsets_trims_added_tokens_by_their_strings() -> None:
    tokens = [added(0, "<x>", normalized=False, lstrip=True)]
    assert encode("a  <x>", added=tokens, post_processor=byte_level()).offsets == [(0, 1), (3, 6)]


def test_unicode_scripts_loses_leading_spaces() -> None:
    assert encode("  ab", pre_tokenizer={"type": "UnicodeScripts"}).tokens == ["ab"]


def test_bert_strips_accents_where_it_lowers() -> None:
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    assert encode("É", normalizer={**bert, "lowercase": True}, model=bpe({"e": 0}, [])).tokens == ["e"]
    assert encode("é", normalizer={**bert, "lowercase": False}).tokens == ["é"]


def test_composition_leaves_gaps_and_order_decides_offsets() -> None:
    assert encode("ae\u0301b", normalizer={"type": "NFC"}).offsets == [(0, 1), (1, 2), (3, 4)]


def test_truncation_has_no_effect_where_the_template_is_longer_than_it() -> None:
    cut = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    ends = template(["<s>"], ["<s>"], {"<s>": 9})
    assert encode("aaa", post_processor=ends, truncation=cut).ids == [9, 0, 0, 0, 9]
    assert encode("aaa", post_processor=ends, truncation={**cut, "max_length": 2}).ids == [9, 9]


def test_a_single_text_is_padded_to_a_fixed_length() -> None:
    padding = {
        "strategy": {"Fixed": 3}, "direction": "Left", "pad_to_multiple_of": 2, "pad_id": 9, "pad_type_id": 0,
        "pad_token": "[PAD]",
    }  # fmt: skip
    found = encode("a", padding=padding)
    assert (found.ids, found.offsets) == ([9, 9, 9, 0], [(0, 0)] * 3 + [(0, 1)])


def test_a_token_normalized_to_nothing_makes_the_reference_panic() -> None:
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    reference = tokenizers.Tokenizer.from_buffer(tokenizer_json(bpe(ABC, []), normalizer=strip, added=[added(0, " ")]))
    with pytest.raises(BaseException, match="bad split"):
        reference.encode("é")
