"""The printable alphabet in which byte-level tokenizers spell bytes (GPT-2's): 33-126, 161-172, 174-255 stay."""

from __future__ import annotations

_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
CHAR_OF_BYTE = [chr(byte if byte in _PRINTABLE else 256 + _OTHERS.index(byte)) for byte in range(256)]
BYTE_OF_CHAR = {char: byte for byte, char in enumerate(CHAR_OF_BYTE)}


def spell(text: str) -> str:
    """The UTF-8 bytes of `text` in the alphabet."""
    return "".join(CHAR_OF_BYTE[byte] for byte in text.encode())
