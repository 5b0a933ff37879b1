"""Byte spans for BPE files whose offsets the reference counts wrong: its first step, done again with the places kept.

The reference drops characters without an id, and counts the bytes of a token's prefix and suffix under byte fallback.
What it counted wrong moves all that follows in a piece. So the pieces are spelled byte by byte, by a copy of the
tokenizer that falls back to bytes for everything, which gives the place of each byte; then the symbols with which the
reference begins are made as it makes them, and each token takes as many of them as its string has characters.
Slow (some microseconds a byte), and an independent check of the faster way in spans.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from toktier_jax.errors import SpecError
from toktier_jax.host.reference import RawEncoding
from toktier_jax.host.spans import spells_prefix
from toktier_jax.host.utf8 import first_bytes
from toktier_jax.host.vocabulary import Spelling, Vocabulary, byte_token
from toktier_jax.spec import types
from toktier_jax.spec.byte_alphabet import ALPHABET, BYTES

Span = tuple[int, int]


class Symbol(NamedTuple):
    """What merging begins with: a token's string and the bytes of the text that it comes from."""

    string: str
    span: Span


def replay_spans(
    text: str,
    raw: RawEncoding,
    spelled: RawEncoding,
    model: types.BPE,
    vocabulary: Vocabulary,
    gaps: np.ndarray | None,
    normalize: Callable[[str], str],
) -> np.ndarray:
    """Source bytes int64 [n, 2] of the tokens `raw`; `spelled` has a token with the id of the byte for each byte.

    `gaps` and `normalize` as for spans.byte_spans.
    """
    data = text.encode()
    bounds = [*first_bytes(data).tolist(), len(data)]
    closed = list(bounds)
    for i in np.flatnonzero(gaps)[::-1].tolist() if gaps is not None else []:
        closed[i] = closed[i + 1]
    bytelike = {content for content in vocabulary.contents.values() if byte_token(content) is not None}
    words: dict[int, _Word] = {}
    for number, ids, places in _words(spelled):
        if _is_added(ids, places, bytelike):
            words[number] = _Word("", [(bounds[places[0][0]], closed[places[0][1]])], 0)
            continue
        piece = bytes(ids).decode()
        whole = [(bounds[a], closed[b]) for byte, (a, b) in zip(ids, places, strict=True) if byte & 0xC0 != 0x80]
        inserted = _inserted(piece, whole, data, vocabulary.spelling, normalize)
        whole[:inserted] = [(low, low) for low, _ in whole[:inserted]]
        words[number] = _Word(piece, whole, inserted)
    if vocabulary.spelling.byte_level:
        _give_own_bytes(list(words.values()), data)
    strings = {index: token for token, index in model.vocab.items()}  # an added token can be decoded to another string
    out = np.zeros((len(raw.ids), 2), np.int64)
    edges = np.flatnonzero(np.diff(raw.words, prepend=-1, append=-1)).tolist()
    for first, last in pairwise(edges):
        piece, characters, _ = words[int(raw.words[first])]
        if not piece:
            out[first] = characters[0]
            continue
        symbols = _symbols(piece, characters, model, data)
        tokens = [strings[index] for index in raw.ids[first:last].tolist()]
        if model.ignore_merges and piece in model.vocab:
            symbols = [Symbol(piece, (characters[0][0], characters[-1][1]))]
        out[first:last] = _assign(tokens, symbols, len(model.continuing_subword_prefix))
    out[:, 1] = np.maximum.accumulate(out[:, 1])  # unknown characters can come after bytes that follow them
    return out


class _Word(NamedTuple):
    """A piece with the bytes of the text that each of its characters comes from, of which the first are inserted; ""
    with those of the whole for an added token."""

    piece: str
    characters: list[Span]
    inserted: int


def _words(spelled: RawEncoding) -> Iterator[tuple[int, list[int], list[Span]]]:
    """The number of each piece, and the ids and character offsets of its bytes."""
    for a, b in pairwise(np.flatnonzero(np.diff(spelled.words, prepend=-1, append=-1)).tolist()):
        yield int(spelled.words[a]), spelled.ids[a:b].tolist(), [(s, e) for s, e in spelled.offsets[a:b].tolist()]


def _is_added(ids: list[int], places: list[Span], bytelike: set[str]) -> bool:
    """Whether a piece of the speller is an added token; one that is spelled like a byte has that one's id."""
    content = f"<0x{ids[0]:02X}>"
    alone = len(ids) == 1 and content in bytelike
    return ids[0] >= 256 or (alone and (ids[0] >= 0x80 or places[0][1] - places[0][0] >= len(content)))


def _give_own_bytes(words: list[_Word], data: bytes) -> None:
    """Where the alphabet spells a character byte by byte, each letter gets its own, also if a piece ends inside; in
    place."""
    letters = [(word, at) for word in words for at in range(word.inserted, len(word.piece))]
    for (low, high), group in groupby(letters, key=lambda letter: letter[0].characters[letter[1]]):
        same = list(group)
        if bytes(BYTES.get(word.piece[at], 0) for word, at in same) == data[low:high]:
            for place, (word, at) in enumerate(same, low):
                word.characters[at] = (place, place + 1)


def _inserted(
    piece: str, whole: list[Span], data: bytes, spelling: Spelling, normalize: Callable[[str], str]
) -> int:
    """How many characters at the start of a piece are a prefix, which has the place of the character behind it."""
    space = ALPHABET[ord(" ")] if spelling.byte_level else spelling.space
    prefix = spelling.inserted.decode().replace(" ", space)
    count = len(prefix)
    if not count or not piece.startswith(prefix) or len(set(whole[: count + 1])) > 1:
        return 0
    source = data[slice(*whole[0])]
    alone = len(piece) == count
    return 0 if alone and (source == prefix.encode() or spells_prefix(source, spelling, normalize)) else count


def _symbols(piece: str, places: list[Span], model: types.BPE, data: bytes) -> list[Symbol]:
    """The symbols of a piece in the order in which the reference lists them: unknown ones after byte fallback."""
    symbols: list[Symbol] = []
    unknown: Span | None = None
    for i, (letter, place) in enumerate(zip(piece, places, strict=True)):
        string = (model.continuing_subword_prefix if i else "") + letter
        string += model.end_of_word_suffix if i == len(piece) - 1 else ""
        fallback = [f"<0x{byte:02X}>" for byte in string.encode()] if model.byte_fallback else []
        if string in model.vocab:
            if unknown:
                symbols.append(Symbol(model.unk_token or "", unknown))
                unknown = None
            symbols.append(Symbol(string, place))
        elif fallback and all(code in model.vocab for code in fallback):
            own = string == letter and letter.encode() == data[slice(*place)]
            symbols += [
                Symbol(code, (place[0] + j, place[0] + j + 1) if own else place) for j, code in enumerate(fallback)
            ]
        elif model.unk_token is not None:
            if unknown and not model.fuse_unk:
                symbols.append(Symbol(model.unk_token, unknown))
                unknown = None
            unknown = (unknown or place)[0], place[1]
    if unknown:
        symbols.append(Symbol(model.unk_token or "", unknown))
    return symbols


def _assign(tokens: list[str], symbols: list[Symbol], prefix: int) -> list[Span]:
    """The bytes of each token: those of the symbols that it was merged from."""
    spans: list[Span] = []
    at = 0
    for token in tokens:
        first, length = at, 0
        while at < len(symbols) and (at == first or length < len(token)):
            length += len(symbols[at].string) - (prefix if at > first else 0)
            at += 1
        if length != len(token):
            raise SpecError(
                f"byte spans: the reference's token {token!r} is not made of the symbols that it begins with"
            )
        spans.append((symbols[first].span[0], max(symbol.span[1] for symbol in symbols[first:at])))
    return spans
