"""Reads the `post_processor` part of a tokenizer.json: ids round the text and trimming of offsets. Applies nothing."""

from __future__ import annotations

from dataclasses import replace

from toktier_jax.spec import types
from toktier_jax.spec.fields import Node


def read_post_processor(node: Node | None) -> tuple[types.PostProcessor, list[str]]:
    """The post-processor for a single text, and what of it only the reference can do."""
    result = types.PostProcessor()
    reasons: list[str] = []
    placed = False
    for step in _flatten(node):
        kind = step.kind()
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
    if not (isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and type(value[1]) is int):
        raise pair.fail(f"must be [token, id], not {value!r}")
    return value[1]


def _read_single(node: Node) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    specials = node.child("special_tokens")
    before: list[int] = []
    after: list[int] = []
    copies = 0
    for item in node.items("single"):
        if isinstance(item.value, dict) and "Sequence" in item.value:
            if item.child("Sequence").choice("id", ("A", "B")) == "B":
                raise item.fail("the template for one text uses the second text")
            copies += 1
        elif isinstance(item.value, dict) and "SpecialToken" in item.value:
            name = item.child("SpecialToken").string("id")
            token = specials.child(name) if name in specials.value else None
            if token is None:
                raise item.fail(f"the special token {name!r} is not in special_tokens")
            ids = [_read_id(part) for part in token.items("ids")]
            (after if copies else before).extend(ids)
        else:
            raise item.fail('must be {"Sequence": …} or {"SpecialToken": …}')
    return tuple(before), tuple(after), copies


def _read_id(node: Node) -> int:
    if type(node.value) is not int or not 0 <= node.value < 1 << 32:
        raise node.fail(f"must be an id, not {node.value!r}")
    return node.value
