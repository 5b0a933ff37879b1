"""The arguments of stores and sessions, checked one by one: what is wrong, and that nothing was changed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from toktier_jax.errors import InputError

MOST_NAME = 1024
"""Characters of a session's name."""


def check_text(text: Any, start: int = 0) -> str:
    """The text as a plain str. Raises InputError for other types, lone surrogates and invalid UTF-8. `start`: the
    character at which it begins in what the caller passed."""
    if isinstance(text, str):
        try:
            str.encode(text)
        except UnicodeEncodeError as error:
            raise InputError(
                f"text holds the lone surrogate U+{ord(str.__str__(text)[error.start]):04X} at character "
                f"{start + error.start}, which is no character; nothing was changed"
            ) from error
        return str.__str__(text)  # whatever its class shows
    if isinstance(text, bytes | bytearray):
        try:
            return bytes(text).decode()
        except UnicodeDecodeError as error:
            raise InputError(f"text is not UTF-8 at byte {error.start}; nothing was changed") from error
    raise InputError(f"text must be str or UTF-8 bytes, not {type(text).__name__}; nothing was changed")


def check_offset(name: str, value: Any, length: int) -> int:
    """A character's number in a text of `length` characters, or the end."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} must be an integer, not {value!r}; nothing was changed")
    if not 0 <= value <= length:
        raise InputError(f"{name} {value} is not in 0 to {length}, the text's characters; nothing was changed")
    return int(value)


def check_name(name: Any) -> str:
    """The name as a plain str, whatever its class shows."""
    if not isinstance(name, str) or not name:
        raise InputError(f"a session's name must be a string of at least one character, not {name!r:.80}")
    if len(name) > MOST_NAME:
        raise InputError(f"a session's name must have at most {MOST_NAME} characters, not {len(name)}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"a session's name holds a lone surrogate at character {error.start}") from error
    return str.__str__(name)


def check_number(name: str, value: Any, most: float = float("inf")) -> None:
    """A number from 0 to `most`."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not 0 <= value <= most:
        raise InputError(f"{name} must be a number from 0 to {most}, not {value!r}")


def check_folder(name: str, value: Any) -> Any:
    """A directory's path, or None."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or not os.fspath(value) or "\0" in str(os.fspath(value)):
        raise InputError(f"{name} must be a directory's path or None, not {value!r}")
    return value
