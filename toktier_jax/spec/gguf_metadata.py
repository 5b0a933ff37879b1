"""Parses the key-value part of a GGUF file, with the byte offset in every error. No tensors, no tokenizers.

The `gguf` package reads the same, but takes seconds for a vocabulary (it makes an array view of every string) and has
no offsets in its errors. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import struct
from typing import Any

from toktier_jax.errors import SpecError

MAGIC = b"GGUF"

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def read_metadata(data: bytes | memoryview, file: str = "GGUF") -> tuple[dict[str, Any], int]:
    """The metadata of a little-endian GGUF and the offset at which it ends.

    Strings are str; arrays are tuples of numbers or lists of str. Raises SpecError with `file` and the byte offset.
    """
    reader = _Reader(memoryview(data), file)
    magic = bytes(reader.view[:4])
    if magic != MAGIC:
        raise SpecError(f"{file}: the file begins with {magic!r}, not {MAGIC!r}")
    reader.at = 4
    version = reader.scalar(4)
    if version not in (2, 3):
        raise SpecError(f"{file}: GGUF version {version} at byte 4; versions 2 and 3 (little-endian) are known")
    reader.scalar(10)  # number of tensors
    count = reader.scalar(10)
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = reader.string()
        metadata[key] = reader.value(reader.scalar(4))
    return metadata, reader.at


class _Reader:
    def __init__(self, view: memoryview, file: str) -> None:
        self.view = view
        self.file = file
        self.at = 0

    def scalar(self, kind: int) -> Any:
        return self._unpack("<" + _SCALARS[kind])[0]

    def string(self) -> str:
        size = self.scalar(10)
        start = self.at
        self._need(size)
        self.at += size
        try:
            return str(self.view[start : self.at], "utf-8")
        except UnicodeDecodeError as error:
            raise SpecError(f"{self.file}: a string at byte {start} is not UTF-8") from error

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise SpecError(f"{self.file}: unknown value type {kind} at byte {self.at - 4}")
        return self.scalar(kind)

    def _array(self) -> Any:
        kind, count = self.scalar(4), self.scalar(10)
        if kind in _SCALARS:
            return self._unpack(f"<{count}{_SCALARS[kind]}")
        if count > len(self.view):
            self._need(count)
        return [self.value(kind) for _ in range(count)]

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        size = struct.calcsize(layout)
        self._need(size)
        self.at += size
        return struct.unpack_from(layout, self.view, self.at - size)

    def _need(self, size: int) -> None:
        if size > len(self.view) - self.at:
            raise SpecError(f"{self.file}: the file ends inside the metadata, at byte {len(self.view)}; fetch it again")
