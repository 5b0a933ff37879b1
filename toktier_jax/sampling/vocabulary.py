"""The vocabulary sorted by token bytes: tokens that extend a byte string are one contiguous range. No model, no text.

A mask is then `lo <= rank[token] < hi`, one fused comparison a logit, instead of a trie walk or a list of indices.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.spec.types import BytePairRanks, TokenizerSpec

END_MARKS = frozenset(
    (
        *("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>", "<|eom_id|>", "<|return|>"),
        *("</s>", "<eos>", "<end_of_turn>", "<|end_of_sentence|>", "<｜end▁of▁sentence｜>", "<|user|>", "[e~["),
    )
)
"""Contents of special tokens that end a text, known by name as in llama.cpp: files do not say it reliably."""


ENTANGLED = {
    "none": "joins tokens by spaces",
    "BPEDecoder": "writes the space behind a word only before another token",
    "CTC": "drops a token that repeats the one before",
}
"""Types of decoders under which a token's bytes depend on its neighbours, and how."""


class TokenizerLike(Protocol):
    """What sampling needs of a tokenizer; `toktier_jax.Tokenizer` has it."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added tokens included."""
        ...

    @property
    def spec(self) -> TokenizerSpec:
        """The file as plain values."""
        ...

    def encode(self, text: Any, add_special_tokens: bool = True, *args: Any, **options: Any) -> Any:
        """An Encoding: ids with the file's padding, and whether the file truncated them."""
        ...

    def count(self, text: Any, add_special_tokens: bool = True, *args: Any, **options: Any) -> int:
        """The number of ids that `encode` gives, padding not counted."""
        ...

    def decode_bytes(self, ids: Any) -> bytes:
        """The bytes of the text of `ids`, without loss."""
        ...

    def token_bytes(self, id: int) -> bytes:
        """The bytes that one token stands for. Raises InputError for an id out of range."""
        ...


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Token bytes by id, and in order.

    strings   bytes of each id after another one (WordPiece puts a space before a word); b"" for special tokens, ids
              without a token and tokens without bytes
    special   ids of special tokens: they have no bytes and are in no range
    added     ids of the other added tokens: they are in ranges, but no byte-pair merge makes them
    literals  content -> id of every added token, special or not
    """

    strings: tuple[bytes, ...]
    special: frozenset[int]
    added: frozenset[int]
    literals: dict[bytes, int]
    order: np.ndarray = field(init=False)
    ranks: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        order = sorted((i for i, string in enumerate(self.strings) if string), key=lambda i: (self.strings[i], i))
        ranks = np.full(len(self.strings), -1, np.int32)
        ranks[order] = np.arange(len(order), dtype=np.int32)
        object.__setattr__(self, "order", np.array(order, np.int32))  # int32 [n]: ids by their bytes
        object.__setattr__(self, "ranks", ranks)  # int32 [V]: place in `order`, -1 for none

    @cached_property
    def sorted_strings(self) -> list[bytes]:
        return [self.strings[i] for i in self.order]

    @cached_property
    def by_bytes(self) -> dict[bytes, tuple[int, ...]]:
        """Ids of each byte string; two ids can have equal bytes."""
        found: dict[bytes, list[int]] = {}
        for id, string in enumerate(self.strings):
            if string:
                found.setdefault(string, []).append(id)
        return {string: tuple(ids) for string, ids in found.items()}

    @cached_property
    def known(self) -> np.ndarray:
        """bool [V]: ids that stand for something, bytes or a special token; no other is ever drawn."""
        return np.array([bool(s) or id in self.special for id, s in enumerate(self.strings)], bool)

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return max(map(len, self.strings), default=0)

    @cached_property
    def lengths(self) -> np.ndarray:
        """int32 [V]: bytes of each token."""
        return np.array([len(string) for string in self.strings], np.int32)

    @cached_property
    def spans(self) -> np.ndarray:
        """int32 [V]: how many places of `order`, from each token's own on, hold tokens that begin with its bytes; 0 for
        those without bytes."""
        found, open_places = np.zeros(len(self.strings), np.int32), []
        strings = self.sorted_strings
        for place, string in enumerate([*strings, None]):
            while open_places and (string is None or not string.startswith(strings[open_places[-1]])):
                begin = open_places.pop()
                found[self.order[begin]] = place - begin
            open_places.append(place)
        return found

    @cached_property
    def spelled(self) -> frozenset[int]:
        """The byte values that some token of one byte spells."""
        return frozenset(string[0] for string in self.by_bytes if len(string) == 1)

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """Special tokens that end a text, by their names; where none has such a name, all special tokens."""
        found = {id for literal, id in self.literals.items() if literal.decode() in END_MARKS and id in self.special}
        return tuple(sorted(found or self.special))

    def range(self, prefix: bytes) -> tuple[int, int]:
        """[lo, hi) of `order`: the tokens whose bytes begin with `prefix`, itself included. Two binary searches."""
        if not prefix:
            return 0, len(self.order)
        lo = bisect.bisect_left(self.sorted_strings, prefix)
        above = prefix.rstrip(b"\xff")
        if not above:
            return lo, len(self.order)
        return lo, bisect.bisect_left(self.sorted_strings, above[:-1] + bytes([above[-1] + 1]), lo)

    def extends(self, prefix: bytes) -> bool:
        """Whether some token is longer than `prefix` and begins with it."""
        lo, hi = self.range(prefix)
        return hi - lo > len(self.by_bytes.get(prefix, ()))

    def prefixes(self, data: bytes) -> list[int]:
        """Ids whose bytes are a proper prefix of `data`, shortest first."""
        return [id for end in range(1, len(data)) for id in self.by_bytes.get(data[:end], ())]

    def check_spelled(self, data: bytes, what: str) -> None:
        """Raises InputError, naming byte and offset, for bytes that no token here spells."""
        for at, byte in enumerate(data):
            if byte not in self.spelled and not any(bytes([byte]) in string for string in self._containing(data, at)):
                raise InputError(
                    f'{what}: the vocabulary cannot spell byte 0x{byte:02x} at offset {at}; use boundary="none"'
                )

    def _containing(self, data: bytes, at: int) -> Iterable[bytes]:
        """Tokens that spell data[at] together with its neighbours."""
        for start in range(max(0, at - self.longest + 1), at + 1):
            for end in range(at + 1, min(len(data), start + self.longest) + 1):
                if data[start:end] in self.by_bytes:
                    yield data[start:end]

    def spelling(self, data: bytes) -> list[int]:
        """Ids that spell `data`: at each place the longest token after which the rest can be spelled. Raises InputError
        where there are none."""
        size = len(data)
        after = [0] * size + [size]  # where the token at each byte ends; 0: the rest from there on cannot be spelled
        for at in range(size - 1, -1, -1):
            ends = range(min(size, at + self.longest), at, -1)
            after[at] = next((end for end in ends if after[end] and data[at:end] in self.by_bytes), 0)
        if data and not after[0]:
            self.check_spelled(data, "text")
            raise InputError(f"no tokens of the vocabulary spell {data!r}")
        ids, at = [], 0
        while at < size:
            ids.append(self.by_bytes[data[at : after[at]]][0])
            at = after[at]
        return ids


_known: weakref.WeakKeyDictionary[Any, Vocabulary] = weakref.WeakKeyDictionary()


def vocabulary_of(tok: TokenizerLike) -> Vocabulary:
    """The Vocabulary of a tokenizer, made once. Raises InputError for what is none."""
    try:
        found = _known.get(tok)
    except TypeError:  # what cannot be referred to weakly
        found = None
    if found is None:
        members = ("vocab_size", "spec", "encode", "count", "decode_bytes", "token_bytes")
        missing = [name for name in members if not hasattr(tok, name)]
        if missing:
            raise InputError(f"tok: {type(tok).__name__} is no toktier_jax.Tokenizer: it has no {', '.join(missing)}")
        added = tok.spec.added_tokens
        contents = {token.content for token in added if token.special}
        special = frozenset(token.id for token in added if token.content in contents)
        limit = _id_limit(tok)
        strings = [b"" if id in special else _bytes(tok, id) for id in range(limit)]
        if "WordPiece" in decoder_types(tok.spec):
            strings = _after_another(tok, strings)
        found = Vocabulary(
            tuple(strings),
            special,
            frozenset(token.id for token in added) - special,
            {token.content.encode(): token.id for token in added if token.content},
        )
        _known[tok] = found
    return found


def decoder_types(spec: TokenizerSpec) -> tuple[str, ...]:
    """The types of the file's decoder and of the decoders in it; "none" where the file has none."""
    if isinstance(spec.model, BytePairRanks):
        return ("ByteLevel",)
    return ("none",) if spec.decoder is None else tuple(_types(spec.decoder))


def _types(decoder: dict[str, Any]) -> Iterator[str]:
    yield decoder["type"]
    for part in decoder.get("decoders", ()):
        yield from _types(part)


def check_decoder(tok: TokenizerLike, what: str, instead: str) -> None:
    """Raises UnsupportedError where a token's bytes depend on its neighbours, which `what` cannot follow."""
    for kind, effect in ENTANGLED.items():
        if kind in decoder_types(tok.spec):
            raise UnsupportedError(f"{what} with the decoder {kind}, which {effect}; {instead}")
    if getattr(tok.spec.model, "byte_fallback", False) and "ByteFallback" not in decoder_types(tok.spec):
        raise UnsupportedError(f"{what} with byte fallback and no decoder that undoes it; {instead}")


def _after_another(tok: TokenizerLike, strings: Sequence[bytes]) -> list[bytes]:
    """The bytes that each token adds behind another one."""
    first = next((id for id, string in enumerate(strings) if string), 0)
    skip = len(tok.decode_bytes((first,)))
    return [tok.decode_bytes((first, id))[skip:] if string else b"" for id, string in enumerate(strings)]


def _id_limit(tok: TokenizerLike) -> int:
    """One more than the largest id: ids can have holes."""
    limit = tok.vocab_size
    while True:
        try:
            tok.token_bytes(limit)
        except InputError:
            return limit
        limit += 1


def _bytes(tok: TokenizerLike, id: int) -> bytes:
    try:
        return tok.token_bytes(id)
    except InputError:
        return b""


def check_model(tok: TokenizerLike, lm: Any) -> None:
    """Raises InputError for what is no Model, or one with fewer logits than the tokenizer has ids. More is normal:
    padding."""
    check_members(lm)
    limit = len(vocabulary_of(tok).strings)
    if lm.vocab_size < limit:
        raise InputError(
            f"the model has {lm.vocab_size} logits and the tokenizer {limit} ids: they do not belong together"
        )


def check_members(lm: Any) -> None:
    """Raises InputError for what is no Model."""
    missing = [name for name in ("vocab_size", "init_cache", "apply", "gather") if not hasattr(lm, name)]
    if missing:
        raise InputError(f"lm: {type(lm).__name__} is no Model: it has no {', '.join(missing)}; see docs/models.md")


def padded(values: Sequence[Any] | np.ndarray, size: int, fill: Any) -> np.ndarray:
    """`values` with `fill` behind, up to `size`."""
    array = np.asarray(values)
    out = np.full((size, *array.shape[1:]), fill, array.dtype)
    out[: len(array)] = array
    return out
