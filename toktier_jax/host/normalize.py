"""A text brought into a Unicode normal form as the reference does it: between added tokens, each part by itself.

Only what a quick check suspects is rewritten, by the reference itself: from the character before a suspect one to the
next that is none, because a form changes nothing across the start of an unsuspected character (UAX #15, 9.1).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.host.align import Alignment, Form, align
from toktier_jax.host.reference import Special
from toktier_jax.host.utf8 import first_bytes
from toktier_jax.program.quickcheck import form_facts
from toktier_jax.spec import types as spec

_NEAR = 32
"""Spans with fewer characters between them are rewritten as one: a call costs about as much as so many characters."""


def normalize(form: Form, added: Sequence[spec.AddedToken], data: bytes, special: Special) -> Alignment:
    """The text in its normal form: what is between the raw added tokens, each part by itself, as the reference does.

    Raises UnsupportedError where the new text does not have the same added tokens at the same places.
    """
    text = data.decode()
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    bounds = np.concatenate([[0], np.cumsum(_widths(codes))])
    tokens = _raw_tokens(tuple(token for token in added if not token.normalized), text, special)
    parts: list[Alignment] = []
    done = 0
    for start, stop in _spans(form_facts(form).suspect[codes], tokens[:, 1:]):
        parts.append(_kept(data, int(bounds[done]), int(bounds[start])))
        parts.append(_moved(align(form, text[start:stop]), int(bounds[start])))
        done = stop
    parts.append(_kept(data, int(bounds[done]), len(data)))
    new = Alignment(b"".join(part.data for part in parts), *map(np.concatenate, list(zip(*parts, strict=True))[1:]))
    if len(parts) > 1:
        _check(tokens, bounds, new, added, special, form)
    return new


def _spans(suspect: np.ndarray, tokens: np.ndarray) -> list[tuple[int, int]]:
    """What is to be rewritten, as characters: int pairs in order. `tokens` are the spans of added tokens."""
    suspect = suspect.copy()
    begins = np.zeros(len(suspect) + 1, bool)
    begins[0] = True
    for start, stop in tokens.tolist():
        suspect[start:stop] = False
        begins[[start, stop]] = True
    starts = np.flatnonzero(suspect & ~np.concatenate([[False], suspect[:-1]]))
    stops = np.flatnonzero(suspect & ~np.append(suspect[1:], False)) + 1
    starts = starts - ~begins[starts]  # the character before takes part, unless another part ends there
    apart = np.cumsum(begins)
    spans: list[tuple[int, int]] = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        if spans and start - spans[-1][1] < _NEAR and apart[start] == apart[spans[-1][1] - 1]:
            spans[-1] = spans[-1][0], stop
        else:
            spans.append((start, stop))
    return spans


def _raw_tokens(tokens: tuple[spec.AddedToken, ...], text: str, special: Special) -> np.ndarray:
    """The added tokens that the reference finds before it normalizes: index, first character, the one after; [n, 3]."""
    if not tokens:
        return np.zeros((0, 3), np.int64)
    finder, numbers = _finder(tokens, special == "text")
    encoding = finder.encode(text, add_special_tokens=False)
    found = [
        (numbers[id], *offsets) for id, offsets in zip(encoding.ids, encoding.offsets, strict=True) if id in numbers
    ]
    return np.array(found, np.int64).reshape(-1, 3)


@functools.lru_cache(maxsize=16)
def _finder(tokens: tuple[spec.AddedToken, ...], special_as_text: bool) -> tuple[Any, dict[int, int]]:
    """A `tokenizers` tokenizer that does nothing but find these, and which of them its ids are."""
    from tokenizers import AddedToken, Tokenizer, models

    finder = Tokenizer(models.WordLevel({"": 0}, unk_token=""))
    flags = ("lstrip", "rstrip", "single_word", "special")
    contents = [
        AddedToken(token.content, normalized=False, **{name: getattr(token, name) for name in flags})
        for token in tokens
    ]
    for content in contents:
        (finder.add_special_tokens if content.special else finder.add_tokens)([content])
    finder.encode_special_tokens = special_as_text
    ids = {finder.token_to_id(token.content): index for index, token in enumerate(tokens) if token.content}
    return finder, {id: index for id, index in ids.items() if id is not None}


def _check(
    tokens: np.ndarray,
    bounds: np.ndarray,
    new: Alignment,
    added: Sequence[spec.AddedToken],
    special: Special,
    form: Form,
) -> None:
    text = new.data.decode()
    again = _raw_tokens(tuple(token for token in added if not token.normalized), text, special)
    places = np.append(first_bytes(new.data), len(new.data))
    same = len(again) == len(tokens) and np.array_equal(again[:, 0], tokens[:, 0])
    if not same or not np.array_equal(new.starts[places[again[:, 1]]], bounds[tokens[:, 1]]):
        raise UnsupportedError(f"{form} makes an added token of this text, or unmakes one")


def _widths(codes: np.ndarray) -> np.ndarray:
    """Bytes of each character."""
    return 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000).astype(np.int64)


def _kept(data: bytes, start: int, stop: int) -> Alignment:
    starts = np.arange(start, stop)
    return Alignment(data[start:stop], starts, starts + 1, starts + 1)


def _moved(part: Alignment, offset: int) -> Alignment:
    return Alignment(part.data, part.starts + offset, part.ends + offset, part.gapped + offset)
