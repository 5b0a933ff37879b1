"""Exact Hugging Face tokenization as JAX array programs. The public names; importing starts no JAX backend."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from toktier_jax.errors import (
    CapacityError,
    ClosedSession,
    InputError,
    RevisionConflict,
    SessionError,
    SpecError,
    ToktierError,
    UnknownSession,
    UnsupportedError,
)

if TYPE_CHECKING:
    from toktier_jax import models, ops, sampling
    from toktier_jax.results import Encoding, Explain, Packed, TokenBatch
    from toktier_jax.sessions import Patch, Policy, Session, SessionStore, ShadowVerifier
    from toktier_jax.tokenizer import Tokenizer

_MODULES = {
    "Tokenizer": "toktier_jax.tokenizer",
    "Encoding": "toktier_jax.results",
    "Explain": "toktier_jax.results",
    "Packed": "toktier_jax.results",
    "TokenBatch": "toktier_jax.results",
    "Patch": "toktier_jax.sessions",
    "Policy": "toktier_jax.sessions",
    "Session": "toktier_jax.sessions",
    "SessionStore": "toktier_jax.sessions",
    "ShadowVerifier": "toktier_jax.sessions",
}
_PACKAGES = ("models", "ops", "sampling")

__all__ = [
    "CapacityError",
    "ClosedSession",
    "Encoding",
    "Explain",
    "InputError",
    "Packed",
    "Patch",
    "Policy",
    "RevisionConflict",
    "Session",
    "SessionError",
    "SessionStore",
    "ShadowVerifier",
    "SpecError",
    "TokenBatch",
    "Tokenizer",
    "ToktierError",
    "UnknownSession",
    "UnsupportedError",
    "models",
    "ops",
    "sampling",
]


def __getattr__(name: str) -> Any:
    """Names that need JAX are imported when they are first used."""
    if name in _PACKAGES:
        return importlib.import_module(f"toktier_jax.{name}")
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'toktier_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
