"""From a piece to tokens: BPE, WordPiece and WordLevel, as their definitions say and with the reference's quirks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple


class Token(NamedTuple):
    """An id, its string, and the bytes of the piece that it covers, as the reference counts them."""

    id: int
    value: str
    start: int
    stop: int


Model = Callable[[str], list[Token]]


class EncodeError(Exception):
    """The reference raises for this text."""


def build(part: dict[str, Any]) -> Model:
    """The `model` of a tokenizer.json. Raises KeyError for Unigram."""
    kind = part.get("type") or ("BPE" if "merges" in part else "WordPiece")
    return {"BPE": _bpe, "WordPiece": _word_piece, "WordLevel": _word_level}[kind](part)


def _bpe(part: dict[str, Any]) -> Model:
    vocab: dict[str, int] = part["vocab"]
    value_of = {id: token for token, id in vocab.items()}
    prefix = part.get("continuing_subword_prefix") or ""
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in part["merges"]]
    joined = {(vocab[a], vocab[b]): (rank, vocab[a + b[len(prefix) :]]) for rank, (a, b) in enumerate(pairs)}

    def tokenize(text: str) -> list[Token]:
        if part.get("ignore_merges") and text in vocab:
            return [Token(vocab[text], text, 0, len(text.encode()))]
        symbols = bpe_symbols(part, text)
        merge(symbols, joined)
        tokens, at = list[Token](), 0
        for id, size in symbols:
            tokens.append(Token(id, value_of[id], at, at + size))
            at += size
        return tokens

    return tokenize


def bpe_symbols(part: dict[str, Any], text: str) -> list[tuple[int, int]]:
    """The (id, byte length) that merging starts from.

    Quirks: an unknown character waits until the next known one, so bytes of `byte_fallback` overtake it; the bytes are
    those of the character with its prefix and suffix; without `unk_token` a character vanishes and nothing holds its
    place, so later offsets of the piece move forward.
    """
    vocab, unk = part["vocab"], part.get("unk_token")
    symbols, waiting = list[tuple[int, int]](), 0
    for i, char in enumerate(text):
        size = len(char.encode())
        spelled = (part.get("continuing_subword_prefix") or "") * (i > 0) + char
        spelled += (part.get("end_of_word_suffix") or "") * (i == len(text) - 1)
        if spelled in vocab:
            symbols += [(vocab[unk], waiting)] if waiting else []
            symbols.append((vocab[spelled], size))
            waiting = 0
            continue
        fallback = [vocab.get(f"<0x{byte:02X}>") for byte in spelled.encode()] if part.get("byte_fallback") else [None]
        if None not in fallback:
            symbols += [(id, 1) for id in fallback]
        elif unk is not None:
            if unk not in vocab:
                raise EncodeError("the unk_token is not in the vocabulary")
            if waiting and not part.get("fuse_unk"):
                symbols.append((vocab[unk], waiting))
                waiting = 0
            waiting += size
    return symbols + ([(vocab[unk], waiting)] if waiting else [])


def merge(symbols: list[tuple[int, int]], joined: dict[tuple[int, int], tuple[int, int]]) -> None:
    """Merges in place: always the pair of lowest rank, the leftmost of those."""
    while True:
        ranks = [
            (joined[left[0], right[0]][0], i)
            for i, (left, right) in enumerate(itertools.pairwise(symbols))
            if (left[0], right[0]) in joined
        ]
        if not ranks:
            return
        _, i = min(ranks)
        (left, left_size), (right, right_size) = symbols[i], symbols[i + 1]
        symbols[i : i + 2] = [(joined[left, right][1], left_size + right_size)]


def _word_piece(part: dict[str, Any]) -> Model:
    vocab, prefix = part["vocab"], part["continuing_subword_prefix"]

    def unknown(text: str) -> list[Token]:
        if part["unk_token"] not in vocab:
            raise EncodeError("the unk_token is not in the vocabulary")
        return [Token(vocab[part["unk_token"]], part["unk_token"], 0, len(text.encode()))]

    def tokenize(text: str) -> list[Token]:
        if len(text) > part["max_input_chars_per_word"]:
            return unknown(text)
        tokens, start = list[Token](), 0
        while start < len(text):
            for stop in range(len(text), start, -1):
                value = prefix * (start > 0) + text[start:stop]
                if value in vocab:
                    tokens.append(Token(vocab[value], value, len(text[:start].encode()), len(text[:stop].encode())))
                    break
            else:
                return unknown(text)
            start = stop
        return tokens

    return tokenize


def _word_level(part: dict[str, Any]) -> Model:
    vocab, unk = part["vocab"], part["unk_token"]

    def tokenize(text: str) -> list[Token]:
        value = text if text in vocab else unk
        if value not in vocab:
            raise EncodeError("the unk_token is not in the vocabulary")
        return [Token(vocab[value], value, 0, len(text.encode()))]

    return tokenize
