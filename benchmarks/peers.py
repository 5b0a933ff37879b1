"""The engines that are measured, behind one shape: load once, then text -> result, and result -> ids apart.

Each returns its own fastest form of the ids, so converting to a NumPy array is not part of a timed call. Nobody adds
template tokens; everybody parses added tokens in the text. Peers are in the `bench` extra alone, hence the ignores.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.artifacts import Artifact
from toktier_jax.errors import UnsupportedError

OURS = "toktier-jax"
REFERENCE = "reference"
"""`tokenizers` for a tokenizer.json, `tiktoken` for a tiktoken encoding."""


@dataclass(frozen=True)
class Engine:
    """`encode(text)` is timed, `ids(result)` (int32 [n]) is not."""

    encode: Callable[[str], Any]
    ids: Callable[[Any], np.ndarray]
    tokenizer: Any


def load(name: str, artifact: Artifact) -> Engine:
    """The engine `name` for that tokenizer. Raises UnsupportedError where it is not installed or cannot."""
    return _LOADERS[name](artifact)


def of(artifact: Artifact) -> tuple[str, ...]:
    """The names to measure for that tokenizer, the reference first, ours last."""
    names = tuple(name for name in _LOADERS if name not in (REFERENCE, OURS))
    return (REFERENCE, *(names if artifact.kind == "tokenizer.json" else ()), OURS)


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UnsupportedError(f"the package {package} is not installed; pip install 'toktier-jax[bench]' brings it")


def _array(ids: Sequence[int]) -> np.ndarray:
    return np.asarray(ids, dtype=np.int32)


def _ours(artifact: Artifact) -> Engine:
    tokenizer = artifact.tokenizer
    return Engine(lambda text: tokenizer.encode(text, add_special_tokens=False), lambda out: out.ids, tokenizer)


def _reference(artifact: Artifact) -> Engine:
    if artifact.kind == "tiktoken":
        return _tiktoken_engine(artifact.reference)
    tokenizer = artifact.reference
    return Engine(lambda text: tokenizer.encode(text, add_special_tokens=False), lambda out: _array(out.ids), tokenizer)


def _tiktoken_engine(encoding: Any) -> Engine:
    return Engine(lambda text: encoding.encode(text, allowed_special="all"), _array, encoding)


def _tiktoken(artifact: Artifact) -> Engine:
    """tiktoken with the ranks of a byte-level tokenizer.json whose ids are its merge ranks, as Qwen's are."""
    _require("tiktoken")
    import tiktoken

    file = json.loads(artifact.file)
    steps = file["pre_tokenizer"].get("pretokenizers", []) if file["pre_tokenizer"] else []
    if [step["type"] for step in steps] != ["Split", "ByteLevel"]:
        raise UnsupportedError("tiktoken needs a byte-level BPE behind one Split")
    alphabet = _byte_alphabet()
    added = {token["content"]: token["id"] for token in file["added_tokens"]}
    vocabulary = {token: id for token, id in file["model"]["vocab"].items() if token not in added}
    ranks = {bytes(alphabet[character] for character in token): id for token, id in vocabulary.items()}
    pattern = steps[0]["pattern"]["Regex"]
    encoding = tiktoken.Encoding(artifact.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=added)
    return _tiktoken_engine(encoding)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable alphabet: character -> byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


def _fastokens(artifact: Artifact) -> Engine:
    _require("fastokens")
    from fastokens._native import Tokenizer  # pyright: ignore[reportMissingImports]  # extra: bench

    tokenizer = Tokenizer.from_json_str(artifact.file.decode())
    return Engine(
        lambda text: tokenizer.encode_batch_flat([text])[0],
        lambda out: np.frombuffer(out, np.uint32).astype(np.int32),
        tokenizer,
    )


def _gigatoken(artifact: Artifact) -> Engine:
    _require("gigatoken")
    import gigatoken  # pyright: ignore[reportMissingImports]  # extra: bench

    tokenizer = gigatoken.Tokenizer.from_json(artifact.file)
    return Engine(tokenizer.encode, lambda out: np.asarray(out).astype(np.int32), tokenizer)


def _toktier(artifact: Artifact) -> Engine:
    """toktier loads certified families by the digest of their tokenizer.json, out of a cache that we fill."""
    _require("toktier")
    import toktier  # pyright: ignore[reportMissingImports]  # extra: bench
    from toktier.artifacts import (  # pyright: ignore[reportMissingImports]  # extra: bench
        ArtifactEntry,
        ArtifactFile,
        ArtifactManifest,
    )

    families = {"qwen-3": "qwen3_8b", "qwen-3.5": "qwen3_5_08b", "deepseek-v3": "deepseek_v3"}
    if artifact.name not in families:
        raise UnsupportedError(f"toktier has no certified family for {artifact.name}")
    digest = hashlib.sha256(artifact.file).hexdigest()
    file = ArtifactFile("tokenizer.json", digest, len(artifact.file))
    entry = ArtifactEntry(family=families[artifact.name], repo_id="local", revision="local", files=(file,))
    root = Path(tempfile.mkdtemp())
    folder = root / "artifacts" / entry.directory_name
    folder.mkdir(parents=True, mode=0o700)
    (folder / "tokenizer.json").write_bytes(artifact.file)
    tokenizer = toktier.load(
        entry.family,
        manifest=ArtifactManifest({entry.family: entry}),
        config=toktier.Config(cache_dir=root),
        device="cpu",
    )
    return Engine(lambda text: tokenizer.encode(text, lookup="off"), lambda out: _array(out.ids), tokenizer)


_LOADERS: dict[str, Callable[[Artifact], Engine]] = {
    REFERENCE: _reference,
    "tiktoken": _tiktoken,
    "fastokens": _fastokens,
    "gigatoken": _gigatoken,
    "toktier": _toktier,
    OURS: _ours,
}
