"""Caches of what is made for one model, such as its jitted functions: they live no longer than the model."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def per_model(make: Callable[..., T]) -> Callable[..., T]:
    """Caches `make(lm, *key)` while `lm` lives. `make` gets a weak proxy: what it returns must not keep the model."""
    made: weakref.WeakKeyDictionary[Any, dict[tuple[Any, ...], T]] = weakref.WeakKeyDictionary()

    @functools.wraps(make)
    def cached(lm: Any, *key: Any) -> T:
        known = made.setdefault(lm, {})
        if key not in known:
            known[key] = make(weakref.proxy(lm), *key)
        return known[key]

    return cached
