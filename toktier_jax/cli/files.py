"""What the verbs of the command line are given: the tokenizer by its name, and files or stdin."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toktier_jax.tokenizer import Tokenizer


Add = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
"""Adds a verb by its name, its function and one line about it."""


def add_tokenizer(sub: argparse.ArgumentParser) -> None:
    """The option that names the tokenizer of a verb."""
    text = "a file (tokenizer.json, tekken.json, .gguf), a directory, a hub id, or 'default' (the embedded one)"
    sub.add_argument("-t", "--tokenizer", default="default", metavar="NAME", help=text)


def load(name: str) -> Tokenizer:
    """The tokenizer of a file, a directory, a hub id, or the embedded one."""
    keep_executables()
    from toktier_jax.tokenizer import Tokenizer

    if name == "default":
        return Tokenizer.default()
    path = Path(name)
    if path.is_file():
        return Tokenizer.from_file(path)
    if (path.is_absolute() or name.startswith(".") or path.suffix in (".json", ".gguf")) and not path.is_dir():
        raise FileNotFoundError(None, "no such tokenizer file", name)
    return Tokenizer.from_pretrained(name)


def keep_executables() -> None:
    """Has JAX keep what it compiles beside the package's own cache, unless the user has said where: a process that
    encodes once would else compile for longer than it runs."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    import jax

    from toktier_jax.program.cache import cache_dir

    try:
        folder = cache_dir() / "xla"
    except FileNotFoundError:  # there is no place for it
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def read(name: str) -> bytes:
    from toktier_jax.errors import InputError

    if name == "-" and sys.stdin is None:
        raise InputError("the standard input is closed; name a file")
    if not name:
        raise InputError("the name of the file is empty")
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def shown(name: str) -> str:
    """A file's name, as messages have it."""
    return "stdin" if name == "-" else name


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Says in which file the text is that is refused."""
    from toktier_jax.errors import InputError

    try:
        yield
    except InputError as error:
        raise InputError(f"{shown(name)}: {error}") from error
