"""Frozen dataclasses of plan.py and spec/types.py to JSON values and back, by name. Nothing else is accepted."""

from __future__ import annotations

import dataclasses
from typing import Any

from toktier_jax import plan
from toktier_jax.spec import types as spec

_TYPES = {
    value.__name__: value
    for module in (plan, spec)
    for value in vars(module).values()
    if isinstance(value, type) and dataclasses.is_dataclass(value)
}


def to_json(value: Any) -> Any:
    """A JSON value for a plan or a spec part: dataclasses, tuples, lists, dicts with string keys and scalars."""
    if dataclasses.is_dataclass(value) and type(value).__name__ in _TYPES:
        fields = {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"@": type(value).__name__, **fields}
    if isinstance(value, tuple):
        return {"@": "tuple", "items": [to_json(item) for item in value]}
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {"@": "dict", "items": {key: to_json(item) for key, item in value.items()}}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"cannot store a {type(value).__name__} in the cache")


def from_json(value: Any) -> Any:
    """The inverse of `to_json`. Raises KeyError for a type that this version does not know."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value["@"] == "tuple":
        return tuple(from_json(item) for item in value["items"])
    if value["@"] == "dict":
        return {key: from_json(item) for key, item in value["items"].items()}
    return _TYPES[value["@"]](**{key: from_json(item) for key, item in value.items() if key != "@"})
