"""The normalizers of a tokenizer.json on a `Piece`, one function a type."""

from __future__ import annotations

from typing import Any

from . import characters
from .byte_alphabet import spell
from .normalized import Change, Piece
from .pattern import find_matches

_CHINESE = (  # BERT's blocks, with the reference's 0x2B920 where BERT has 0x2B820
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_NMT_REMOVED = {*range(1, 9), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F}
_NMT_SPACE = {9, 10, 12, 13, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD}


def normalize(piece: Piece, part: dict[str, Any] | None) -> None:
    """Applies the `normalizer` of a tokenizer.json in place. Raises KeyError for a type that is not here."""
    match part:
        case None:
            pass
        case {"type": "Sequence", "normalizers": parts}:
            for each in parts:
                normalize(piece, each)
        case {"type": "NFC" | "NFD" | "NFKC" | "NFKD" as form}:
            piece.change(_unicode(piece.string, compatible="K" in form, compose=form.endswith("C")))
        case {"type": "Lowercase"}:
            piece.map(characters.lower)
        case {"type": "Strip"}:
            piece.strip(characters.is_space, left=part["strip_left"], right=part["strip_right"])
        case {"type": "StripAccents"}:
            piece.keep(lambda char: not characters.is_combining_mark(char))
        case {"type": "Replace", "pattern": pattern, "content": content}:
            piece.replace(find_matches(pattern, piece.string), content)
        case {"type": "Prepend", "prepend": text}:
            piece.prepend(text)
        case {"type": "Nmt"}:
            piece.keep(lambda char: ord(char) not in _NMT_REMOVED)
            piece.map(lambda char: " " if ord(char) in _NMT_SPACE else char)
        case {"type": "BertNormalizer"}:
            _bert(piece, part)
        case {"type": "ByteLevel"}:
            piece.map(spell)
        case _:
            raise KeyError(part["type"])


def _bert(piece: Piece, part: dict[str, Any]) -> None:
    if part["clean_text"]:
        piece.keep(lambda char: not characters.is_bert_control(char))
        piece.map(lambda char: " " if characters.is_space(char) else char)
    if part["handle_chinese_chars"]:
        new = list[Change]()
        for char in piece.string:
            chinese = any(low <= ord(char) <= high for low, high in _CHINESE)
            new += [(" ", 0), (char, 1), (" ", 1)] if chinese else [(char, 0)]
        piece.change(new)
    if part["lowercase"] if part["strip_accents"] is None else part["strip_accents"]:
        piece.change(_unicode(piece.string, compatible=False, compose=False))
        piece.keep(lambda char: not characters.is_nonspacing_mark(char))
    if part["lowercase"]:
        piece.map(characters.lower)


def _unicode(text: str, *, compatible: bool, compose: bool) -> list[Change]:
    """Canonical ordering (a stable sort of each run of marks), then composition: the changes, in the new order."""
    chars = [(c, int(i > 0)) for char in text for i, c in enumerate(characters.decomposed(char, compatible=compatible))]
    ordered, run = list[Change](), list[Change]()
    for char, change in chars:
        if characters.combining_class(char) == 0:
            ordered += sorted(run, key=lambda item: characters.combining_class(item[0]))
            run = []
            ordered.append((char, change))
        else:
            run.append((char, change))
    ordered += sorted(run, key=lambda item: characters.combining_class(item[0]))
    return _compose(ordered) if compose else ordered


def _compose(chars: list[Change]) -> list[Change]:
    """Joins each starter with the later characters that are not blocked from it; a join removes one character."""
    new, starter, last_class = list[Change](), None, 0
    for char, change in chars:
        mark = characters.combining_class(char)
        joined = None
        if starter is not None and (starter == len(new) - 1 or last_class < mark):
            joined = characters.composed(new[starter][0], char)
        if starter is not None and joined is not None:
            new[starter] = joined, new[starter][1] + change - 1
            continue
        if mark == 0:
            starter = len(new)
        last_class = mark
        new.append((char, change))
    return new
