"""Finds special tokens written in a text, for callers who want them refused. Asks the reference only if one may be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from toktier_jax.host.reference import Reference
from toktier_jax.spec import types


def find_special(text: str, spec: types.TokenizerSpec, reference: Callable[[], Reference]) -> int | None:
    """The character at which the first special token of `text` begins that the reference would take for one, or None.

    Flags such as `single_word`, longer added tokens and normalization decide that, so the reference is asked: an id of
    a special token that is not there when special tokens are text comes from a special token.
    """
    specials = [token for token in spec.added_tokens if token.special]
    literal = any(token.content in text for token in specials)
    if not literal and not any(token.normalized and spec.normalizers for token in specials):
        return None
    engine = reference()
    parsed, plain = (engine.encode_bare(text, special=special) for special in ("parse", "text"))
    ordinary = set(zip(plain.ids.tolist(), map(tuple, plain.offsets.tolist()), strict=True))
    ids = np.array([token.id for token in specials])
    for i in np.flatnonzero(np.isin(parsed.ids, ids)).tolist():
        start, end = parsed.offsets[i].tolist()
        if (int(parsed.ids[i]), (start, end)) not in ordinary:
            return start
    return None
