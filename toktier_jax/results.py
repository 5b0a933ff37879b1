"""What a Tokenizer returns: Encoding, TokenBatch, Packed, Explain. Small frozen values and pytrees, no algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Int32

Route = Literal["xla", "reference"]


@dataclass(frozen=True, eq=False, repr=False)
class Encoding:
    """The ids of one text. Arrays are read-only; spans are computed when they are first asked for.

    ids              int32 [n], with template and padding as the file says
    char_spans       int64 [n, 2], the reference's offsets: characters, trimmed as the file says; template
                     ids are at (0, 0)
    byte_spans       int64 [n, 2], the source bytes of each token: untrimmed, ends never decreasing; a token inside a
                     character has its own bytes, an inserted token is empty, template ids are at (0, 0)
    route            where the ids come from
    fallback_reason  why the reference was used, None on the device path
    truncated        whether the file's truncation left out ids
    """

    ids: np.ndarray
    route: Route
    fallback_reason: str | None
    truncated: bool
    char_source: Callable[[], np.ndarray]
    byte_source: Callable[[], np.ndarray]

    @cached_property
    def char_spans(self) -> np.ndarray:
        return read_only(self.char_source())

    @cached_property
    def byte_spans(self) -> np.ndarray:
        return read_only(self.byte_source())

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        why = f", {self.fallback_reason!r}" if self.fallback_reason else ""
        return f"Encoding({len(self.ids)} ids, {self.route!r}{why}{', truncated' if self.truncated else ''})"

    def __reduce__(self) -> tuple[Any, ...]:
        known = (self.ids, self.route, self.fallback_reason, self.truncated)
        return _restore, (*known, self.char_spans, self.byte_spans)


def _restore(
    ids: np.ndarray, route: Route, reason: str | None, truncated: bool, chars: np.ndarray, data: np.ndarray
) -> Encoding:
    return Encoding(read_only(ids), route, reason, truncated, lambda: chars, lambda: data)


def read_only(array: np.ndarray) -> np.ndarray:
    """`array`, from now on not writeable."""
    array.flags.writeable = False
    return array


class TokenBatch(NamedTuple):
    """Rows of ids on the device; a pytree.

    ids      int32 [B, L], padded
    lengths  int32 [B], ids without padding
    status   int32 [B]: 0, or 1 where the row does not fit; then `lengths` is the true count and the row is -1
    """

    ids: Int32[jax.Array, "batch length"]
    lengths: Int32[jax.Array, " batch"]
    status: Int32[jax.Array, " batch"]


class Packed(NamedTuple):
    """Documents laid end to end in rows of one length; a pytree of int32 [R, L].

    ids          the documents' ids in order; a document that does not end with its row goes on in the next
    segment_ids  1, 2, … for the documents of a row, 0 for padding
    positions    0, 1, … in each document, going on where it goes on; 0 for padding
    """

    ids: Int32[jax.Array, "rows length"]
    segment_ids: Int32[jax.Array, "rows length"]
    positions: Int32[jax.Array, "rows length"]


@dataclass(frozen=True)
class Explain:
    """What runs where, and why.

    route      "xla" where texts are encoded on the device path, "reference" where none can be
    device     what the device path does
    reference  what only the reference does, each with its reason
    calls      texts encoded so far, by route
    fallbacks  texts that went to the reference although the tokenizer has a device path, by reason
    compiles   executables traced so far in this process, whoever needed them, by kind and capacity
    """

    name: str
    source: str
    fingerprint: str
    vocab_size: int
    route: Route
    device: tuple[str, ...]
    reference: tuple[str, ...]
    calls: dict[str, int]
    fallbacks: dict[str, int]
    compiles: dict[str, int]
    versions: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.name} ({self.source}, sha256 {self.fingerprint[:16]}…), {self.vocab_size:,} tokens",
            f"route      {self.route}",
            *(f"device     {item}" for item in self.device),
            *(f"reference  {item}" for item in self.reference),
            *(f"calls      {count:,} texts by {route}" for route, count in self.calls.items()),
            *(f"fallbacks  {count:,} texts: {reason}" for reason, count in self.fallbacks.items()),
            *(f"compiled   {name}: {count}" for name, count in self.compiles.items()),
            "versions   " + ", ".join(f"{name} {version}" for name, version in self.versions.items()),
        ]
        return "\n".join(lines)
