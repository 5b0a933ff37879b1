"""Converts Mistral's tekken.json to a tokenizer.json: byte-level BPE whose merges are read off the ranks.

A pair of tokens whose concatenation is a token merges with the rank of that token, as in tiktoken, which mistral-common
runs; whole pieces that are tokens are taken as they are. Special tokens come first: their ids are their ranks, and
those of the other tokens are shifted by their number.
"""

from __future__ import annotations

import base64
import binascii
import json

from toktier_jax.errors import SpecError
from toktier_jax.spec.byte_alphabet import to_alphabet
from toktier_jax.spec.fields import Node, parse_object

# What the versions up to v7 leave out of the file (mistral-common fills it in)
_OLD_SPECIALS = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip


def tekken_to_tokenizer_json(data: bytes) -> bytes:
    """The tokenizer.json, as bytes, of a tekken.json. Raises SpecError with the key."""
    root = parse_object(data, "tekken.json")
    config = root.child("config")
    size = config.integer("default_vocab_size")
    specials = _read_specials(root, config.integer("default_num_special_tokens"))
    ranks = _read_ranks(root, size - len(specials))
    spelled = {token: to_alphabet(token) for token in ranks}
    vocab = {content: index for index, content in enumerate(specials)}
    vocab.update((spelled[token], rank + len(specials)) for token, rank in ranks.items())
    if len(vocab) != size:
        raise root.fail("a special token is spelled like an ordinary one")
    merges = [[spelled[left], spelled[right]] for left, right in rank_merges(ranks)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": content, **flags} for i, content in enumerate(specials)]
    split = {"type": "Split", "pattern": {"Regex": config.string("pattern")}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": _bos_template(specials),
        "decoder": byte_level,
        "model": {"type": "BPE", "ignore_merges": True, "vocab": vocab, "merges": merges},
    }
    return json.dumps(document, ensure_ascii=False).encode()


def rank_merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """All pairs of tokens that form a token, by the rank of what they form, then by their own."""
    found = [
        (rank, ranks[token[:cut]], ranks[token[cut:]], token[:cut], token[cut:])
        for token, rank in ranks.items()
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]
    return [(left, right) for *_, left, right in sorted(found)]


def _read_specials(root: Node, count: int) -> list[str]:
    """The contents of the special tokens by id, filled up to `count` as mistral-common does."""
    names = dict(enumerate(_OLD_SPECIALS))
    if root.value.get("special_tokens") is not None:
        names = {node.integer("rank"): node.string("token_str") for node in root.items("special_tokens")}
    specials = [names.get(i, f"<SPECIAL_{i}>") for i in range(count)]
    if len(set(specials)) != count or any(rank >= count for rank in names):
        raise root.fail(f"the special tokens must be {count} different ones, with ranks from 0 to {count - 1}")
    return specials


def _read_ranks(root: Node, count: int) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for node in root.items("vocab"):
        rank = node.integer("rank")
        if rank >= count:
            continue
        try:
            ranks[base64.b64decode(node.string("token_bytes"), validate=True)] = rank
        except binascii.Error as error:
            raise node.get("token_bytes").fail(f"is not base64: {error}") from error
    if len(ranks) != count or len(set(ranks.values())) != count:
        raise root.fail(f"vocab must hold {count} different tokens with the ranks from 0 to {count - 1}")
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise SpecError(f"tekken.json: vocab: no token for byte {missing[0]:#04x}")
    return ranks


def _bos_template(specials: list[str]) -> dict | None:
    """Mistral's models begin each text with `<s>`."""
    if "<s>" not in specials:
        return None
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [bos, first],
        "pair": [bos, first, bos, second],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [specials.index("<s>")], "tokens": ["<s>"]}},
    }
