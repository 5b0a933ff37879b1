"""Reads the `normalizer` part of a tokenizer.json into a flat tuple of steps. Applies nothing."""

from __future__ import annotations

from toktier_jax.spec import types
from toktier_jax.spec.fields import Node


def read_pattern(node: Node) -> types.Pattern:
    """`{"String": text}` or `{"Regex": text}`."""
    pattern = node.child("pattern")
    if list(pattern.value) not in (["String"], ["Regex"]):
        raise pattern.fail('must be {"String": …} or {"Regex": …}')
    regex = "Regex" in pattern.value
    return types.Pattern(pattern.string("Regex" if regex else "String"), regex)


def read_normalizer(node: Node | None) -> tuple[types.Normalizer, ...]:
    """The steps of `node` in order of application; nested `Sequence`s are flattened."""
    if node is None:
        return ()
    kind = node.kind()
    if kind == "Sequence":
        return tuple(step for item in node.items("normalizers") for step in read_normalizer(item))
    return (_read_step(kind, node),)


def _read_step(kind: str, node: Node) -> types.Normalizer:
    match kind:
        case "NFC" | "NFD" | "NFKC" | "NFKD":
            return types.Unicode(kind)
        case "Lowercase":
            return types.Lowercase()
        case "Replace":
            return types.Replace(read_pattern(node), node.string("content"))
        case "Prepend":
            return types.Prepend(node.string("prepend"))
        case "Strip":
            return types.Strip(node.boolean("strip_left"), node.boolean("strip_right"))
        case "StripAccents":
            return types.StripAccents()
        case "Nmt":
            return types.Nmt()
        case "BertNormalizer":
            accents = None if node.value.get("strip_accents") is None else node.boolean("strip_accents")
            return types.BertNormalizer(
                clean_text=node.boolean("clean_text"),
                handle_chinese_chars=node.boolean("handle_chinese_chars"),
                strip_accents=accents,
                lowercase=node.boolean("lowercase"),
            )
        case "Precompiled":
            return types.Precompiled(node.string("precompiled_charsmap"))
        case "ByteLevel":
            return types.ByteLevelNormalizer()
    raise node.fail(f"unknown normalizer type {kind!r}")
