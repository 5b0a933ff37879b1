"""A 300-token byte-level BPE with a GPT-4-like pattern, made here, and small random models for it."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from typing import Any

import tokenizers

import toktier_jax as tt
from toktier_jax import models
from toktier_jax.spec.byte_alphabet import ALPHABET, to_alphabet
from toktier_jax.spec.byte_alphabet import from_alphabet as from_alphabet

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = (
    "def f(x):\n    return x + 1\n\n\nclass A:\n    pass\n  \n \n" * 3
    + "It's the thing that they're thinking of, isn't it? The others won't. " * 4
    + "Der Dampf der Donau; die Donaudampfschifffahrt dampft. " * 4
    + "中文的分词，中国的中文。" * 5
    + "1234 567 89 12345 == != <= //\n" * 4
    + "https://example.org/index.html: https: http://\n" * 4
)
SPECIAL = ["<|end|>", "<|start|>"]
THINK = "<think>"


def _merges(size: int, pre: Any) -> list[tuple[str, str]]:
    """The merges of a BPE trained on TEXT: most frequent pair first, ties by the pair itself (the same everywhere)."""
    words = Counter(piece for piece, _ in pre.pre_tokenize_str(TEXT))
    pieces = {word: list(word) for word in words}
    merges: list[tuple[str, str]] = []
    while len(merges) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in pieces.items():
            for pair in itertools.pairwise(parts):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for word, parts in pieces.items():
            merged: list[str] = []
            for part in parts:
                if merged and (merged[-1], part) == best and not (len(merged) > 1 and merged[-1] == ""):
                    merged[-1] += part
                else:
                    merged.append(part)
            pieces[word] = merged
    return merges


@functools.cache
def tokenizer_json(size: int = 300, ignore_merges: bool = False, added: bool = False, bos: bool = False) -> bytes:
    """A tokenizer.json of `size` ordinary tokens, then two special ones, and with `added` `<think>`, which is not."""
    parts = [
        {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ]
    pre = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    vocab = {letter: id for id, letter in enumerate(sorted(ALPHABET))}
    merges = []
    for left, right in _merges(4 * size, pre):
        if len(vocab) == size:
            break
        if left + right not in vocab:
            vocab[left + right] = len(vocab)
            merges.append([left, right])
    if ignore_merges:  # a token that no merge makes, and one that merges make otherwise
        vocab[to_alphabet(b" dampft")] = len(vocab)
    contents = [*SPECIAL, *([THINK] if added else [])]
    tokens = [
        {"id": len(vocab) + k, "content": content, "special": content != THINK, "normalized": False}
        | {"single_word": False, "lstrip": False, "rstrip": False}
        for k, content in enumerate(contents)
    ]
    post = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|start|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "<|end|>", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {c: {"id": c, "ids": [len(vocab) + k], "tokens": [c]} for k, c in enumerate(SPECIAL)},
    }
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore_merges,
        "vocab": vocab, "merges": merges,
    }  # fmt: skip
    return json.dumps(
        {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts}, "post_processor": post if bos else None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": model,
        }
    ).encode()  # fmt: skip


@functools.cache
def tokenizer(**options: Any) -> tt.Tokenizer:
    return tt.Tokenizer.from_bytes(tokenizer_json(**options))


def changed(**parts: Any) -> tt.Tokenizer:
    """The tokenizer with BOS, and these parts of its file instead of its own."""
    return tt.Tokenizer.from_bytes(json.dumps(json.loads(tokenizer_json(bos=True)) | parts).encode())


@functools.cache
def model(vocab_size: int, seed: int = 0, context: int = 256, scale: float = 1.0) -> models.CausalLM:
    """A random two-layer decoder whose next-token distributions are far from flat."""
    config = models.DecoderConfig(
        vocab_size=vocab_size, width=32, heads=4, kv_heads=2, head_dim=8, hidden=48, context_length=context,
        windows=(0, 0), rope=models.rope_frequencies(1e4, 8), rope_window=models.rope_frequencies(1e4, 8),
        norm_eps=1e-5, embed_scale=1.0, query_scale=8**-0.5,
    )  # fmt: skip
    return models.random_lm(config, seed)
