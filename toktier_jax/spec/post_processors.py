"""Reads the `post_processor` part of a tokenizer.json: ids round the text and trimming of offsets. Applies nothing."""

from __future__ import annotations

from dataclasses import replace

from toktier_jax.spec import types
from toktier_jax.spec.fields import INT32, Node


def read_post_processor(node: Node | None) -> tuple[types.PostProcessor, list[str]]:
    """The post-processor for a single text, and what of it only the reference can do."""
    result = types.PostProcessor()
    reasons: list[str] = []
    placed = False
    for step in _flatten(node):
        kind = step.kind()
        if kind == "ByteLevel":
            _ = step.boolean("add_prefix_space"), step.boolean("use_regex", True)
        if kind in ("ByteLevel", "RobertaProcessing") and step.boolean("trim_offsets"):
            if result.trim_offsets or placed:
                reasons.append("post_processor: offsets are trimmed twice, or after ids were added")
            result = replace(result, trim_offsets=True, add_prefix_space=step.boolean("add_prefix_space"))
        if kind == "ByteLevel":
            continue
        before, after, copies = _read_template(kind, step)
        if placed or copies != 1:
            reasons.append("post_processor: the text does not appear exactly once between added ids")
        placed = True
        result = replace(result, before=before, after=after)
    return result, reasons


def _flatten(node: Node | None) -> list[Node]:
    if node is None:
        return []
    if node.kind() == "Sequence":
        return [step for item in node.items("processors") for step in _flatten(item)]
    return [node]


def _read_template(kind: str, node: Node) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Ids before the text, ids after it, and how often the text appears."""
    match kind:
        case "BertProcessing" | "RobertaProcessing":
            return (_read_pair(node, "cls"),), (_read_pair(node, "sep"),), 1
        case "TemplateProcessing":
            return _read_single(node)
    raise node.fail(f"unknown post-processor type {kind!r}")


def _read_pair(node: Node, key: str) -> int:
    pair = node.get(key)
    value = pair.value
    if not (isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and _is_id(value[1])):
        raise pair.fail(f"must be [token, id], not {value!r}")
    return value[1]


def _read_single(node: Node) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    specials = node.child("special_tokens")
    ids = {name: _read_special(specials.child(name)) for name in specials.value}
    parts = [_read_item(item, ids) for item in node.items("single")]
    for item in node.items("pair"):
        _read_item(item, ids)
    texts = [i for i, part in enumerate(parts) if isinstance(part, str)]
    if "B" in parts:
        raise node.get("single").fail("the template for one text uses the second text")
    first = texts[0] if texts else len(parts)
    before, after = parts[:first], parts[first:]
    return _joined(before), _joined(after), len(texts)


def _joined(parts: list[tuple[int, ...] | str]) -> tuple[int, ...]:
    return tuple(index for part in parts if not isinstance(part, str) for index in part)


def _read_item(node: Node, ids: dict[str, tuple[int, ...]]) -> tuple[int, ...] | str:
    """The ids of a special token, or the name of a text."""
    value = node.value
    if isinstance(value, dict) and list(value) == ["Sequence"]:
        text = node.child("Sequence")
        text.integer("type_id")
        return text.choice("id", ("A", "B"))
    if isinstance(value, dict) and list(value) == ["SpecialToken"]:
        token = node.child("SpecialToken")
        token.integer("type_id")
        name = token.string("id")
        if name not in ids:
            raise node.fail(f"the special token {name!r} is not in special_tokens")
        return ids[name]
    raise node.fail('must be {"Sequence": …} or {"SpecialToken": …}')


def _read_special(node: Node) -> tuple[int, ...]:
    node.string("id")
    for part in node.items("tokens"):
        if not isinstance(part.value, str):
            raise part.fail(f"must be a string, not {part.value!r}")
    ids = [part.value if _is_id(part.value) else None for part in node.items("ids")]
    if None in ids:
        raise node.get("ids").fail("must be a list of ids")
    return tuple(index for index in ids if index is not None)


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < INT32
