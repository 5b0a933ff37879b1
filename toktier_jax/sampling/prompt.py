"""A prompt as ids and the bytes at its end that are still open. Encodes, checks; drops nothing yet."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.sampling.characters import unfinished
from toktier_jax.sampling.normal_form import normalized
from toktier_jax.sampling.vocabulary import TokenizerLike, Vocabulary, vocabulary_of
from toktier_jax.spec import types

Mode = Literal["exact", "heal", "none"]
Prompt = str | bytes | Sequence[int] | np.ndarray | jax.Array
TEXTS = str | bytes | bytearray | memoryview

_SHORT = 1 << 12
"""Bytes up to which a prompt is encoded by the reference: the device path would first be compiled for it."""


NO_CONTEXT = (
    "the prompt leaves no context: no id is before it (the tokenizer adds no BOS; ids are taken as they are). Pass "
    "context_start=<the id that the model's texts begin with>, such as its document separator"
)


class _Default(str):
    __slots__ = ()


EXACT: Any = _Default("exact")
"""The default boundary: "exact" for text; ids are taken as they are unless a boundary is asked for."""


@dataclass(frozen=True, eq=False)
class Context:
    """A prompt.

    ids   BOS or `context_start` and the prompt's own ids
    fixed how many ids were put before the prompt's own
    text  bytes of the ordinary tokens after the last added token, then `tail`
    tail  the first bytes of a character that the prompt does not end
    mode  boundary of this prompt
    """

    ids: tuple[int, ...]
    fixed: int
    text: bytes
    tail: bytes
    mode: Mode


def read_prompts(
    tok: TokenizerLike, prompt: Any, boundary: str, context_start: int | None
) -> tuple[list[Context], bool]:
    """The prompts, and whether they were a batch. Raises InputError for what is none."""
    if boundary not in ("exact", "heal", "none"):
        raise InputError(f'boundary={boundary!r}: expected "exact", "heal" or "none"')
    vocabulary = vocabulary_of(tok)
    if context_start is not None and not (is_whole(context_start) and 0 <= context_start < len(vocabulary.strings)):
        raise InputError(f"context_start={context_start!r}: the tokenizer has ids 0 to {len(vocabulary.strings) - 1}")
    if isinstance(prompt, jax.Array):
        prompt = np.asarray(prompt)
    batch = not _single(prompt)
    scalar = isinstance(prompt, np.ndarray) and not prompt.ndim
    if batch and (scalar or not isinstance(prompt, Sequence | np.ndarray)):
        raise InputError(f"prompt: {type(prompt).__name__} is neither text, bytes, a list of ids nor a list of these")
    prompts = list(prompt) if batch else [prompt]
    if not prompts:
        raise InputError("prompt: an empty list; expected text, ids, or a list of these")
    return [_read(tok, vocabulary, one, boundary, context_start) for one in prompts], batch


def is_whole(value: Any) -> bool:
    """Whether it can be an id: an integer, of Python or NumPy, and no bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _single(prompt: Any) -> bool:
    if isinstance(prompt, TEXTS):
        return True
    if isinstance(prompt, np.ndarray):
        return prompt.ndim == 1
    return isinstance(prompt, Sequence) and bool(prompt) and all(isinstance(item, int | np.integer) for item in prompt)


def _read(tok: TokenizerLike, vocabulary: Vocabulary, prompt: Any, boundary: str, start: int | None) -> Context:
    if not isinstance(prompt, TEXTS):
        ids = _checked_ids(prompt, vocabulary)
        if boundary == "exact" and boundary is not EXACT:
            _check_given(tok, ids, start)
        fixed = 0 if start is None else 1
        if start is not None and ids[:1] != (start,):
            ids = (start, *ids)
        mode: Any = "none" if boundary is EXACT else str(boundary)
        return Context(ids, fixed, _open_text(vocabulary, ids[fixed:]), b"", mode)
    data = utf8(prompt, "the prompt")
    tail = unfinished(data)
    whole = data[: len(data) - len(tail)]
    ids = _encoded(tok, whole)
    before = tok.spec.post_processor.before
    if start is not None and start not in before:
        before = (start, *before)
        if start in vocabulary.special and ids[:1] == (start,):
            ids = ids[1:]  # the text begins with it
    if boundary != "none":
        _check_spelled(tok, vocabulary, whole, ids)
        vocabulary.check_spelled(tail, "the end of the prompt")
    text = _open_text(vocabulary, ids) + tail
    return Context((*before, *ids), len(before), text, tail, str(boundary))  # type: ignore[arg-type]  # checked above


def _encoded(tok: TokenizerLike, data: bytes) -> tuple[int, ...]:
    """Ids of a text alone: no template, no padding. Raises InputError where the file truncates it."""
    options: Any = {"add_special_tokens": False, "route": "reference" if len(data) < _SHORT else "auto"}
    text, padding = data.decode(), tok.spec.padding
    encoded = tok.encode(text, **options)
    if encoded.truncated:
        raise InputError("the tokenizer's file truncates this prompt: raise its max_length, or pass ids")
    ids = tuple(encoded.ids.tolist())
    if padding is None:
        return ids
    count = tok.count(text, **options)
    return ids[len(ids) - count :] if padding.direction == "Left" else ids[:count]


def utf8(text: str | bytes | bytearray | memoryview, what: str) -> bytes:
    """The bytes of a text. Raises InputError, which names it `what`, for a lone surrogate."""
    if not isinstance(text, str):
        return bytes(text)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} holds a lone surrogate at character {error.start}") from None


def _checked_ids(prompt: Any, vocabulary: Vocabulary) -> tuple[int, ...]:
    limit = len(vocabulary.strings)
    if isinstance(prompt, np.ndarray) and prompt.ndim == 1 and prompt.dtype.kind in "iu":
        wrong = np.flatnonzero((prompt < 0) | (prompt >= limit))
        if len(wrong):
            raise _no_id(int(prompt[wrong[0]]), int(wrong[0]), limit)
        return tuple(prompt.tolist())
    try:
        ids = tuple(map(operator.index, prompt))
    except TypeError as error:
        kind = type(prompt).__name__
        raise InputError(f"prompt: {kind} is neither text, bytes nor a list of ids ({error})") from None
    if any(isinstance(id, bool) for id in prompt):
        raise InputError("prompt: True and False are no ids")
    for at, id in enumerate(ids):
        if not 0 <= id < limit:
            raise _no_id(id, at, limit)
    return ids


def _no_id(id: int, at: int, limit: int) -> InputError:
    return InputError(f"prompt: id {id} at index {at}; the tokenizer has 0 to {limit - 1}")


def _open_text(vocabulary: Vocabulary, ids: Sequence[int]) -> bytes:
    """Bytes of the ordinary tokens at the end of `ids`."""
    parts: list[bytes] = []
    for id in reversed(ids):
        if not vocabulary.strings[id] or id in vocabulary.added:
            break
        parts.append(vocabulary.strings[id])
    return b"".join(reversed(parts))


def _check_given(tok: Any, ids: tuple[int, ...], start: int | None) -> None:
    """Raises UnsupportedError for ids that are not what the tokenizer makes of the text they spell.

    What a context begins with, `start` or the template's ids, is no part of the text.
    """
    if not tok.spec.byte_level:
        return
    before = tok.spec.post_processor.before
    skip = int(ids[:1] == (start,))
    skip += len(before) if ids[skip : skip + len(before)] == before else 0
    data = tok.decode_bytes(ids[skip:])
    again = _encoded(tok, data[: len(data) - len(unfinished(data))])
    if again != ids[skip:]:
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(again, ids[skip:], strict=False))
        raise UnsupportedError(
            "no exact covers for ids that the tokenizer does not give for the text they spell: it gives others from "
            f"index {skip + len(list(same))} on; pass the text"
        )


def _check_spelled(tok: Any, vocabulary: Vocabulary, data: bytes, ids: Sequence[int]) -> None:
    """Raises InputError where the ids do not spell the prompt: the vocabulary lacks a byte of it."""
    steps = tok.spec.normalizers
    if not tok.spec.byte_level or not all(isinstance(step, types.Unicode) for step in steps):
        return
    data = normalized(tok.spec, data)
    if tok.decode_bytes(ids) != data:
        vocabulary.check_spelled(data, "prompt")
        raise InputError('prompt: the tokenizer changes this text and cannot give it back; use boundary="none"')
