"""Converts the tokenizer inside a GGUF to a tokenizer.json. The two kinds of BPE that language models use.

`gpt2` is byte-level BPE behind the patterns that `tokenizer.ggml.pre` names. `llama` is SentencePiece BPE: GGUF stores
scores instead of merges, so every pair of tokens that forms a token is a merge, the better score first (the conversion
that `transformers` does; SentencePiece itself prefers the leftmost of equal scores). Normalizers of a model's own
tokenizer.json are not in the format, so there are none, as in llama.cpp.
"""

from __future__ import annotations

import json
from typing import Any

from toktier_jax.errors import SpecError
from toktier_jax.spec.gguf_pre import PRE, Pre

_UNKNOWN, _CONTROL, _USER_DEFINED, _NORMAL = 2, 3, 4, 1
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def gguf_to_tokenizer_json(metadata: dict[str, Any]) -> bytes:
    """The tokenizer.json, as bytes, for the metadata of a GGUF. Raises SpecError with the key."""
    kind = _get(metadata, "tokenizer.ggml.model", str)
    # llama.cpp's name for empty tokens
    tokens = [token or f"[EMPTY_{i}]" for i, token in enumerate(_get(metadata, "tokenizer.ggml.tokens", list))]
    if len(set(tokens)) != len(tokens):
        raise SpecError("GGUF: tokenizer.ggml.tokens: two tokens are the same")
    types = metadata.get("tokenizer.ggml.token_type") or (_NORMAL,) * len(tokens)
    if len(types) < len(tokens):
        raise SpecError("GGUF: tokenizer.ggml.token_type is shorter than tokenizer.ggml.tokens")
    if kind == "gpt2":
        parts, pre = _byte_level(metadata, tokens)
    elif kind == "llama":
        parts, pre = _sentencepiece(metadata, tokens, types)
    else:
        raise SpecError(f"GGUF: tokenizer.ggml.model: {kind!r} is not read; 'gpt2' and 'llama' are")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": i, "content": token, **flags, "special": types[i] != _USER_DEFINED}
        for i, token in enumerate(tokens)
        if types[i] in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "post_processor": _template(metadata, tokens, pre),
        **parts,
    }
    return json.dumps(document, ensure_ascii=False).encode()


def special_tokens(metadata: dict[str, Any]) -> dict[str, str]:
    """The named special tokens, as chat templates know them: `bos_token` and so on."""
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "seperator": "sep_token"}
    names |= {"padding": "pad_token", "cls": "cls_token", "mask": "mask_token"}
    ids = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for key, name in names.items()}
    return {name: tokens[index] for name, index in ids.items() if index is not None and index < len(tokens)}


def _byte_level(metadata: dict[str, Any], tokens: list[str]) -> tuple[dict[str, Any], Pre]:
    name = _get(metadata, "tokenizer.ggml.pre", str)
    if name not in PRE:
        raise SpecError(f"GGUF: tokenizer.ggml.pre: unknown pre-tokenizer {name!r}; known are {', '.join(sorted(PRE))}")
    pre = PRE[name]
    # A merge is cut at the first space after its first character
    merges = [_cut(merge, i) for i, merge in enumerate(_get(metadata, "tokenizer.ggml.merges", list))]
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in pre.patterns
    ]
    vocab = {token: i for i, token in enumerate(tokens)}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, _BYTE_LEVEL]},
        "decoder": _BYTE_LEVEL,
        "model": {"type": "BPE", "ignore_merges": pre.ignore_merges, "vocab": vocab, "merges": merges},
    }, pre


def _cut(merge: str, index: int) -> list[str]:
    at = merge.find(" ", 1)
    if at < 0:
        raise SpecError(f"GGUF: tokenizer.ggml.merges: entry {index} ({merge!r}) is not two tokens")
    return [merge[:at], merge[at + 1 :]]


def _sentencepiece(metadata: dict[str, Any], tokens: list[str], types: Any) -> tuple[dict[str, Any], Pre]:
    scores = _get(metadata, "tokenizer.ggml.scores", tuple)
    if len(scores) < len(tokens):
        raise SpecError("GGUF: tokenizer.ggml.scores is shorter than tokenizer.ggml.tokens")
    vocab = {token: i for i, token in enumerate(tokens)}
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    if unknown >= len(tokens):
        raise SpecError(f"GGUF: tokenizer.ggml.unknown_token_id is {unknown}, but there are {len(tokens)} tokens")
    ordinary = {token for i, token in enumerate(tokens) if types[i] in (_NORMAL, _USER_DEFINED)}
    found = [
        (-scores[i], -cut, vocab[token[:cut]], token[:cut], token[cut:])
        for i, token in enumerate(tokens)
        if token in ordinary
        for cut in range(1, len(token))
        if token[:cut] in ordinary and token[cut:] in ordinary
    ]
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    undo = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    normalizers = [{"type": "Prepend", "prepend": "▁"}, replace] if prefix else [replace]
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [undo, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": {
            "type": "BPE",
            "unk_token": tokens[unknown],
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": vocab,
            "merges": [[left, right] for *_, left, right in sorted(found)],
        },
    }, Pre((), add_bos=True)


def _template(metadata: dict[str, Any], tokens: list[str], pre: Pre) -> dict[str, Any] | None:
    """`bos $A eos`, each where the metadata (or the family) asks for it."""
    sentencepiece = metadata["tokenizer.ggml.model"] == "llama"
    bos = _wanted(metadata, tokens, "bos", pre.add_bos, 1 if sentencepiece else None)
    eos = _wanted(metadata, tokens, "eos", False, 2 if sentencepiece else None)
    if not bos and not eos:
        return None
    items = {token: {"SpecialToken": {"id": token, "type_id": 0}} for token in (*bos, *eos)}
    single = [*(items[t] for t in bos), {"Sequence": {"id": "A", "type_id": 0}}, *(items[t] for t in eos)]
    second = [*(items[t] for t in bos), {"Sequence": {"id": "B", "type_id": 1}}, *(items[t] for t in eos)]
    table = {token: {"id": token, "ids": [tokens.index(token)], "tokens": [token]} for token in items}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, *second], "special_tokens": table}


def _wanted(metadata: dict[str, Any], tokens: list[str], name: str, default: bool, index: int | None) -> list[str]:
    if not metadata.get(f"tokenizer.ggml.add_{name}_token", default):
        return []
    index = metadata.get(f"tokenizer.ggml.{name}_token_id", index)
    if index is None or index >= len(tokens):
        raise SpecError(
            f"GGUF: tokenizer.ggml.add_{name}_token is true, but tokenizer.ggml.{name}_token_id names no token"
        )
    return [tokens[index]]


def _get(metadata: dict[str, Any], key: str, expected: type) -> Any:
    value = metadata.get(key)
    if not isinstance(value, expected):
        found = "is missing" if value is None else f"has the type {type(value).__name__}"
        raise SpecError(f"GGUF: {key} {found}; a tokenizer needs it")
    return value
