"""A text brought into a Unicode normal form as the reference does it: between added tokens, each part by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.host.align import Alignment, Form, align
from toktier_jax.host.reference import Special
from toktier_jax.spec import types as spec


def normalize(form: Form, added: Sequence[spec.AddedToken], data: bytes, special: Special) -> Alignment:
    """The text in its normal form: what is between the raw added tokens, each part by itself, as the reference does.

    Raises UnsupportedError where the parts are not what lies between literals.
    """
    raw = [token for token in added if not token.normalized]
    if any(token.lstrip or token.rstrip or token.single_word for token in raw):
        raise UnsupportedError(f"{form} of a text between added tokens that strip white space or match single words")
    contents = sorted((token.content for token in raw), key=len, reverse=True)
    skipped = {token.content for token in raw if token.special and special == "text"}
    pattern = re.compile("|".join(map(re.escape, contents)) if contents else "(?!)")
    text = data.decode()
    parts: list[Alignment] = []
    begin = offset = 0
    for found in pattern.finditer(text):
        if found.group() in skipped:
            continue
        for part, keep in ((text[begin : found.start()], False), (found.group(), True)):
            parts.append(_moved(_kept(part) if keep else align(form, part), offset))
            offset += len(part.encode())
        begin = found.end()
    parts.append(_moved(align(form, text[begin:]), offset))
    return Alignment(b"".join(part.data for part in parts), *map(np.concatenate, list(zip(*parts, strict=True))[1:]))


def _kept(text: str) -> Alignment:
    data = text.encode()
    starts = np.arange(len(data))
    return Alignment(data, starts, starts + 1, starts + 1)


def _moved(part: Alignment, offset: int) -> Alignment:
    return Alignment(part.data, part.starts + offset, part.ends + offset, part.gapped + offset)
