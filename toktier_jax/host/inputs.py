"""Checks what callers pass, with errors that name the place. Nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from toktier_jax.errors import InputError


def check_text(text: Any, what: str = "text") -> tuple[str, bytes]:
    """`text` (str, or UTF-8 bytes) as both. Raises InputError for other types, lone surrogates and invalid UTF-8."""
    if isinstance(text, str):
        try:
            return text, text.encode()
        except UnicodeEncodeError as error:
            code, offset = ord(text[error.start]), error.start
            raise InputError(
                f"{what} holds the lone surrogate U+{code:04X} at character {offset}, which is no character; "
                "replace it, or pass the bytes that it came from"
            ) from error
    if isinstance(text, bytes | bytearray):
        data = bytes(text)
        try:
            return data.decode(), data
        except UnicodeDecodeError as error:
            raise InputError(
                f"{what} is not UTF-8 at byte {error.start} ({data[error.start]:#04x}: {error.reason}); decode it first"
            ) from error
    hint = "; a list of texts is for encode_batch" if what == "text" and isinstance(text, list | tuple) else ""
    raise InputError(f"{what} must be str or UTF-8 bytes, not {type(text).__name__}{hint}")


def check_iterable(texts: Any) -> Iterable[Any]:
    """`texts`, which are not looked at, where they can be iterated over and are not one text."""
    if isinstance(texts, str | bytes | bytearray):
        raise InputError(f"texts must be a list of texts, not one {type(texts).__name__}; wrap it in a list")
    if not isinstance(texts, Iterable):
        raise InputError(f"texts must be a list of texts, not {type(texts).__name__}")
    return texts


def check_texts(texts: Any) -> list[tuple[str, bytes]]:
    """Each of several texts as `check_text` gives it. A single text is refused: its characters would be the texts."""
    return [check_text(text, f"text {i}") for i, text in enumerate(check_iterable(texts))]


def check_ids(ids: Any, limit: int) -> list[int]:
    """Token ids (a sequence or an array of integers from 0, below `limit`) as a list."""
    if isinstance(ids, str | bytes):
        raise InputError(f"ids must be integers, not {type(ids).__name__}")
    try:
        array = np.asarray(ids)
    except (TypeError, ValueError) as error:
        raise InputError(f"ids must be a flat sequence of integers: {error}") from error
    if array.ndim == 0:
        raise InputError(f"ids must be a flat sequence of integers, not {type(ids).__name__}; one id is a list of one")
    if array.ndim == 1 and array.dtype.kind in "Of":  # integers beyond 64 bits, perhaps
        for at, id in enumerate(ids):
            if isinstance(id, int) and not 0 <= id < limit:
                raise InputError(f"id {id} at index {at} is out of range; the ids end at {limit - 1}")
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"ids must be a flat sequence of integers, not {array.ndim}-dimensional {array.dtype}")
    bad = np.flatnonzero((array < 0) | (array >= limit)) if array.size else array
    if bad.size:
        raise InputError(f"id {array[bad[0]]} at index {bad[0]} is out of range; the ids end at {limit - 1}")
    return array.tolist()


def check_choice(name: str, value: Any, choices: Sequence[str]) -> Any:
    """`value`, one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    return value


def check_count(name: str, value: Any) -> int:
    """`value`, an integer from 1 that fits 32 bits."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value < 1 << 31:
        raise InputError(f"{name} must be an integer from 1 to {(1 << 31) - 1}, not {value!r}")
    return int(value)


def check_id(name: str, value: Any) -> int:
    """`value`, an integer that an array of ids can hold."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not -(1 << 31) <= value < 1 << 31:
        raise InputError(f"{name} must be an integer of 32 bits, not {value!r}")
    return int(value)


def check_path(path: Any) -> str:
    """A file's or directory's path, or a hub id."""
    found = path.__fspath__() if isinstance(path, os.PathLike) else path
    if not isinstance(found, str) or not found or "\0" in found:
        raise InputError(f"a path must be a non-empty str or os.PathLike[str] without NUL, not {path!r}")
    return found
