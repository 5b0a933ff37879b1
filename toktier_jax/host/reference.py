"""The reference engines behind one Protocol: `tokenizers.Tokenizer` and `tiktoken.Encoding`. Imported only when used.

This module holds no JAX and no algorithm: it asks, and turns answers into arrays and failures into SpecError.
"""

from __future__ import annotations

import copy
import importlib.metadata
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from toktier_jax.errors import SpecError
from toktier_jax.host.utf8 import characters
from toktier_jax.spec.source import Source

Special = Literal["parse", "text"]
T = TypeVar("T")

_LONG = 1 << 12
"""Characters from which on a text is worth a batch of its own."""


class RawEncoding(NamedTuple):
    """What an engine answers.

    ids      int32 [n]
    offsets  int64 [n, 2]  characters, as the reference gives them
    words    int64 [n]     the number of the piece that the token belongs to, -1 for ids of the template and padding
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray


class Reference(Protocol):
    """The engine whose answers define what is right. Texts are valid (no lone surrogates)."""

    version: str
    shown: Any

    def unlimited(self) -> Reference:
        """The same without the file's truncation and padding."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool, special: Special) -> RawEncoding:
        """As the file says: with template, trimming, truncation and padding."""
        ...

    def encode_bare(self, text: str, *, special: Special) -> RawEncoding:
        """The text alone: no template, no trimming, no truncation, no padding."""
        ...

    def encode_many(self, texts: Sequence[str], *, special: Special) -> list[np.ndarray]:
        """Ids alone of the texts alone, int32 [n] each."""
        ...

    def normalize(self, text: str) -> str:
        """The text as the model's pieces are cut from it."""
        ...

    def pre_tokenize(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        """Pieces of normalized text, as the reference spells them, with their character offsets."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of ids, U+FFFD included."""
        ...


def load_reference(source: Source) -> Reference:
    """The engine of `source`. Raises SpecError where the engine refuses the file."""
    return TiktokenReference(source.data) if source.kind == "tiktoken" else TokenizersReference(source.tokenizer_json)


class TokenizersReference:
    """A `tokenizers.Tokenizer` and copies of it that share its model, without what `encode_bare` leaves out."""

    def __init__(self, document: bytes) -> None:
        import tokenizers

        self.version = f"tokenizers {tokenizers.__version__}"
        self._document = document
        self._whole = _load(document)
        self._limited = True
        self._copies: dict[tuple[bool, Special], Any] = {}
        self._speller: Any = None
        self._lock = threading.Lock()

    @cached_property
    def shown(self) -> Any:
        """One of its own for the caller: copies share their parts, and what is set on those would change ids here."""
        return _load(self._document)

    def unlimited(self) -> TokenizersReference:
        """The same without truncation and padding."""
        other = copy.copy(self)
        other._limited, other._copies, other._speller, other._lock = False, {}, None, threading.Lock()
        return other

    def encode(self, text: str, *, add_special_tokens: bool, special: Special) -> RawEncoding:
        return _one(self._engine(False, special), text, add_special_tokens)

    def encode_bare(self, text: str, *, special: Special) -> RawEncoding:
        return _one(self._engine(True, special), text, False)

    def spell(self, text: str, *, special: Special) -> RawEncoding:
        """The text alone with a token for each byte of the normalized text, whose id is the byte.

        Added tokens keep a token of their own, with some id from 256.
        """
        with self._lock:
            if self._speller is None:
                self._speller = self._copy_speller()
            self._speller.encode_special_tokens = special == "text"
            return _raw(_ask("spell", lambda: self._speller.encode(text, add_special_tokens=False)))

    def encode_many(self, texts: Sequence[str], *, special: Special) -> list[np.ndarray]:
        engine = self._engine(True, special)
        found = _ask("encode", lambda: engine.encode_batch_fast(list(texts), add_special_tokens=False))
        return [np.array(encoding.ids, np.int32) for encoding in found]

    def normalize(self, text: str) -> str:
        normalizer = self._whole.normalizer
        return text if normalizer is None else _ask("normalize", lambda: normalizer.normalize_str(text))

    def pre_tokenize(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        splitter = self._whole.pre_tokenizer
        if splitter is None:
            return [(text, (0, len(text)))] if text else []
        return _ask("pre-tokenize", lambda: splitter.pre_tokenize_str(text))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return _ask("decode", lambda: self._whole.decode(list(ids), skip_special_tokens=skip_special_tokens))

    @property
    def normalizer(self) -> Any:
        """The `tokenizers` normalizer, or None."""
        return self._whole.normalizer

    def _engine(self, bare: bool, special: Special) -> Any:
        if (bare, special) not in self._copies:
            engine = self._copy(bare)
            engine.encode_special_tokens = special == "text"
            self._copies[bare, special] = engine
        return self._copies[bare, special]

    def _copy_speller(self) -> Any:
        from tokenizers import models

        vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
        return self._with_model(models.BPE(vocab, [], byte_fallback=True))

    def _with_model(self, model: Any) -> Any:
        """A copy with the same parts up to the model, and that model."""
        import tokenizers

        whole = self._whole
        made = tokenizers.Tokenizer(model)
        made.normalizer, made.pre_tokenizer, made.decoder = whole.normalizer, whole.pre_tokenizer, whole.decoder
        added = whole.get_added_tokens_decoder()
        made.add_tokens([added[index] for index in sorted(added)])
        return made

    def _copy(self, bare: bool) -> Any:
        whole, made = self._whole, self._with_model(self._whole.model)
        if bare:
            return made
        made.post_processor = whole.post_processor
        if self._limited and whole.truncation is not None:
            made.enable_truncation(**whole.truncation)
        if self._limited and whole.padding is not None:
            made.enable_padding(**whole.padding)
        return made


class TiktokenReference:
    """A `tiktoken.Encoding`. It has no offsets: those here are the whole characters that a token touches."""

    def __init__(self, encoding: Any) -> None:
        self.version = f"tiktoken {importlib.metadata.version('tiktoken')}"
        self.shown = encoding

    def unlimited(self) -> TiktokenReference:
        return self

    def encode(self, text: str, *, add_special_tokens: bool, special: Special) -> RawEncoding:
        return self.encode_bare(text, special=special)

    def encode_bare(self, text: str, *, special: Special) -> RawEncoding:
        ids = self.encode_many([text], special=special)[0]
        data = text.encode()
        lengths = [len(self.shown.decode_single_token_bytes(index)) for index in ids.tolist()]
        ends = np.cumsum(np.array([0, *lengths], np.int64))
        if ends[-1] != len(data):
            raise SpecError(
                f"{self.shown.name}: its pattern leaves out part of this text, so tokens have no place in it"
            )
        place = characters(data + b"\0")
        offsets = np.stack([place[ends[:-1]], place[ends[1:] - 1] + 1], axis=1)
        return RawEncoding(ids, offsets.astype(np.int64), np.arange(len(ids), dtype=np.int64))

    def encode_many(self, texts: Sequence[str], *, special: Special) -> list[np.ndarray]:
        if special == "text":
            found = [_ask("encode", lambda t=text: self.shown.encode_ordinary(t)) for text in texts]
        else:
            found = [_ask("encode", lambda t=text: self.shown.encode(t, allowed_special="all")) for text in texts]
        return [np.array(ids, np.int32) for ids in found]

    def normalize(self, text: str) -> str:
        return text

    def pre_tokenize(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        raise SpecError("tiktoken does not show its pieces")

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        special = self.shown._special_tokens.values() if skip_special_tokens else ()
        return _ask("decode", lambda: self.shown.decode([index for index in ids if index not in special]))


def _load(document: bytes) -> Any:
    import tokenizers

    return _ask("load the file", lambda: tokenizers.Tokenizer.from_buffer(document))


def _one(engine: Any, text: str, add_special_tokens: bool) -> RawEncoding:
    """One text. `encode` holds Python's lock all the time; a batch, which has its price, lets other threads run."""
    if len(text) < _LONG:
        return _raw(_ask("encode", lambda: engine.encode(text, add_special_tokens=add_special_tokens)))
    return _raw(_ask("encode", lambda: engine.encode_batch([text], add_special_tokens=add_special_tokens))[0])


def _raw(encoding: Any) -> RawEncoding:
    words = [-1 if word is None else word for word in encoding.word_ids]
    return RawEncoding(
        np.array(encoding.ids, np.int32),
        np.array(encoding.offsets, np.int64).reshape(-1, 2),
        np.array(words, np.int64),
    )


def _ask(what: str, question: Callable[[], T]) -> T:
    """`question()`, its failure as a SpecError: the file asks for something that the engine cannot do."""
    try:
        return question()
    except BaseException as error:  # a panic in Rust is no Exception
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise SpecError(f"the reference cannot {what}: {error}; the tokenizer file contradicts itself") from error
        raise
