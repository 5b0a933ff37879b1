"""Reads a loaded `tiktoken.Encoding` into a TokenizerSpec. Does not import tiktoken."""

from __future__ import annotations

import hashlib
from typing import Any

from toktier_jax.errors import SpecError
from toktier_jax.spec import types


def read_encoding(encoding: Any) -> types.TokenizerSpec:
    """`encoding` as plain values; raises SpecError where it lacks what an Encoding has.

    tiktoken keeps only what the pattern matches: text between the matches is dropped, so its split removes gaps.
    """
    ranks, specials, pattern = _parts(encoding)
    reasons = []
    if any(a != b and b.startswith(a) for a in specials for b in specials):
        reasons.append("added tokens: one special token begins another, and tiktoken takes either")
    return types.TokenizerSpec(
        source="tiktoken",
        fingerprint=_fingerprint(ranks, specials, pattern),
        dialect="tiktoken",
        model=types.BytePairRanks(ranks),
        pre_tokenizers=(types.Split(types.Pattern(pattern, regex=True), "Removed", invert=True),),
        added_tokens=tuple(
            types.AddedToken(index, content, special=True, normalized=False) for content, index in specials.items()
        ),
        host_only=tuple(reasons),
    )


def _parts(encoding: Any) -> tuple[dict[bytes, int], dict[str, int], str]:
    try:
        return encoding._mergeable_ranks, encoding._special_tokens, encoding._pat_str
    except AttributeError as error:
        raise SpecError(
            f"{type(encoding).__name__} is not a tiktoken.Encoding ({error}); tiktoken.get_encoding(name) gives one"
        ) from error


def _fingerprint(ranks: dict[bytes, int], specials: dict[str, int], pattern: str) -> str:
    """sha256 of the encoding's content, whatever the order of its dictionaries."""
    digest = hashlib.sha256(repr((pattern, sorted(specials.items()))).encode())
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        digest.update(b"%d %d " % (rank, len(token)) + token)
    return digest.hexdigest()
