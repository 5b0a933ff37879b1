"""A stand-in engine in numpy: words, digits in threes, runs of spaces; ids by position of letters. No JAX, no model.

Its pre-tokenizer has the traits that make repair hard: a phase that a long run carries, and a look-ahead past white
space (the last space of a run belongs to the word behind it).
"""

from __future__ import annotations

import re

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.sessions import EngineInfo, Window
from toktier_jax.sessions.engine import Engine

_PIECE = re.compile(rb"[0-9]{1,3}| ?[a-z]+|\n+| +(?! [a-z]|[a-z])| |<\|x\|>|(?:[\xc2-\xf4][\x80-\xbf]+)+|[\x00-\x7f]")
_ADDED = b"<|x|>"


class StandIn(Engine):
    """`broken`: a string whose ids are wrong everywhere but in the reference. `refused`: one that windows refuse."""

    def __init__(
        self, *, way: str = "anchors", broken: bytes = b"", refused: bytes = b"", fingerprint: str = "stand-in"
    ) -> None:
        self.info = EngineInfo(fingerprint, (7,), 4, 5, way, "stand-in")  # type: ignore[arg-type]  # a literal
        self.broken, self.refused = broken, refused
        self.windows: list[int] = []

    def encode_full(self, text: bytes) -> Window:
        return self._encode(text, self.broken)

    def encode_window(self, text: bytes, *, at_start: bool, at_end: bool) -> Window:
        self.windows.append(len(text))
        if self.refused and self.refused in text:
            raise UnsupportedError("refused here")
        return self._encode(text, self.broken)

    def encode_reference(self, text: bytes) -> Window:
        return self._encode(text, b"")

    def char_spans(self, text: bytes, window: Window) -> np.ndarray:
        character = np.cumsum((np.frombuffer(text + b"\0", np.uint8) & 0xC0) != 0x80) - 1
        last = np.maximum(window.byte_ends - 1, 0)
        spans = np.stack([character[window.byte_starts], character[last] + 1], axis=1)
        return np.concatenate([np.zeros((1, 2), np.int64), spans.astype(np.int64)])

    def _encode(self, text: bytes, broken: bytes) -> Window:
        ids: list[int] = []
        starts: list[int] = []
        pieces = self._pieces(text)
        for start, stop in pieces:
            if text[start:stop] == _ADDED:
                ids.append(1)
                starts.append(start)
                continue
            for at in range(start, stop, 4):  # tokens of four bytes
                value = int.from_bytes(text[at : min(at + 4, stop)], "big") % 1_000_003 + 2
                ids.append(value + (broken != b"" and text[start:stop].strip() == broken))
                starts.append(at)
        ends = [*starts[1:], len(text)] if starts else []
        anchors = np.array([start for start, _ in pieces], np.int32)
        return Window(
            np.array(ids, np.int32), np.array(starts, np.int64), np.array(ends, np.int64), anchors, self._decided(text)
        )

    def _decided(self, text: bytes) -> int:
        """The last piece start that what follows cannot move: before a tail that may still grow."""
        end = len(text)
        for size in range(1, len(_ADDED)):
            if text.endswith(_ADDED[:size]):
                end = len(text) - size
                break
        kept = [(start, text[start:stop].strip()) for start, stop in self._pieces(text) if stop <= end]
        while len(kept) > 1 and not kept[-1][1]:
            kept.pop()
        return kept[-1][0] if kept else 0

    def _pieces(self, text: bytes) -> list[tuple[int, int]]:
        return [match.span() for match in _PIECE.finditer(text)]


def expected(engine: StandIn, text: str) -> np.ndarray:
    return np.concatenate([[7], engine.encode_reference(text.encode()).ids]).astype(np.int32)
