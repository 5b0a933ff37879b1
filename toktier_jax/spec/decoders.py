"""Checks the `decoder` part of a tokenizer.json. It is kept as it is: host/decoder_steps.py applies it."""

from __future__ import annotations

from typing import Any

from toktier_jax.spec.fields import Node
from toktier_jax.spec.normalizers import read_pattern
from toktier_jax.spec.pre_tokenizers import read_pre_tokenizer


def read_decoder(node: Node | None) -> dict[str, Any] | None:
    """The decoder as in the file. Raises SpecError for an unknown type and for fields that are missing or wrong."""
    if node is None:
        return None
    match kind := node.kind():
        case "Sequence":
            for item in node.items("decoders"):
                read_decoder(item)
        case "ByteLevel" | "Metaspace":
            read_pre_tokenizer(node)
        case "Fuse" | "ByteFallback":
            pass
        case "Strip":
            _ = node.character("content"), node.integer("start"), node.integer("stop")
        case "Replace":
            _ = read_pattern(node), node.string("content")
        case "WordPiece":
            _ = node.string("prefix"), node.boolean("cleanup")
        case "BPEDecoder":
            node.string("suffix")
        case "CTC":
            _ = node.string("pad_token"), node.string("word_delimiter_token"), node.boolean("cleanup")
        case _:
            raise node.fail(f"unknown decoder type {kind!r}")
    return node.value
