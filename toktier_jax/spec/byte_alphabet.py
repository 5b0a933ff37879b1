"""GPT-2's byte alphabet: one printable character for each byte, as token strings of byte-level files are spelled.

Source: Radford et al., Language Models are Unsupervised Multitask Learners (2019), `bytes_to_unicode` of its code.
"""

from __future__ import annotations

_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}


def _alphabet() -> str:
    """Printable Latin-1 characters stand for themselves; the other bytes take U+0100 and on, in order."""
    spare = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in _PRINTABLE else next(spare)) for byte in range(256))


ALPHABET = _alphabet()
"""`ALPHABET[byte]` is the character of that byte; `ALPHABET[0x20]` is `Ġ`."""

BYTES = {character: byte for byte, character in enumerate(ALPHABET)}
"""The byte of each character of the alphabet."""

_FROM_LATIN = dict(enumerate(ALPHABET))
_NOT_LATIN = "\u0100"
_TO_LATIN = {code: BYTES.get(chr(code), _NOT_LATIN) for code in range(0x200)}


def to_alphabet(data: bytes) -> str:
    """`data` spelled in the alphabet."""
    return data.decode("latin-1").translate(_FROM_LATIN)


def from_alphabet(text: str) -> bytes | None:
    """The bytes that `text` spells, or None where a character is not in the alphabet."""
    try:
        return text.translate(_TO_LATIN).encode("latin-1")
    except UnicodeEncodeError:
        return None
