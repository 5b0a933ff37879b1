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
        for name in LIMITS:
            object.__setattr__(self, name, check_number(name, getattr(self, name)))
        if is_whole(self.heal_tokens):
            object.__setattr__(self, "heal_tokens", int(self.heal_tokens))
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


LIMITS: dict[str, tuple[float, float]] = {
    "max_tokens": (1, 1 << 24),
    "temperature": (0.0, 1e6),
    "top_k": (0, 1 << 30),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "seed": (-(1 << 63), (1 << 63) - 1),
    "logprobs": (0, 1 << 10),
    "repetition_penalty": (1e-6, 1e6),
}
"""The least and the largest value of each number; the whole ones are those with whole limits."""

LEAST_TEMPERATURE = 1e-6
"""A positive temperature below it counts as it: divided by less, float32 logits overflow and a draw means nothing."""


def check_number(name: str, value: Any, limits: tuple[float, float] | None = None) -> Any:
    """`value` as Python's int or float. Raises InputError unless it is a number within `limits`, or those of LIMITS."""
    low, high = LIMITS[name] if limits is None else limits
    whole = isinstance(low, int)
    kind = int | np.integer if whole else int | float | np.integer | np.floating
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
        raise InputError(f"{name}={value!r}: expected a {'whole ' if whole else ''}number from {low} to {high}")
    return int(value) if whole else float(value)


def divisor(temperature: float) -> float:
    """What logits are divided by: 1 where the draw is greedy."""
    return max(float(temperature), LEAST_TEMPERATURE) if temperature else 1.0
