"""Where text in a Unicode normal form comes from, byte by byte. Asked of the reference's own normalizer.

The reference aligns a composed character with the first of the characters that it was composed of; the others belong to
nothing. Its offsets show that gap, our byte spans close it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from toktier_jax.host.utf8 import first_bytes

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


class Alignment(NamedTuple):
    """Normalized text and its origin, for each of its m bytes. Offsets are bytes of the original.

    data    the normalized text, UTF-8
    starts  int64 [m]
    ends    int64 [m]  with the characters that composition drew in: for byte spans
    gapped  int64 [m]  without them: for the reference's offsets

    A byte of a character that normalization kept comes from that byte; a byte of any other from the whole character.
    """

    data: bytes
    starts: np.ndarray
    ends: np.ndarray
    gapped: np.ndarray

    def original(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Spans int [n] of tokens of the normalized text, m > 0, as spans of the original: starts, ends, gapped ends.

        An inserted token stays empty, but for one between letters of a character that was taken apart: each of them
        has all of its bytes, and ends never grow less.
        """
        last = np.minimum(np.maximum(ends - 1, starts), len(self.ends) - 1)
        empty = ends <= starts
        starts = np.append(self.starts, self.ends[-1:])[starts]
        ends, gapped = (np.where(empty, starts, each[last]) for each in (self.ends, self.gapped))
        return starts, np.maximum.accumulate(ends), gapped


def align(form: Form, text: str) -> Alignment:
    """The normal form of `text`, a text without added tokens, and its origin. About 2 us a character."""
    normalized, offsets = _normalize(form, text)
    data, original = normalized.encode(), text.encode()
    bounds = np.append(first_bytes(original), len(original))
    first = first_bytes(data)
    lengths = np.diff(np.append(first, len(data)))
    kept = _code_points(normalized) == _code_points(text)[offsets[:, 0]]
    until = np.append(offsets[1:, 0], len(bounds) - 1)
    spans = (bounds[offsets[:, 0]], bounds[np.maximum(offsets[:, 1], until)], bounds[offsets[:, 1]])
    starts, ends, gapped = (np.repeat(each, lengths) for each in spans)
    kept = np.repeat(kept, lengths)
    own = starts + np.arange(len(data)) - np.repeat(first, lengths)
    last = own + 1 == gapped
    return Alignment(
        data=data,
        starts=np.where(kept, own, starts),
        ends=np.where(kept & ~last, own + 1, ends),
        gapped=np.where(kept, own + 1, gapped),
    )


def absorbed(form: Form, text: str) -> np.ndarray:
    """bool [characters of text]: composition draws the character into the one before it."""
    import tokenizers

    if getattr(tokenizers.normalizers, form)().normalize_str(text) == text:
        return np.zeros(len(text), bool)
    _, offsets = _normalize(form, text)
    covered = np.zeros(len(text) + 1, np.int64)
    np.add.at(covered, offsets[:, 0], 1)
    np.add.at(covered, offsets[:, 1], -1)
    return np.cumsum(covered)[:-1] == 0


def _normalize(form: Form, text: str) -> tuple[str, np.ndarray]:
    """The normalized text and the reference's character offsets int64 [c, 2] of its c characters."""
    import tokenizers

    pieces = tokenizers.PreTokenizedString(text)
    pieces.normalize(getattr(tokenizers.normalizers, form)().normalize)
    try:
        pieces.tokenize(lambda normalized: _one_token_a_character(tokenizers.Token, normalized))
    except Exception as error:
        if str(error).startswith("KeyboardInterrupt"):  # what the library makes of one in the callback
            raise KeyboardInterrupt from None
        raise
    offsets = np.array(pieces.to_encoding().offsets, np.int64).reshape(-1, 2)
    return "".join(part for part, _, _ in pieces.get_splits()), offsets


def _one_token_a_character(token: Any, normalized: str) -> list[Any]:
    ends = np.cumsum([len(character.encode()) for character in normalized]).tolist()
    return [token(0, "", span) for span in zip([0, *ends], ends, strict=False)]


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)
