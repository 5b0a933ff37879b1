"""A tokenizer.json with every component, and variants of it, for the readers' tests."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tests.tokenizer_files import Part, added, byte_level, metaspace, split

TEMPLATE: Part = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}},
}
BERT: Part = {"type": "BertProcessing", "sep": ["[SEP]", 1], "cls": ["[CLS]", 0]}
ROBERTA: Part = {**BERT, "type": "RobertaProcessing", "trim_offsets": True, "add_prefix_space": False}

NORMALIZERS: list[Part] = [
    {"type": "NFC"},
    {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "Lowercase"}]},
    {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
    {"type": "Replace", "pattern": {"Regex": " +"}, "content": ""},
    {"type": "Prepend", "prepend": "_"},
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "StripAccents"},
    {"type": "Nmt"},
    {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": False,
        "strip_accents": None,
        "lowercase": True,
    },
    {"type": "ByteLevel"},
]

PRE_TOKENIZERS: list[Part] = [
    split("a+", "Contiguous", invert=True),
    split(" ", "Removed", regex=False),
    {"type": "Sequence", "pretokenizers": [byte_level(use_regex=False)]},
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
    {"type": "Digits", "individual_digits": True},
    {"type": "Punctuation"},
    {"type": "Punctuation", "behavior": "MergedWithNext"},
    {"type": "Whitespace"},
    {"type": "WhitespaceSplit"},
    {"type": "BertPreTokenizer"},
    {"type": "CharDelimiterSplit", "delimiter": "-"},
    metaspace("first", split=False),
    {"type": "Metaspace", "replacement": "_", "add_prefix_space": True, "str_rep": "_"},
    {"type": "UnicodeScripts"},
    {"type": "FixedLength", "length": 3},
    {"type": "FixedLength"},
]

MODELS: list[Part] = [
    {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["#version: 0.2", "a b"]},
    {
        "type": "WordPiece",
        "unk_token": "a",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"a": 0},
    },
    {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0}},
    {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], ["b", -1]], "byte_fallback": False},
]

DECODERS: list[Part] = [
    byte_level(),
    {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    {"type": "Replace", "pattern": {"String": "_"}, "content": " "},
    {"type": "WordPiece", "prefix": "##", "cleanup": True},
    {"type": "BPEDecoder", "suffix": "</w>"},
    {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
    metaspace("never"),
]


def document(**parts: Any) -> Part:
    """A small whole file with `parts` in the place of its own."""
    whole = {
        "version": "1.0",
        "truncation": {"direction": "Left", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 9},
            "direction": "Left",
            "pad_to_multiple_of": 4,
            "pad_id": 7,
            "pad_type_id": 0,
            "pad_token": "x",
        },
        "added_tokens": [added(3, "<s>", special=True)],
        "normalizer": NORMALIZERS[0],
        "pre_tokenizer": PRE_TOKENIZERS[0],
        "post_processor": {"type": "Sequence", "processors": [byte_level(), TEMPLATE]},
        "decoder": DECODERS[0],
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "a",
            "continuing_subword_prefix": "",
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": {"a": 0, "b": 1, "ab": 2},
            "merges": [["a", "b"]],
        },
    }
    return copy.deepcopy({**whole, **parts})


def documents() -> Iterator[Part]:
    """Files that together hold every component."""
    yield document()
    for key, values in (
        ("normalizer", NORMALIZERS),
        ("pre_tokenizer", PRE_TOKENIZERS),
        ("model", MODELS),
        ("decoder", DECODERS),
        ("post_processor", [TEMPLATE, BERT, ROBERTA, None]),
    ):
        for value in values:
            yield document(**{key: value})
