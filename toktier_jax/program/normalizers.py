"""The reference's own normalizer objects for the normalizers of a spec, and what they make of single characters."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.program import cache
from toktier_jax.program.classes import CODE_POINTS
from toktier_jax.spec import types as spec

SEPARATOR = "\ua4d0"
"""A letter that no normalizer changes, makes, or joins with another (`outputs` checks that)."""

_SINGLE = {
    "clean": spec.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False),
    "chinese": spec.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False),
    "accents": spec.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False),
    "lowercase": spec.Lowercase(),
    "marks": spec.StripAccents(),
    "nmt": spec.Nmt(),
}


def reference_normalizer(steps: Sequence[spec.Normalizer]) -> Any:
    """A `tokenizers` normalizer that applies these in order."""
    from tokenizers import normalizers

    return normalizers.Sequence([_one(step) for step in steps])


def outputs(normalizer: Any, codes: Iterable[int]) -> dict[int, str]:
    """What a normalizer makes of each character that stands alone, where that is something else."""
    codes = [code for code in codes if code != ord(SEPARATOR) and not 0xD800 <= code < 0xE000]
    text = "".join(chr(code) + SEPARATOR for code in codes)
    parts = normalizer.normalize_str(text).split(SEPARATOR)
    assert len(parts) == len(codes) + 1, "the separator was changed or made"
    return {code: part for code, part in zip(codes, parts, strict=False) if part != chr(code)}


@functools.cache
def character_table(name: str) -> dict[int, str]:
    """`outputs` for all characters of a normalizer that looks at each alone, from the disk cache where they are.

    `name`: "clean", "chinese" and "accents" are parts of BertNormalizer ("accents" drops nonspacing marks of text that
    is decomposed already); "lowercase", "marks" (StripAccents), "nmt".
    """
    entry = f"maps/{name}-{importlib.metadata.version('tokenizers')}-{cache.source(__file__)}"
    if (stored := cache.load(entry)) is None:
        table = outputs(_one(_SINGLE[name]), range(CODE_POINTS))
        cache.store(entry, name, {"table": pack_table(table)})
        return table
    return unpack_table(stored[1]["table"])


def pack_table(table: dict[int, str]) -> np.ndarray:
    """A table from characters to strings as uint32 [n], for the cache."""
    text = "".join(chr(code) + new + SEPARATOR for code, new in table.items())
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def unpack_table(packed: np.ndarray) -> dict[int, str]:
    """The inverse of `pack_table`."""
    parts = packed.tobytes().decode("utf-32-le").split(SEPARATOR)[:-1]
    return {ord(part[0]): part[1:] for part in parts}


def _one(step: spec.Normalizer) -> Any:
    from tokenizers import Regex, normalizers

    match step:
        case spec.Unicode(form):
            return getattr(normalizers, form)()
        case spec.Lowercase() | spec.StripAccents() | spec.Nmt():
            return getattr(normalizers, type(step).__name__)()
        case spec.Replace(pattern, content):
            return normalizers.Replace(Regex(pattern.text) if pattern.regex else pattern.text, content)
        case spec.Prepend(prepend):
            return normalizers.Prepend(prepend)
        case spec.Strip(left, right):
            return normalizers.Strip(left=left, right=right)
        case spec.BertNormalizer():
            return normalizers.BertNormalizer(
                clean_text=step.clean_text,
                handle_chinese_chars=step.handle_chinese_chars,
                strip_accents=step.strip_accents,
                lowercase=step.lowercase,
            )
        case spec.ByteLevelNormalizer():
            return normalizers.ByteLevel()
    raise UnsupportedError(f"normalizer {type(step).__name__}")
