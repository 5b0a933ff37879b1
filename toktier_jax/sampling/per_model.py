"""Caches of what is made for one model, such as its jitted functions: they live no longer than the model."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from toktier_jax.errors import InputError

T = TypeVar("T")


def per_model(make: Callable[..., T]) -> Callable[..., T]:
    """Caches `make(lm, *key)` while `lm` lives. `make` gets a weak proxy: what it returns must not keep the model.

    Models are told apart by identity, so that they need not be hashable. Raises InputError for one that cannot be
    referred to weakly.
    """
    made: dict[int, tuple[weakref.ref[Any], dict[tuple[Any, ...], T]]] = {}

    @functools.wraps(make)
    def cached(lm: Any, *key: Any) -> T:
        at = id(lm)
        if at not in made:
            try:  # the entry goes before another object can have the same id
                made[at] = weakref.ref(lm, lambda _: made.pop(at, None)), {}
            except TypeError:
                raise InputError(
                    f"the model is a {type(lm).__name__}, which cannot be referred to weakly: make it a plain class, "
                    '@dataclass(weakref_slot=True), or add "__weakref__" to its __slots__'
                ) from None
        known = made[at][1]
        if key not in known:
            known[key] = make(weakref.proxy(lm), *key)
        return known[key]

    return cached
