"""The arguments of `generate`, checked one by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from toktier_jax.errors import InputError
from toktier_jax.sampling.prefill import PrefixCache
from toktier_jax.sampling.prompt import EXACT, is_whole


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of `generate`."""

    lm: Any
    tok: Any
    prompt: Any
    boundary: str = EXACT
    max_tokens: int = 128
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    stop: Any = ()
    logprobs: int = 0
    constraint: Any = None
    repetition_penalty: float = 1.0
    heal_tokens: int | Literal["auto"] = 1
    context_start: int | None = None
    stop_ids: Sequence[int] | None = None
    reuse: PrefixCache | None = None

    def __post_init__(self) -> None:
        for name, low, high, whole in _LIMITS:
            value = getattr(self, name)
            kind = int | np.integer if whole else int | float | np.integer | np.floating
            if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
                raise InputError(f"{name}={value!r}: expected a {'whole ' if whole else ''}number from {low} to {high}")
        if self.repetition_penalty <= 0:
            raise InputError("repetition_penalty: expected a number above 0")
        stop_ids = self.stop_ids
        if stop_ids is not None and not (isinstance(stop_ids, Collection) and all(map(_is_id, stop_ids))):
            raise InputError(f"stop_ids={stop_ids!r}: expected a list of ids, () for none, or None")
        if self.reuse is not None and not isinstance(self.reuse, PrefixCache):
            raise InputError(f"reuse={self.reuse!r}: expected a PrefixCache or None")
        missing = [name for name in ("init", "mask", "advance") if not hasattr(self.constraint, name)]
        if self.constraint is not None and missing:
            raise InputError(f"constraint={self.constraint!r}: expected a Constraint; it has no {', '.join(missing)}")


def _is_id(value: Any) -> bool:
    return is_whole(value) and 0 <= value < 1 << 31


_LIMITS = (
    ("max_tokens", 1, 1 << 24, True),
    ("temperature", 0.0, 1e6, False),
    ("top_k", 0, 1 << 30, True),
    ("top_p", 0.0, 1.0, False),
    ("min_p", 0.0, 1.0, False),
    ("seed", -(1 << 63), (1 << 63) - 1, True),
    ("logprobs", 0, 1 << 10, True),
    ("repetition_penalty", 0.0, 1e6, False),
)
