"""Where characters are in UTF-8 bytes. Pure numpy; the device's own is ops/utf8.py."""

from __future__ import annotations

import numpy as np


def begins(data: bytes) -> np.ndarray:
    """bool [n]: a character begins at the byte."""
    return (np.frombuffer(data, np.uint8) & 0xC0) != 0x80


def first_bytes(data: bytes) -> np.ndarray:
    """int64 [k]: the first byte of each character."""
    return np.flatnonzero(begins(data))


def characters(data: bytes) -> np.ndarray:
    """int64 [n]: the number of the character that each byte belongs to."""
    return np.cumsum(begins(data)) - 1


def character_start(data: bytes, at: int) -> int:
    """The first byte of the character that byte `at` belongs to; the end of the data is one."""
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at -= 1
    return at
