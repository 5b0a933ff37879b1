"""What the reference says about a text, at two levels: the pieces that its model sees, and ids with offsets.

Pieces are int64 [m] in order: the length of a text piece in the units of the model (bytes for byte-level tokenizers,
else characters of the normalized text), or -1 - id for an added token. Neither engine shows its pieces, so they are
made visible: `tokenizers` by a copy of the tokenizer whose model spells every byte, `tiktoken` by a vocabulary in
which a claimed cut comes out whole if and only if it is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np


class Observation(NamedTuple):
    """Of a text with n tokens in m pieces.

    ids         int32 [n]
    char_spans  int64 [n, 2], None for tiktoken, which has none
    pieces      int64 [m], None where they cannot be seen
    """

    ids: np.ndarray
    char_spans: np.ndarray | None
    pieces: np.ndarray | None


class ReferenceFailed(Exception):
    """The reference itself raises, or panics, on this text."""


class Oracle(Protocol):
    """`blind` says why the piece level cannot be checked, or is None."""

    blind: str | None

    def observe(self, text: str, claimed: np.ndarray | None) -> Observation:
        """The reference's view of `text`. `claimed` are pieces to confirm: an engine that can only say whether they are
        right returns these, or an empty array. Raises ReferenceFailed."""
        ...


def oracle_for(reference: Any) -> Oracle:
    """The oracle of a `tokenizers.Tokenizer` or a `tiktoken.Encoding`."""
    tiktoken = type(reference).__module__.startswith("tiktoken")
    return TiktokenOracle(reference) if tiktoken else TokenizersOracle(reference)


class TokenizersOracle:
    """Pieces from a copy of the tokenizer that knows only the 256 bytes and falls back to them."""

    def __init__(self, reference: Any) -> None:
        self._reference = reference
        self._lengths = _token_lengths(reference)
        tokens = dict(sorted(reference.get_added_tokens_decoder().items()))
        self._is_added = np.array(list(tokens), np.int64)
        self._speller = _speller(reference, list(tokens.values()))
        self._added = np.zeros(self._speller.get_vocab_size(), np.int64)
        self.blind: str | None = None
        for id, token in tokens.items():
            spelled = self._speller.token_to_id(token.content)
            self._added[spelled] = id
            if spelled < 256:
                self.blind = f"the added token {token.content!r} looks like a byte"

    def observe(self, text: str, claimed: np.ndarray | None) -> Observation:
        encoding = _call(self._reference.encode, text)
        ids = np.array(encoding.ids, np.int32)
        spans = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        if claimed is not None and self._lengths is not None:
            pieces = self._from_words(encoding.word_ids, ids)
            if np.array_equal(pieces, claimed):  # else: a model token may have an added token's id; the speller decides
                return Observation(ids, spans, pieces)
        return Observation(ids, spans, None if self.blind else self._spelled(text))

    def _from_words(self, words: list[int | None], ids: np.ndarray) -> np.ndarray:
        assert self._lengths is not None
        in_text = np.array([word is not None for word in words], bool)
        ids, numbers = ids[in_text], np.array([word for word in words if word is not None], np.int64)
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        lengths = np.add.reduceat(self._lengths[ids], starts) if len(ids) else np.zeros(0, np.int64)
        alone = np.diff(starts, append=len(ids)) == 1
        return np.where(alone & np.isin(ids[starts], self._is_added), -1 - ids[starts].astype(np.int64), lengths)

    def _spelled(self, text: str) -> np.ndarray:
        encoding = _call(self._speller.encode, text)
        ids, words = np.array(encoding.ids, np.int64), np.array(encoding.word_ids, np.int64)
        # A unit of the model is a character: a continuation byte (0b10......) adds nothing to it.
        values = np.where(ids < 256, (ids & 0xC0) != 0x80, -1 - self._added[np.maximum(ids, 256) % len(self._added)])
        starts = np.flatnonzero(np.diff(words, prepend=-1))
        return np.add.reduceat(values, starts) if len(ids) else np.zeros(0, np.int64)


class TiktokenOracle:
    """Confirms claimed pieces: a vocabulary of all bytes, the pieces, and all pairs of neighbours.

    A whole piece that is a token is that token; any other ends where no two neighbouring tokens join. So a piece of the
    reference that holds several claimed pieces cannot come out as those, and one that cuts a claimed piece neither.
    """

    blind: str | None = None

    def __init__(self, reference: Any) -> None:
        self._reference = reference

    def observe(self, text: str, claimed: np.ndarray | None) -> Observation:
        ids = _call(lambda t: self._reference.encode(t, allowed_special="all"), text)
        pieces = None
        if claimed is not None:
            pieces = claimed if self._confirms(text.encode(), text, claimed) else np.zeros(0, np.int64)
        return Observation(np.array(ids, np.int32), None, pieces)

    def _confirms(self, data: bytes, text: str, claimed: np.ndarray) -> bool:
        import tiktoken

        special = {id: content for content, id in self._reference._special_tokens.items()}
        ranks = {bytes([byte]): byte for byte in range(256)}
        expected, before, at = list[int | str](), b"", 0
        for length in claimed.tolist():
            if length < 0:
                content = special.get(-1 - length, "")
                expected.append(content)
                at += len(content.encode())
                before = b""
                continue
            piece = data[at : at + length]
            expected.append(ranks.setdefault(piece, len(ranks)))
            if before:
                ranks.setdefault(before + piece, len(ranks))
            before = piece
            at += length
        if at != len(data):
            return False
        names = {content: len(ranks) + i for i, content in enumerate(special.values())}
        judge = tiktoken.Encoding(
            "judge", pat_str=self._reference._pat_str, mergeable_ranks=ranks, special_tokens=names
        )
        wanted = [names.get(each, -1) if isinstance(each, str) else each for each in expected]
        return judge.encode(text, allowed_special="all") == wanted


def _speller(reference: Any, added: list[Any]) -> Any:
    """The reference with another model: 256 tokens, each a byte, to which every character falls back."""
    import tokenizers

    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    speller = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [], byte_fallback=True))
    if reference.normalizer is not None:
        speller.normalizer = reference.normalizer
    if reference.pre_tokenizer is not None:
        speller.pre_tokenizer = reference.pre_tokenizer
    speller.add_special_tokens([token for token in added if token.special])
    speller.add_tokens([token for token in added if not token.special])
    speller.encode_special_tokens = reference.encode_special_tokens
    return speller


def _token_lengths(reference: Any) -> np.ndarray | None:
    """Bytes of each token by id, where the encoding itself shows every byte of every piece; else None."""
    from tokenizers import models, pre_tokenizers

    model = reference.model
    if not isinstance(model, models.BPE) or model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    if reference.truncation is not None or reference.padding is not None:
        return None
    steps = [part.__getstate__() for part in (reference.normalizer, reference.pre_tokenizer) if part is not None]
    vocab = reference.get_vocab(with_added_tokens=False)
    if b'"ByteLevel"' not in b" ".join(steps) or not all(char in vocab for char in pre_tokenizers.ByteLevel.alphabet()):
        return None
    top = max([*vocab.values(), *reference.get_added_tokens_decoder()])
    lengths = np.zeros(1 + top, np.int64)
    lengths[list(vocab.values())] = [len(token) for token in vocab]
    return lengths


def _call(encode: Callable[[str], Any], text: str) -> Any:
    try:
        return encode(text)
    except BaseException as error:  # a panic in Rust is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise ReferenceFailed(f"{type(error).__name__}: {error}") from None
