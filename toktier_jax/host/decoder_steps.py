"""The decoders of a tokenizer.json as steps that take tokens piece by piece. Equal to the reference's, and resumable.

A step receives tokens as strings and returns what it is sure of; `finish` returns the rest. After `Fuse` or `ByteLevel`
there is only one token, which then arrives in chunks: such a step is built with `fused`. With `lossless` bytes that are
no UTF-8 come out as lone surrogates (PEP 383) instead of U+FFFD.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Any, Protocol

from toktier_jax.errors import SpecError
from toktier_jax.host.vocabulary import byte_token
from toktier_jax.spec.byte_alphabet import from_alphabet

_LONE = re.compile("([\ud800-\udfff]+)")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Step(Protocol):
    def push(self, tokens: list[str]) -> list[str]: ...
    def finish(self) -> list[str]: ...


def build_steps(decoder: dict[str, Any] | None, *, lossless: bool) -> list[Step]:
    """The steps of the `decoder` part of a file; without one, tokens are joined by spaces. Raises SpecError."""
    if decoder is None:
        return [_Each(lambda index, token: token if index == 0 else " " + token)]
    steps: list[Step] = []
    fused = False
    for part in _flatten(decoder):
        step, fuses = _build(part, fused, lossless)
        steps.append(step)
        fused = fused or fuses
    return steps


def _flatten(part: dict[str, Any]) -> list[dict[str, Any]]:
    if part.get("type") != "Sequence":
        return [part]
    return [step for item in part["decoders"] for step in _flatten(item)]


def _build(part: dict[str, Any], fused: bool, lossless: bool) -> tuple[Step, bool]:
    """The step and whether there is only one token behind it."""
    kind = part.get("type")
    try:
        match kind:
            case "ByteLevel":
                errors = "surrogateescape" if lossless else "replace"
                step: Step = _ByteLevel(errors)
                return (_Whole(step) if fused else step), True
            case "Fuse":
                return _Each(lambda index, token: token), True
            case "ByteFallback":
                step = _ByteFallback(lossless)
                return (_Whole(step) if fused else step), False
            case "Metaspace":
                drop_first = part.get("prepend_scheme", "always") != "never"
                return _Each(_metaspace(part["replacement"], drop_first), fused), False
            case "WordPiece":
                step = _Each(_word_piece(part["prefix"], part["cleanup"]))
                return (_Whole(step) if fused else step), False
            case "Replace":
                return _replace(part, fused), False
            case "Strip":
                content, start, stop = part["content"], part["start"], part["stop"]
                if fused:
                    return _StripStream(content, start, stop), False
                return _Each(lambda index, token: _strip(token, content, start, stop)), False
            case "CTC":
                step = _Ctc(part["pad_token"], part["word_delimiter_token"], part["cleanup"])
                return (_Whole(step) if fused else step), False
            case "BPEDecoder":
                step = _Suffix(part["suffix"])
                return (_Whole(step) if fused else step), False
    except KeyError as error:
        raise SpecError(f"decoder: {kind}: the key {error} is missing") from error
    raise SpecError(f"decoder: unknown type {kind!r}")


class _Each:
    """A function of each token and its index. Where one token comes in chunks, each of them has its index, 0."""

    def __init__(self, function: Callable[[int, str], str], fused: bool = False) -> None:
        self._function, self._fused, self._index = function, fused, 0

    def push(self, tokens: list[str]) -> list[str]:
        start = self._index
        if self._fused:
            return [self._function(0, token) for token in tokens]
        self._index += len(tokens)
        return [self._function(start + i, token) for i, token in enumerate(tokens)]

    def finish(self) -> list[str]:
        return []


class _Whole:
    """Waits for the one token to be whole."""

    def __init__(self, step: Step) -> None:
        self._step, self._chunks = step, list[str]()

    def push(self, tokens: list[str]) -> list[str]:
        self._chunks += tokens
        return []

    def finish(self) -> list[str]:
        return self._step.push(["".join(self._chunks)]) + self._step.finish()


class _ByteLevel:
    def __init__(self, errors: str) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, tokens: list[str]) -> list[str]:
        spelled = (from_alphabet(token) for token in tokens)
        parts = (
            token.encode("utf-8", "surrogateescape") if data is None else data
            for token, data in zip(tokens, spelled, strict=True)
        )
        return [self._decoder.decode(b"".join(parts))]

    def finish(self) -> list[str]:
        return [self._decoder.decode(b"", final=True)]


class _ByteFallback:
    """A run of byte tokens is text if the whole run is UTF-8; else each byte is U+FFFD."""

    def __init__(self, lossless: bool) -> None:
        self._lossless, self._run = lossless, bytearray()

    def push(self, tokens: list[str]) -> list[str]:
        out: list[str] = []
        for token in tokens:
            byte = byte_token(token)
            if byte is None:
                out += [*self.finish(), token]
            else:
                self._run.append(byte)
        return out

    def finish(self) -> list[str]:
        run, self._run = bytes(self._run), bytearray()
        if self._lossless:
            return [run.decode("utf-8", "surrogateescape")] if run else []
        try:
            return [run.decode()] if run else []
        except UnicodeDecodeError:
            return [_REPLACEMENT] * len(run)


class _ReplaceStream:
    """Replaces a literal in a token that comes in chunks: what could begin a match waits."""

    def __init__(self, pattern: str, content: str) -> None:
        self._pattern, self._content, self._rest = pattern, content, ""

    def push(self, tokens: list[str]) -> list[str]:
        *done, rest = (self._rest + "".join(tokens)).split(self._pattern)
        certain = max(len(rest) - len(self._pattern) + 1, 0)
        self._rest = rest[certain:]
        return [self._content.join([*done, rest[:certain]])]

    def finish(self) -> list[str]:
        return [self._rest]


class _StripStream:
    """Strips the ends of a token that comes in chunks: characters that could be the last ones wait."""

    def __init__(self, content: str, start: int, stop: int) -> None:
        self._content, self._start, self._stop, self._rest = content, start, stop, ""

    def push(self, tokens: list[str]) -> list[str]:
        text = "".join(tokens)
        while self._start and text:
            if not text.startswith(self._content):
                self._start = 0
            else:
                text, self._start = text[len(self._content) :], self._start - 1
        text = self._rest + text
        body = text.rstrip(self._content)
        kept = max(len(body), len(text) - self._stop)
        self._rest = text[kept:]
        return [text[:kept]]

    def finish(self) -> list[str]:
        return []


class _Ctc:
    """Drops repeats and padding, for models that name a token for each frame of sound."""

    def __init__(self, pad: str, delimiter: str, cleanup: bool) -> None:
        self._pad, self._delimiter, self._cleanup, self._last = pad, delimiter, cleanup, ""
        self._any = False

    def push(self, tokens: list[str]) -> list[str]:
        out: list[str] = []
        for token in tokens:
            if self._any and token == self._last:
                continue
            self._any, self._last = True, token
            token = token.replace(self._pad, "")
            out.append(_clean_up(token).replace(self._delimiter, " ") if self._cleanup else token)
        return [token for token in out if token]

    def finish(self) -> list[str]:
        return []


class _Suffix:
    """A word's suffix becomes a space, but not in the last token, which therefore waits."""

    def __init__(self, suffix: str) -> None:
        self._suffix, self._last = suffix, list[str]()

    def push(self, tokens: list[str]) -> list[str]:
        tokens = self._last + tokens
        self._last = tokens[-1:]
        return [token.replace(self._suffix, " ") for token in tokens[:-1]]

    def finish(self) -> list[str]:
        return [token.replace(self._suffix, "") for token in self._last]


def _metaspace(replacement: str, drop_first: bool) -> Callable[[int, str], str]:
    def function(index: int, token: str) -> str:
        return token.replace(replacement, "" if index == 0 and drop_first else " ")

    return function


def _word_piece(prefix: str, cleanup: bool) -> Callable[[int, str], str]:
    def function(index: int, token: str) -> str:
        if index:
            token = token[len(prefix) :] if token.startswith(prefix) else " " + token
        return _clean_up(token) if cleanup else token

    return function


def _replace(part: dict[str, Any], fused: bool) -> Step:
    pattern, content = part["pattern"], part["content"]
    if "Regex" in pattern:
        from tokenizers import Regex, decoders

        engine = decoders.Replace(Regex(pattern["Regex"]), content)
        # Bytes that are no UTF-8 stand as lone surrogates, which the engine cannot take: they part the text
        step = _Each(
            lambda index, token: "".join(
                each if _LONE.match(each) else engine.decode([each]) for each in _LONE.split(token) if each
            )
        )
        return _Whole(step) if fused else step
    literal = pattern["String"]
    if not literal:
        return _Each(lambda index, token: token)
    return _ReplaceStream(literal, content) if fused else _Each(lambda index, token: token.replace(literal, content))


def _strip(token: str, content: str, start: int, stop: int) -> str:
    left = 0
    while left < min(start, len(token)) and token[left] == content:
        left += 1
    right = len(token)
    while right > max(len(token) - stop, left) and token[right - 1] == content:
        right -= 1
    return token[left:right]


def _clean_up(text: str) -> str:
    """English detokenization, as BERT's authors wrote it."""
    for old, new in _CLEAN_UP:
        text = text.replace(old, new)
    return text


_CLEAN_UP = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip
