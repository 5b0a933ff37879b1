"""Token strings by id, as decoders see them, and the bytes that a token stands for. No vocabulary look-up by string."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toktier_jax.spec import types
from toktier_jax.spec.byte_alphabet import ALPHABET, from_alphabet, to_alphabet
from toktier_jax.spec.tokenizer_json import vocab_ids

_BYTE_TOKEN = re.compile(r"<0x(\+[0-9a-fA-F]|[0-9a-fA-F]{2})>")  # the reference's parser takes a sign


def byte_token(token: str) -> int | None:
    """The byte that a token such as `<0x0A>` stands for under byte fallback, or None."""
    match = _BYTE_TOKEN.fullmatch(token)
    return int(match[1], 16) if match else None


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """What decoding needs of a tokenizer; plain data, so it can be kept beside a compiled program.

    strings   by id, spelled as in the file (tiktoken's bytes in the byte alphabet); None: no token has the id
    contents  id -> content of the added tokens
    special   ids that `skip_special_tokens` drops
    size      number of tokens, as the reference counts them
    decoder   the `decoder` part of the file
    spelling  how a token's string becomes the bytes it stands for
    shifts    whether offsets do not follow from source bytes: see `_shifts`
    partial   whether a token that is unknown or a byte of a letter of the byte alphabet can be part of a character, or
              a prefix
    """

    strings: list[str | None]
    contents: dict[int, str]
    special: frozenset[int]
    size: int
    decoder: dict[str, Any] | None
    spelling: Spelling
    shifts: bool = False
    partial: bool = False

    @cached_property
    def alphabet_bytes(self) -> list[bytes]:
        """By id, what a ByteLevel decoder makes of the token: its bytes in the alphabet, else its UTF-8."""
        return [_alphabet_bytes(string) for string in self.strings]

    @cached_property
    def prefixes(self) -> list[int]:
        """Ids of tokens that stand for nothing but what is inserted before a text."""
        prefix = self.spelling.inserted
        if not prefix:
            return []
        size = len(prefix) + len(self.spelling.prefix) + len(self.spelling.suffix)
        short = (i for i, string in enumerate(self.strings) if string is not None and len(string) <= size)
        return [i for i in short if self.token_bytes(i) == prefix]

    def token_bytes(self, index: int) -> bytes:
        """The bytes of the text that the token stands for. Empty for an id without a token.

        An added token stands for its content; `▁` is a space where the tokenizer writes spaces so; WordPiece's `##` and
        a word's suffix are no part of the text.
        """
        if index in self.contents:
            return self.contents[index].encode()
        string = self.strings[index]
        return b"" if string is None else self.spelling.bytes_of(string)


@dataclass(frozen=True)
class Spelling:
    """How the model's token strings spell text.

    `space` is the character that stands for a space (a space where none does); `inserted` is what the tokenizer puts
    before a text, as bytes of the text.
    """

    byte_level: bool
    byte_fallback: bool = False
    space: str = " "
    prefix: str = ""
    suffix: str = ""
    inserted: bytes = b""

    def bytes_of(self, token: str) -> bytes:
        if self.byte_fallback and (byte := byte_token(token)) is not None:
            return bytes([byte])
        token = token.removeprefix(self.prefix).removesuffix(self.suffix)
        if self.byte_level:
            return _alphabet_bytes(token)
        return token.replace(self.space, " ").encode()


def build_vocabulary(spec: types.TokenizerSpec, normalize: Callable[[str], str]) -> Vocabulary:
    """The vocabulary of `spec`.

    `normalize` is the reference's normalizer. It is called only for added tokens that it could change: the reference
    decodes a `normalized` added token to its normalized content (and then does not know it for special).
    """
    model = spec.model
    if isinstance(model, types.BytePairRanks):
        ids = {to_alphabet(token): rank + model.offset for token, rank in model.ranks.items()}
        contents = {token.id: token.content for token in spec.added_tokens}
        strings = _table([*ids.items(), *((to_alphabet(c.encode()), i) for i, c in contents.items())])
        special = frozenset(contents)
        return Vocabulary(strings, contents, special, len(strings), {"type": "ByteLevel"}, Spelling(byte_level=True))
    ids = vocab_ids(model)
    decoded = {token.id: _decoded(token, spec.normalizers, normalize) for token in spec.added_tokens}
    specials = {token.content for token in spec.added_tokens if token.special}
    strings = _table([*ids.items(), *((string, index) for index, string in decoded.items())])
    special = {index for index, string in decoded.items() if string in specials}
    special |= {ids[content] for content in specials & ids.keys() if strings[ids[content]] == content}
    added = sum(token.content not in ids for token in spec.added_tokens)
    contents = {token.id: token.content for token in spec.added_tokens}
    return Vocabulary(
        strings,
        contents,
        frozenset(special),
        size=len(ids) + added,
        decoder=spec.decoder,
        spelling=_spelling(spec),
        shifts=_shifts(spec),
        partial=_partial(spec),
    )


def _table(items: list[tuple[str, int]]) -> list[str | None]:
    strings: list[str | None] = [None] * (1 + max((index for _, index in items), default=-1))
    for string, index in items:
        strings[index] = string
    return strings


def _decoded(token: types.AddedToken, normalizers: tuple[Any, ...], normalize: Callable[[str], str]) -> str:
    unicode_only = all(isinstance(step, types.Unicode) for step in normalizers)
    if not token.normalized or not normalizers or (unicode_only and token.content.isascii()):
        return token.content
    return normalize(token.content)


def _alphabet_bytes(string: str | None) -> bytes:
    if string is None:
        return b""
    data = from_alphabet(string)
    return string.encode() if data is None else data


def _shifts(spec: types.TokenizerSpec) -> bool:
    """Whether the reference counts offsets in a way that source bytes do not tell.

    It drops characters without an id, and counts bytes of `continuing_subword_prefix` and `end_of_word_suffix` under
    byte fallback: what follows in the piece moves. It trims white space of the *normalized* text round added tokens.
    """
    model = spec.model
    stripping = any(token.normalized and (token.lstrip or token.rstrip) for token in spec.added_tokens)
    if stripping and spec.normalizers and spec.post_processor.trim_offsets:
        return True
    if not isinstance(model, types.BPE):
        return False
    if model.byte_fallback:
        complete = all(f"<0x{byte:02X}>" in model.vocab for byte in range(256))
        return not complete or bool(model.continuing_subword_prefix or model.end_of_word_suffix)
    if model.unk_token is not None:
        return False
    return not spec.byte_level or not _spells_bytes(model)


def _partial(spec: types.TokenizerSpec) -> bool:
    model = spec.model
    if not isinstance(model, types.BPE):
        return False
    if spec.byte_level:
        return not _spells_bytes(model)
    prefix = _inserted(spec).replace(" ", space_character(spec))
    return model.unk_token is not None and not set(prefix) <= model.vocab.keys()


def _spells_bytes(model: types.Model) -> bool:
    """Whether every character of the byte alphabet is a token, wherever it stands in a piece."""
    if not isinstance(model, types.BPE) or model.continuing_subword_prefix or model.end_of_word_suffix:
        return False
    return all(letter in model.vocab for letter in ALPHABET)


def _spelling(spec: types.TokenizerSpec) -> Spelling:
    model = spec.model
    return Spelling(
        byte_level=spec.byte_level,
        byte_fallback=bool(getattr(model, "byte_fallback", False)),
        space=space_character(spec),
        prefix=getattr(model, "continuing_subword_prefix", ""),
        suffix=getattr(model, "end_of_word_suffix", ""),
        inserted=_inserted(spec).replace(space_character(spec), " ").encode(),
    )


def _inserted(spec: types.TokenizerSpec) -> str:
    for step in (*spec.normalizers, *spec.pre_tokenizers):
        match step:
            case types.Prepend(prepend):
                return prepend
            case types.Metaspace(replacement, scheme) if scheme != "never":
                return replacement
            case types.ByteLevel(add_prefix_space=True):
                return " "
    return ""


def space_character(spec: types.TokenizerSpec) -> str:
    """The character that the tokenizer writes for a space, such as `▁`; a space where it writes none."""
    for step in spec.pre_tokenizers:
        if isinstance(step, types.Metaspace):
            return step.replacement
    for step in spec.normalizers:
        if isinstance(step, types.Replace) and step.pattern == types.Pattern(" ", False) and len(step.content) == 1:
            return step.content
    return " "
