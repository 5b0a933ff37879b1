"""What sampling returns: values only."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class TokenLogprob:
    """The log-prob of a sampled token under the model at temperature 1, before penalty and truncation, among the tokens
    that the constraint allows.

    `conditional`: given that the text begins with the prompt, as for a token that straddles the prompt's end. `top`:
    (id, log-prob) of as many alternatives as were asked for, the likeliest first; none for the first token of "exact",
    which is drawn among covers and not among tokens.
    """

    id: int
    logprob: float
    conditional: bool
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Usage:
    """Tokens of the prompt as it was encoded; sampled tokens that have bytes past it."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class BoundaryReport:
    """What was done at the prompt's end.

    mode              "exact", "heal" or "none" ("none" also where there was nothing to do)
    kept              ids that stayed as context: `decode_bytes(kept + out.ids)` is the prompt and `out.data`
    cut               the prompt's last bytes, which the sampled tokens spell again
    nodes, leaves     of the covers
    dropped           of the probability of all tokens that reach the prompt's end from a node, the share of those with
                      which the path is one no text encodes to: they are left out. Paths that are such before their last
                      token have no node, and are not counted
    logprob           log of the covers' share of all texts: log p(the prompt's end | the trunk); as `dropped` at
                      temperature 1, before penalty, truncation and constraint
    extra_tokens      real positions forwarded before the first sampled token, less those of the prompt's encoding
    extra_calls       model calls that these positions take, less those that the prompt's encoding takes: 512 a call
    padded            positions forwarded, padding included
    reused            ids that the prefix cache held
    """

    mode: str
    kept: tuple[int, ...]
    cut: bytes = b""
    nodes: int = 0
    leaves: int = 0
    dropped: float = 0.0
    logprob: float = 0.0
    extra_tokens: int = 0
    extra_calls: int = 0
    padded: int = 0
    reused: int = 0


@dataclass(frozen=True)
class Completion:
    """One completion.

    data     all bytes past the prompt
    text     its whole characters, from the first that starts past the prompt; invalid bytes are U+FFFD, an unfinished
             character at the end is left out (it is in `data`)
    ids      sampled ids, without a stop id unless it spells the prompt's end, too, and with the tokens of a stop string
    """

    text: str
    data: bytes
    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason
    usage: Usage
    boundary: BoundaryReport


@dataclass(frozen=True)
class Event:
    """A part of a completion as it comes: whole characters only; the first may be empty. `index` is the batch row."""

    text: str
    ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    index: int = 0
    completion: Completion | None = None


@dataclass
class TextStream:
    """Bytes past the prompt to text, whole characters only. The bytes `open` of the prompt begin a character."""

    open: bytes
    _decoder: Any = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    _skip: bool = False

    def __post_init__(self) -> None:
        if self.open:
            self._decoder.decode(self.open)
            self._skip = True

    def push(self, data: bytes) -> str:
        """The characters that are whole now. The one that the prompt began belongs to neither."""
        text = self._decoder.decode(data)
        if text and self._skip:
            self._skip = False
            return text[1:]
        return text
