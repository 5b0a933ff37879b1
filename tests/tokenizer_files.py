"""Builders of tokenizer.json parts as plain dictionaries, for the tests that make their own files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Part = dict[str, Any]


def tokenizer_json(
    model: Part,
    *,
    normalizer: Part | None = None,
    pre_tokenizer: Part | None = None,
    post_processor: Part | None = None,
    decoder: Part | None = None,
    added: Sequence[Part] = (),
    truncation: Part | None = None,
    padding: Part | None = None,
) -> bytes:
    """The bytes of a tokenizer.json."""
    whole = {
        "version": "1.0",
        "truncation": truncation,
        "padding": padding,
        "added_tokens": list(added),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    }
    return json.dumps(whole, ensure_ascii=False).encode()


def added(
    id: int,
    content: str,
    *,
    special: bool = False,
    normalized: bool | None = None,
    lstrip: bool = False,
    rstrip: bool = False,
    single_word: bool = False,
) -> Part:
    """An added token; `normalized` is by default what `tokenizers` takes: the opposite of `special`."""
    return {
        "id": id,
        "content": content,
        "single_word": single_word,
        "lstrip": lstrip,
        "rstrip": rstrip,
        "normalized": not special if normalized is None else normalized,
        "special": special,
    }


def bpe(vocab: Mapping[str, int], merges: Sequence[Sequence[str]], **options: Any) -> Part:
    """A BPE model with all options written out."""
    defaults = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    }
    return {**defaults, **options, "vocab": dict(vocab), "merges": [list(pair) for pair in merges]}


def sequence(kind: str, *parts: Part) -> Part:
    """A Sequence of `normalizers`, `pretokenizers`, `processors` or `decoders` (the key is `kind`)."""
    return {"type": "Sequence", kind: list(parts)}


def byte_level(*, add_prefix_space: bool = False, trim_offsets: bool = True, use_regex: bool = True) -> Part:
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": trim_offsets,
        "use_regex": use_regex,
    }


def split(pattern: str, behavior: str = "Isolated", *, invert: bool = False, regex: bool = True) -> Part:
    return {
        "type": "Split",
        "pattern": {"Regex" if regex else "String": pattern},
        "behavior": behavior,
        "invert": invert,
    }


def replace(pattern: str, content: str, *, regex: bool = False) -> Part:
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def metaspace(prepend_scheme: str = "always", *, split: bool = True) -> Part:
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": prepend_scheme, "split": split}


def template(before: Sequence[str], after: Sequence[str], ids: Mapping[str, int]) -> Part:
    """TemplateProcessing: `before $A after`, and the same round both sequences of a pair."""

    def special(token: str) -> Part:
        return {"SpecialToken": {"id": token, "type_id": 0}}

    head, tail = [special(t) for t in before], [special(t) for t in after]
    sequences = [{"Sequence": {"id": name, "type_id": type_id}} for name, type_id in (("A", 0), ("B", 1))]
    return {
        "type": "TemplateProcessing",
        "single": [*head, sequences[0], *tail],
        "pair": [*head, sequences[0], *tail, sequences[1], *tail],
        "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]} for token, id in ids.items()},
    }


LLAMA_NORMALIZER = sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
LLAMA_DECODER = sequence(
    "decoders",
    replace("▁", " "),
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
)
