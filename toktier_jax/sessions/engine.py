"""What sessions need of a tokenizer: a Protocol, and the values that pass through it. No algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

Way = Literal["anchors", "tokens", "black box", "full"]


class Window(NamedTuple):
    """Tokens of a text, or of a part of one, without template ids. Positions are bytes of what was passed.

    ids          int32 [n]
    byte_starts  int32 or int64 [n], never decreasing
    byte_ends    int32 or int64 [n], never decreasing
    anchors      int [k], rising: bytes where resuming and coupling are exact
    decided      tokens that end at or before this byte stay, whatever text follows; an anchor, or 0
    inner        int [m], rising: bytes where a token begins inside a piece, from which a window can be encoded that is
                 joined at a shared token (empty where the engine does not join so)
    where        by which encode, and where it is not the one that was wanted why, for `explain()`
    """

    ids: np.ndarray
    byte_starts: np.ndarray
    byte_ends: np.ndarray
    anchors: np.ndarray
    decided: int
    inner: np.ndarray = np.zeros(0, np.int32)
    where: str = "host"


@dataclass(frozen=True)
class EngineInfo:
    """What is constant of an engine.

    fingerprint    names the tokenizer; a stored session of another one is not used
    leading        template ids before the text
    longest_token  characters of the longest token; asked for where the way is "black box", and nowhere else
    longest_added  characters of the longest added token
    way            how a change is repaired. "anchors": windows begin and end where the compiled pattern has decided;
                   "tokens": as that, and inside a piece neighbours are joined where they share a token (adjacent
                   pairs); "black box": windows of characters that must agree with what is known; "full": not at all
    reason         why, in words
    """

    fingerprint: str
    leading: tuple[int, ...] = ()
    longest_token: int = 128
    longest_added: int = 128
    way: Way = "anchors"
    reason: str = ""


class Engine(Protocol):
    """The encode. Texts are valid UTF-8. All methods may be called from any thread.

    An engine need only have `info` and the first two methods (`completed`).
    """

    info: EngineInfo

    def encode_full(self, text: bytes) -> Window:
        """The whole text."""
        ...

    def encode_window(self, text: bytes, *, at_start: bool, at_end: bool) -> Window:
        """A part that begins at the text's start or where work may be resumed, and ends with it or anywhere.

        Tokens are those of a text that ends here; unless `at_end`, only those up to `decided` can be relied on.
        """
        ...

    def encode_reference(self, text: bytes) -> Window:
        """The whole text by the reference; without one, as `encode_full`."""
        return self.encode_full(text)

    def reference_ids(self, text: bytes) -> np.ndarray:
        """Only the ids of `encode_reference`, without what else that costs."""
        return self.encode_reference(text).ids

    def char_spans(self, text: bytes, window: Window) -> np.ndarray:
        """The reference's offsets of the tokens of a whole text, leading template ids included: int64 [n, 2].

        Without a reference, the whole characters that each token touches, and (0, 0) for template ids.
        """
        character = np.cumsum((np.frombuffer(text + b"\0", np.uint8) & 0xC0) != 0x80) - 1
        starts, last = character[window.byte_starts], np.maximum(window.byte_ends - 1, 0)
        ends = np.where(window.byte_ends > window.byte_starts, character[last] + 1, starts)
        before = np.zeros((len(self.info.leading), 2), np.int64)
        return np.concatenate([before, np.stack([starts, ends], axis=1).astype(np.int64)])


def is_engine(value: Any) -> bool:
    """Whether this has what every engine must have."""
    return all(hasattr(value, name) for name in ("info", "encode_full", "encode_window"))


def completed(engine: Any) -> Engine:
    """The engine; where it lacks methods that have a default, one that has them."""
    if all(hasattr(engine, name) for name in ("encode_reference", "reference_ids", "char_spans")):
        return engine
    return _Completed(engine)


class _Completed(Engine):
    def __init__(self, engine: Any) -> None:
        self.info: EngineInfo = engine.info
        self._engine = engine

    def encode_full(self, text: bytes) -> Window:
        return self._engine.encode_full(text)

    def encode_window(self, text: bytes, *, at_start: bool, at_end: bool) -> Window:
        return self._engine.encode_window(text, at_start=at_start, at_end=at_end)

    def encode_reference(self, text: bytes) -> Window:
        return getattr(self._engine, "encode_reference", super().encode_reference)(text)

    def reference_ids(self, text: bytes) -> np.ndarray:
        return getattr(self._engine, "reference_ids", super().reference_ids)(text)

    def char_spans(self, text: bytes, window: Window) -> np.ndarray:
        return getattr(self._engine, "char_spans", super().char_spans)(text, window)
