"""Tokenizers of the well-known families that no package brings, trained here on the tests' own corpus in seconds.

A family is a recipe: the components that its published files have, with a small vocabulary. The trainers of
`tokenizers` order equal pairs by chance, so a file can differ from machine to machine; `tests/artifacts.py` keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import tokenizers
from tokenizers import models, trainers

from . import corpus
from .tokenizer_files import (
    LLAMA_DECODER,
    LLAMA_NORMALIZER,
    Part,
    added,
    byte_level,
    metaspace,
    replace,
    sequence,
    split,
    template,
    tokenizer_json,
)

VERSION = 1
"""Part of the cache key: raised when a recipe changes."""

_BYTE_LEVEL_ALPHABET = tokenizers.pre_tokenizers.ByteLevel.alphabet()
_BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def _texts() -> list[str]:
    return [corpus.mixed(300_000, seed=7), *corpus.udhr().values()]


def _train(parts: dict[str, Any], trainer: Any, model: Any, options: Part, special: list[str]) -> bytes:
    """Trains `model` behind the normalizer and pre-tokenizer of `parts`, then writes the file with `options`."""
    shell = {"type": "BPE", "vocab": {}, "merges": []}
    learner = tokenizers.Tokenizer.from_buffer(tokenizer_json(shell, **{k: parts[k] for k in parts if k in _BEFORE}))
    learner.model = model
    learner.train_from_iterator(_texts(), trainer)
    trained = json.loads(learner.to_str())["model"]
    tokens = [added(learner.token_to_id(t), t, special=True) for t in special]
    return tokenizer_json({**trained, **options}, added=tokens, **parts)


_BEFORE = ("normalizer", "pre_tokenizer")


def _bpe(parts: dict[str, Any], size: int, special: list[str], alphabet: list[str], **options: Any) -> bytes:
    suffix = options.get("end_of_word_suffix")
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=[a for a in alphabet if len(a) == 1],
        limit_alphabet=1200,
        show_progress=False,
        **({"end_of_word_suffix": suffix} if suffix else {}),
    )
    return _train(parts, trainer, models.BPE(**({"end_of_word_suffix": suffix} if suffix else {})), options, special)


def _bert(lowercase: bool) -> bytes:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    parts = {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template(["[CLS]"], ["[SEP]"], {"[CLS]": 2, "[SEP]": 3}),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    }
    trainer = trainers.WordPieceTrainer(
        vocab_size=6000, special_tokens=special, limit_alphabet=1000, show_progress=False
    )
    return _train(parts, trainer, models.WordPiece(unk_token="[UNK]"), {"max_input_chars_per_word": 100}, special)


def _roberta() -> bytes:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    parts = {
        "pre_tokenizer": byte_level(add_prefix_space=True),
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": ["</s>", 2],
            "cls": ["<s>", 0],
            "trim_offsets": True,
            "add_prefix_space": True,
        },
        "decoder": byte_level(),
    }
    return _bpe(parts, 5000, special, _BYTE_LEVEL_ALPHABET)


def _clip() -> bytes:
    pattern = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    special = ["<|startoftext|>", "<|endoftext|>"]
    parts = {
        "normalizer": sequence("normalizers", {"type": "NFC"}, replace(r"\s+", " ", regex=True), {"type": "Lowercase"}),
        "pre_tokenizer": sequence("pretokenizers", split(pattern, "Removed", invert=True), byte_level(use_regex=False)),
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": ["<|endoftext|>", 1],
            "cls": ["<|startoftext|>", 0],
            "trim_offsets": False,
            "add_prefix_space": False,
        },
        "decoder": byte_level(),
    }
    return _bpe(parts, 5000, special, _BYTE_LEVEL_ALPHABET, end_of_word_suffix="</w>", unk_token="<|endoftext|>")


def _falcon() -> bytes:
    parts = {
        "pre_tokenizer": sequence(
            "pretokenizers",
            {"type": "Punctuation", "behavior": "Contiguous"},
            byte_level(),
            {"type": "Digits", "individual_digits": False},
            split("[0-9][0-9][0-9]"),
        ),
        "decoder": byte_level(),
    }
    return _bpe(parts, 5000, ["<|endoftext|>", ">>TITLE<<"], _BYTE_LEVEL_ALPHABET)


def _starcoder() -> bytes:
    parts = {
        "pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level()),
        "decoder": byte_level(),
    }
    return _bpe(parts, 5000, ["<|endoftext|>", "<fim_prefix>", "<fim_middle>"], _BYTE_LEVEL_ALPHABET)


def _bloom() -> bytes:
    parts = {
        "pre_tokenizer": sequence("pretokenizers", split(" ?[^(\\s|[.,!?…。，、।۔،])]+"), byte_level(use_regex=False)),
        "post_processor": byte_level(add_prefix_space=True, trim_offsets=False, use_regex=False),
        "decoder": byte_level(),
    }
    return _bpe(parts, 5000, ["<unk>", "<s>", "</s>", "<pad>"], _BYTE_LEVEL_ALPHABET)


def _llama() -> bytes:
    special = ["<unk>", "<s>", "</s>"]
    parts = {
        "normalizer": LLAMA_NORMALIZER,
        # SentencePiece never lets a token cross a space: train with the split, encode without it.
        "pre_tokenizer": metaspace("never"),
        "post_processor": template(["<s>"], [], {"<s>": 1}),
        "decoder": LLAMA_DECODER,
    }
    data = json.loads(
        _bpe(parts, 5000, [*special, *_BYTE_TOKENS], [], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    data["pre_tokenizer"] = None
    data["added_tokens"] = data["added_tokens"][: len(special)]
    return json.dumps(data, ensure_ascii=False).encode()


def _gemma() -> bytes:
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    parts = {
        "normalizer": replace(" ", "▁"),
        "pre_tokenizer": metaspace("never"),
        "post_processor": template(["<bos>"], [], {"<bos>": 2}),
        "decoder": sequence("decoders", replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}),
    }
    data = json.loads(
        _bpe(parts, 5000, [*special, *_BYTE_TOKENS], [], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    data["pre_tokenizer"] = split(" ", "MergedWithPrevious", regex=False)  # never matches: spaces are ▁ by then
    data["added_tokens"] = data["added_tokens"][: len(special)]
    return json.dumps(data, ensure_ascii=False).encode()


def _sentencepiece_unk() -> bytes:
    """SentencePiece-style without byte fallback: unknown characters become a fused `<unk>`."""
    parts = {
        "normalizer": sequence("normalizers", {"type": "NFKC"}, replace(" {2,}", " ", regex=True)),
        "pre_tokenizer": metaspace("always"),
        "post_processor": template([], ["</s>"], {"</s>": 2}),
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    }
    return _bpe(parts, 4000, ["<unk>", "<s>", "</s>"], [], unk_token="<unk>", fuse_unk=True)


FAMILIES: tuple[str, ...] = (
    "bert",
    "bert-cased",
    "roberta",
    "clip",
    "falcon",
    "starcoder",
    "bloom",
    "llama",
    "gemma",
    "sentencepiece-unk",
)
_RECIPES: dict[str, Callable[[], bytes]] = {
    "bert": lambda: _bert(True),
    "bert-cased": lambda: _bert(False),
    "roberta": _roberta,
    "clip": _clip,
    "falcon": _falcon,
    "starcoder": _starcoder,
    "bloom": _bloom,
    "llama": _llama,
    "gemma": _gemma,
    "sentencepiece-unk": _sentencepiece_unk,
}


def train(family: str) -> bytes:
    """The bytes of the tokenizer.json of one of FAMILIES."""
    return _RECIPES[family]()
