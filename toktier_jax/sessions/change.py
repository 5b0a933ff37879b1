"""One change of a record: what becomes what, in bytes, and what is to be done to its tokens. Decides nothing."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from toktier_jax.sessions.blocks import Tokens
from toktier_jax.sessions.engine import Engine, Window
from toktier_jax.sessions.record import Record


class Splice(NamedTuple):
    """How a change is made: tokens [lo, hi) of the record become `new`, those after move by `shift` bytes."""

    lo: int
    hi: int
    new: Tokens
    shift: int
    resume: int
    outcome: str


class Change(NamedTuple):
    """Bytes [start, stop) of the record's old text become `data`."""

    record: Record
    start: int
    stop: int
    data: bytes

    @property
    def shift(self) -> int:
        return len(self.data) - (self.stop - self.start)

    @property
    def length(self) -> int:
        """Bytes of the new text."""
        return self.record.text.byte_length + self.shift

    def text(self, begin: int, end: int) -> bytes:
        """Bytes [begin, end) of the new text; begin <= start and end >= start + len(data)."""
        old = self.record.text
        return b"".join(
            (old.bytes_between(begin, self.start), self.data, old.bytes_between(self.stop, end - self.shift))
        )

    def whole(self) -> bytes:
        return self.text(0, self.length)


def encode(change: Change, engine: Engine, begin: int, end: int, counts: Counter[str]) -> Window:
    """Bytes [begin, end) of the new text."""
    window = engine.encode_window(change.text(begin, end), at_start=begin == 0, at_end=end == change.length)
    if window.where != "host":
        counts[f"by the {window.where}"] += 1
    return window
