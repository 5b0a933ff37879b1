"""The pre-tokenizers of a tokenizer.json on a list of `Piece`s, one function a type."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tokenizers import pre_tokenizers

from . import characters
from .byte_alphabet import spell
from .normalized import Piece
from .pattern import Matches, each_character, find_matches

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def pre_tokenize(pieces: list[Piece], part: dict[str, Any] | None) -> list[Piece]:
    """The pieces after the `pre_tokenizer` of a tokenizer.json; empty ones are dropped after every step of it."""
    match part:
        case None:
            return pieces
        case {"type": "Sequence", "pretokenizers": parts}:
            for each in parts:
                pieces = pre_tokenize(pieces, each)
            return pieces
        case {"type": "BertPreTokenizer"}:
            spaced = _each(pieces, lambda piece: _cut(piece, _matches(characters.is_space, piece), "Removed"))
            return _each(spaced, lambda piece: _cut(piece, _matches(characters.is_punctuation, piece), "Isolated"))
    return _each(pieces, lambda piece: _step(piece, part))


def _each(pieces: list[Piece], function: Callable[[Piece], list[Piece]]) -> list[Piece]:
    return [new for piece in pieces for new in function(piece) if new.text]


def _step(piece: Piece, part: dict[str, Any]) -> list[Piece]:
    match part:
        case {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}:
            matches = [(span, matched != invert) for span, matched in find_matches(pattern, piece.string)]
            return _cut(piece, matches, behavior)
        case {"type": "ByteLevel"}:
            if part["add_prefix_space"] and not piece.text.startswith(b" "):
                piece.prepend(" ")
            split = part.get("use_regex", True)
            pieces = _cut(piece, find_matches({"Regex": GPT2}, piece.string), "Isolated") if split else [piece]
            for each in pieces:
                each.map(spell)
            return pieces
        case {"type": "Digits", "individual_digits": individual}:
            return _cut(piece, _matches(characters.is_numeric, piece), "Isolated" if individual else "Contiguous")
        case {"type": "Punctuation"}:
            return _cut(piece, _matches(characters.is_punctuation, piece), part.get("behavior", "Isolated"))
        case {"type": "Whitespace"}:
            regex = _runs(piece.string)
            return [piece.slice(*span) for span, matched in regex if matched]
        case {"type": "WhitespaceSplit"}:
            return _cut(piece, _matches(characters.is_space, piece), "Removed")
        case {"type": "CharDelimiterSplit", "delimiter": delimiter}:
            return _cut(piece, _matches(lambda char: char == delimiter, piece), "Removed")
        case {"type": "Metaspace"}:
            return _metaspace(piece, part)
        case {"type": "UnicodeScripts"}:
            return _scripts(piece)
        case {"type": "FixedLength", "length": length}:
            ends = [len(piece.string[:i].encode()) for i in range(0, len(piece.string), length)] + [len(piece.text)]
            return [piece.slice(start, stop) for start, stop in itertools.pairwise(ends)]
        case _:
            raise KeyError(part["type"])


def _matches(predicate: Callable[[str], bool], piece: Piece) -> Matches:
    return each_character(predicate, piece.string)


def _cut(piece: Piece, matches: Matches, behavior: str) -> list[Piece]:
    """What becomes of matches and gaps. "Merged" joins a match to one neighbour unless that one is a match too."""
    spans = list[tuple[int, int]]()
    before = False  # whether the one before was a match; "Contiguous" and the merges look at it
    for (start, stop), matched in reversed(matches) if behavior == "MergedWithNext" else matches:
        joins = matched == before if behavior == "Contiguous" else matched and not before
        if behavior == "Removed":
            spans += [] if matched else [(start, stop)]
        elif behavior != "Isolated" and joins and spans:
            spans[-1] = min(start, spans[-1][0]), max(stop, spans[-1][1])
        else:
            spans.append((start, stop))
        before = matched
    return [piece.slice(start, stop) for start, stop in sorted(spans)]


def _runs(text: str) -> Matches:
    r"""`\w+|[^\w\s]+` of Rust's regex crate, whose word characters are not Oniguruma's."""
    matches, start, at = Matches(), 0, 0
    kinds = ["space" if characters.is_space(c) else "word" if characters.is_word(c) else "other" for c in text]
    for i, char in enumerate(text):
        at += len(char.encode())
        if i + 1 == len(text) or kinds[i + 1] != kinds[i]:
            matches.append(((start, at), kinds[i] != "space"))
            start = at
    return matches


def _metaspace(piece: Piece, part: dict[str, Any]) -> list[Piece]:
    replacement, scheme = part["replacement"], part.get("prepend_scheme", "always")
    piece.replace(each_character(lambda char: char == " ", piece.string), replacement)
    wanted = scheme == "always" or (scheme == "first" and piece.shift == 0)
    if wanted and not piece.string.startswith(replacement):
        piece.prepend(replacement)
    if not part.get("split", True):
        return [piece]
    return _cut(piece, each_character(lambda char: char == replacement, piece.string), "MergedWithNext")


def _scripts(piece: Piece) -> list[Piece]:
    """A cut before each character whose script differs from the last one with a script. Leading spaces are lost."""
    cuts, last, at = list[int](), None, 0
    for char in piece.string:
        if char != " " and (last is None or not _same_script(last, char)):
            cuts.append(at)
        last = last if char == " " else char
        at += len(char.encode())
    return [piece.slice(start, stop) for start, stop in itertools.pairwise([*cuts, at])]


def _same_script(left: str, right: str) -> bool:
    return len(pre_tokenizers.UnicodeScripts().pre_tokenize_str(left + right)) == 1
