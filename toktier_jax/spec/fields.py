"""Typed access to parsed JSON, with errors that name the key. No knowledge of tokenizers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toktier_jax.errors import SpecError

_MISSING: Any = object()
_U32 = 1 << 32
INT32 = 1 << 31
"""Ids are below it: arrays of ids are int32."""

VOCABULARY = 1 << 24
"""Ids of a vocabulary are below it: tables have a place for each, and the largest known ones end below 2^19."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Node:
    """A JSON value and the path that leads to it, such as `pre_tokenizer.pretokenizers[1]`."""

    value: Any
    path: str
    file: str

    def fail(self, problem: str) -> SpecError:
        return SpecError(f"{self.file}: {self.path or 'top level'}: {problem}")

    def child(self, key: str) -> Node:
        """The object under `key`; an error where it is missing or not an object."""
        node = self.get(key)
        if not isinstance(node.value, dict):
            raise node.fail(f"must be an object, not {_kind(node.value)}")
        return node

    def optional(self, key: str) -> Node | None:
        """The object under `key`, or None where it is missing or null."""
        return None if self.value.get(key) is None else self.child(key)

    def get(self, key: str, default: Any = _MISSING) -> Node:
        value = self.value.get(key, default)
        if value is _MISSING:
            raise self.fail(f"the key {key!r} is missing")
        return Node(value, f"{self.path}.{key}" if self.path else key, self.file)

    def items(self, key: str) -> Iterator[Node]:
        """The elements of the list under `key`."""
        node = self.get(key)
        if not isinstance(node.value, list):
            raise node.fail(f"must be a list, not {_kind(node.value)}")
        return (Node(value, f"{node.path}[{i}]", self.file) for i, value in enumerate(node.value))

    def string(self, key: str, default: Any = _MISSING) -> str:
        return self._typed(key, str, "a string", default)

    def boolean(self, key: str, default: Any = _MISSING) -> bool:
        return self._typed(key, bool, "true or false", default)

    def number(self, key: str, default: Any = _MISSING) -> float:
        value = self._typed(key, (int, float), "a number", default)
        return value if value is default else float(value)

    def integer(self, key: str, default: Any = _MISSING, *, below: int = _U32) -> int:
        """A count or an id: an integer from 0, below 2^32 unless said otherwise."""
        value = self._typed(key, int, "an integer", default)
        if value is not default and not 0 <= value < below:
            raise self.get(key).fail(f"must be from 0 to {below - 1}, not {value}")
        return value

    def character(self, key: str) -> str:
        value = self.string(key)
        if len(value) != 1:
            raise self.get(key).fail(f"must be one character, not {value!r}")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: Any = _MISSING) -> Any:
        value = self.string(key, default)
        if value not in choices:
            raise self.get(key).fail(f"unknown value {value!r}; expected one of {', '.join(choices)}")
        return value

    def kind(self) -> str:
        """The value of `type`, which every component of a tokenizer.json has."""
        if not isinstance(self.value, dict):
            raise self.fail(f"must be an object, not {_kind(self.value)}")
        return self.string("type")

    def _typed(self, key: str, types: Any, expected: str, default: Any) -> Any:
        node = self.get(key, default)
        if node.value is default and key not in self.value:
            return default
        wrong_bool = isinstance(node.value, bool) and types is not bool
        if wrong_bool or not isinstance(node.value, types):
            raise node.fail(f"must be {expected}, not {_kind(node.value)}")
        return node.value


def parse_object(data: bytes, file: str) -> Node:
    """Parses UTF-8 JSON whose top level is an object. Damage raises SpecError with the byte offset."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"{file}: not UTF-8 at byte {error.start}; is this a tokenizer file, and whole?") from error
    try:
        value = json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode())
        hint = "fetch the file again" if offset else "this is no tokenizer file"
        raise SpecError(f"{file}: damaged JSON at byte {offset}: {error.msg}; {hint}") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{file}: damaged JSON: {error}; fetch the file again") from error
    if not isinstance(value, dict):
        raise SpecError(f"{file}: the top level must be an object, not {_kind(value)}")
    if _SURROGATE.search(data):  # most are whole pairs
        _reject_surrogates(value, file)
    return Node(value, "", file)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _reject_surrogates(value: dict, file: str) -> None:
    for key, part in value.items():
        try:
            json.dumps({key: part}, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise SpecError(f"{file}: {key!r} holds a lone surrogate, which is no character") from error


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
