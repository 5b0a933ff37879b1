"""The on-disk cache: named numpy arrays and a JSON header under a key. Knows nothing of what they mean.

An entry is one file, written to a temporary name and renamed, so that readers see all of it or none and two writers
cannot mix. It ends in a SHA-256 of everything before; an entry that is damaged, short or foreign is a miss and is
written again. Layout: magic, header length (u64), JSON header (array names, dtypes, shapes, offsets and the caller's
own header), arrays aligned to 64 bytes, digest.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_MAGIC = b"toktier_jax cache 1\n"
_ALIGN = 64


def cache_dir() -> Path:
    """`TOKTIER_JAX_CACHE`, else `$XDG_CACHE_HOME/toktier_jax`, else `~/.cache/toktier_jax`.

    Raises FileNotFoundError for a user without a home.
    """
    if path := os.environ.get("TOKTIER_JAX_CACHE"):
        return Path(path)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "toktier_jax"
    try:
        return Path.home() / ".cache" / "toktier_jax"
    except RuntimeError as error:
        raise FileNotFoundError(f"no place for a cache: {error}; set TOKTIER_JAX_CACHE") from error


@functools.cache
def source(*files: str) -> str:
    """Names the sources of what is stored, for its key: another version of them does not read it."""
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()[:16]


def load(key: str) -> tuple[Any, dict[str, np.ndarray]] | None:
    """The header and the read-only arrays stored under `key`, or None where there are none that are whole."""
    try:
        data = (cache_dir() / key).read_bytes()
    except OSError:
        return None
    body, digest = memoryview(data)[:-32], data[-32:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
        return None
    start = len(_MAGIC) + 8
    size = int.from_bytes(body[len(_MAGIC) : start], "little")
    index = json.loads(data[start : start + size])
    base = _aligned(start + size)
    arrays = {
        name: np.frombuffer(body, dtype, int(np.prod(shape)), base + offset).reshape(shape)
        for name, dtype, shape, offset in index["arrays"]
    }
    return index["header"], arrays


def store(key: str, header: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Stores a JSON-able header and arrays under `key`. Where that fails there is no error: the next load misses."""
    index, offset = [], 0
    for name, array in arrays.items():
        index.append((name, array.dtype.str, array.shape, offset))
        offset = _aligned(offset + array.nbytes)
    text = json.dumps({"header": header, "arrays": index}).encode()
    base = _aligned(len(_MAGIC) + 8 + len(text))
    body = bytearray(base + offset)
    prefix = _MAGIC + len(text).to_bytes(8, "little") + text
    body[: len(prefix)] = prefix
    for (_, _, _, at), array in zip(index, arrays.values(), strict=True):
        body[base + at : base + at + array.nbytes] = np.ascontiguousarray(array).tobytes()
    with contextlib.suppress(OSError):
        path = cache_dir() / key
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                file.write(hashlib.sha256(body).digest())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN
