"""The program of a tokenizer from the cache, or compiled and put there. Reads the file only when it must.

An entry holds what a Tokenizer needs before it decodes: the program, or the reason why there is none, and the spec
without its model. Its key names the content of the tokenizer, the compiler's own source, and the engines that were
probed; whatever cannot be read back whole is compiled again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toktier_jax import types
from toktier_jax.errors import UnsupportedError
from toktier_jax.program import cache
from toktier_jax.program.codec import from_json, to_json
from toktier_jax.spec.types import Omitted, TokenizerSpec
from toktier_jax.types import EncodeProgram


@dataclass(frozen=True, eq=False)
class Loaded:
    """`outline` is the spec without its model; `refusal` says why `program` is None."""

    outline: TokenizerSpec
    program: EncodeProgram | None
    refusal: str | None


def load_program(fingerprint: str, read: Callable[[], TokenizerSpec]) -> Loaded:
    """The program of the tokenizer with this fingerprint; `read` gives its spec where the cache does not have it."""
    key = f"programs/{fingerprint}-{_compiler()}"
    stored = cache.load(key)
    if stored is not None:
        return _unpacked(*stored)
    spec = read()
    program, refusal = None, None
    from toktier_jax.program.compile import compile_program  # half of the package, which a cached program spares

    try:
        program = compile_program(spec)
    except UnsupportedError as error:
        refusal = str(error)
    loaded = Loaded(dataclasses.replace(spec, model=Omitted()), program, refusal)
    cache.store(key, *_packed(loaded))
    return loaded


@functools.cache
def _compiler() -> str:
    """Names the compiler's source and the engines that it probes."""
    root = Path(types.__file__).parent
    shared = ("plan.py", "types.py", "ops/characters.py", "ops/hashing.py")  # what tables are read by as they are made
    files = sorted([*root.glob("program/*.py"), *root.glob("spec/*.py"), *(root / name for name in shared)])
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    for package in ("tokenizers", "tiktoken"):
        try:
            digest.update(f"{package} {importlib.metadata.version(package)}".encode())
        except importlib.metadata.PackageNotFoundError:
            continue
    return digest.hexdigest()[:16]


# ---- tables as named arrays: the tree of NamedTuples is kept as JSON, with each leaf's name in its place ----


def _packed(loaded: Loaded) -> tuple[Any, dict[str, np.ndarray]]:
    header: dict[str, Any] = {"outline": to_json(loaded.outline), "refusal": loaded.refusal, "program": None}
    arrays: dict[str, np.ndarray] = {}
    if loaded.program is not None:
        header["program"] = {"plan": to_json(loaded.program.plan), "tables": _names(loaded.program.tables, arrays)}
    return header, arrays


def _unpacked(header: Any, arrays: dict[str, np.ndarray]) -> Loaded:
    program = None
    if (stored := header["program"]) is not None:
        program = EncodeProgram(_values(stored["tables"], arrays), from_json(stored["plan"]))
    return Loaded(from_json(header["outline"]), program, header["refusal"])


def _names(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return [type(value).__name__, *(_names(item, arrays) for item in value)]
    name = str(len(arrays))
    arrays[name] = np.asarray(value)
    return name


def _values(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return arrays[value]
    kind, *items = value
    values = [_values(item, arrays) for item in items]
    return tuple(values) if kind == "tuple" else getattr(types, kind)(*values)
