"""Reads the `pre_tokenizer` part of a tokenizer.json into a flat tuple of steps. Splits nothing."""

from __future__ import annotations

from toktier_jax.spec import types
from toktier_jax.spec.fields import Node
from toktier_jax.spec.normalizers import read_pattern

_BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")


def read_pre_tokenizer(node: Node | None) -> tuple[types.PreTokenizer, ...]:
    """The steps of `node` in order of application; nested `Sequence`s are flattened."""
    if node is None:
        return ()
    kind = node.kind()
    if kind == "Sequence":
        return tuple(step for item in node.items("pretokenizers") for step in read_pre_tokenizer(item))
    return (_read_step(kind, node),)


def _read_step(kind: str, node: Node) -> types.PreTokenizer:
    match kind:
        case "Split":
            behavior = node.choice("behavior", _BEHAVIORS)
            return types.Split(read_pattern(node), behavior, node.boolean("invert"))
        case "ByteLevel":
            return types.ByteLevel(
                add_prefix_space=node.boolean("add_prefix_space"),
                trim_offsets=node.boolean("trim_offsets"),
                use_regex=node.boolean("use_regex", True),
            )
        case "Digits":
            return types.Digits(node.boolean("individual_digits"))
        case "Punctuation":
            return types.Punctuation(node.choice("behavior", _BEHAVIORS, "Isolated"))
        case "Whitespace":
            return types.Whitespace()
        case "WhitespaceSplit":
            return types.WhitespaceSplit()
        case "BertPreTokenizer":
            return types.BertPreTokenizer()
        case "CharDelimiterSplit":
            return types.CharDelimiterSplit(node.character("delimiter"))
        case "Metaspace":
            return _read_metaspace(node)
        case "UnicodeScripts":
            return types.UnicodeScripts()
        case "FixedLength":
            return types.FixedLength(node.integer("length", 5))
    raise node.fail(f"unknown pre-tokenizer type {kind!r}")


def _read_metaspace(node: Node) -> types.Metaspace:
    """Also the fields of older files: `add_prefix_space` (false must agree with the scheme) and `str_rep` (ignored)."""
    scheme = node.choice("prepend_scheme", ("always", "never", "first"), "always")
    if node.value.get("add_prefix_space") is not None and not node.boolean("add_prefix_space") and scheme != "never":
        raise node.fail('"add_prefix_space": false contradicts the prepend_scheme; set "prepend_scheme": "never"')
    if node.value.get("str_rep") is not None:
        node.string("str_rep")
    split = True if node.value.get("split") is None else node.boolean("split")
    return types.Metaspace(node.character("replacement"), scheme, split)
