"""Texts in a Unicode normal form, which are all that a tokenizer with that normalizer ever encodes. No tokens.

A part of a text in the form is in the form, so bytes can begin one or they cannot: whatever follows changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.host import normalize
from toktier_jax.program.quickcheck import form_facts
from toktier_jax.sampling.characters import code_points, unfinished
from toktier_jax.spec import types


class NormalForm:
    """One of NFC, NFD, NFKC and NFKD, as the reference has it.

    free        bool [0x110000]: characters that may come after any text in the form
    contextual  bool [0x110000]: those that may come after some texts and not after others
    """

    def __init__(self, form: types.Unicode) -> None:
        from tokenizers import normalizers

        facts = form_facts(form.form)
        self.name = form.form
        self.contextual = facts.contextual
        self.free = ~facts.suspect
        self.free[0xD800:0xE000] = False
        self._normalize = getattr(normalizers, form.form)().normalize_str

    def holds(self, text: str) -> bool:
        """Whether a text is in the form."""
        return text.isascii() or self._normalize(text) == text

    def end(self, text: bytes) -> bytes:
        """The end of `text` on which alone it depends what may follow: from the last character on that is not
        contextual. `text` is in the form, and may end inside a character."""
        whole = text[: len(text) - len(unfinished(text, strict=False))]
        at = len(whole)
        while at > 0:
            start = at - 1
            while start > 0 and whole[start] & 0xC0 == 0x80:
                start -= 1
            char = whole[start:at].decode(errors="replace")[0]
            at = start
            if not self.contextual[ord(char)]:
                break
        return text[at:]

    def begins(self, data: bytes) -> bool:
        """Whether some text in the form begins with these bytes. Bytes that are not UTF-8 begin none."""
        part = unfinished(data, strict=False)
        try:
            text = data[: len(data) - len(part)].decode()
        except UnicodeDecodeError:
            return False
        return self.holds(text) and (not part or bool(self.completions(self.end(data)).any()))

    @functools.lru_cache(maxsize=1 << 12)  # noqa: B019  # one object a form, see `normal_form`
    def completions(self, data: bytes) -> np.ndarray:
        """bool: which of `code_points` the character that `data` ends inside can become. `data` is what `end` gives."""
        part = unfinished(data, strict=False)
        codes, before = code_points(part), data[: len(data) - len(part)].decode()
        found = self.free[codes.start : codes.stop].copy()
        for at in np.flatnonzero(self.contextual[codes.start : codes.stop]).tolist():
            found[at] = self.holds(before + chr(codes[at]))
        return found


@functools.cache
def _of(form: types.Unicode) -> NormalForm:
    return NormalForm(form)


def normal_form(steps: Sequence[types.Normalizer]) -> NormalForm | None:
    """The form that these normalizers bring texts into, None for none. Raises UnsupportedError, by name, for others."""
    for step in steps:
        if not isinstance(step, types.Unicode):
            raise UnsupportedError(f"no exact covers with the normalizer {type(step).__name__}")
    if len(set(steps)) > 1:
        raise UnsupportedError("no exact covers with more than one Unicode normal form")
    return _of(steps[0]) if steps else None  # type: ignore[arg-type]  # checked above


def normalized(spec: types.TokenizerSpec, data: bytes) -> bytes:
    """The text after the Unicode normalizers, added tokens as they are; `data` may end inside a character.

    Raises UnsupportedError where a normal form makes or unmakes an added token of the text.
    """
    tail = unfinished(data)
    whole = data[: len(data) - len(tail)]
    for step in spec.normalizers:
        if isinstance(step, types.Unicode) and not whole.isascii():
            whole = normalize.normalize(step.form, spec.added_tokens, whole, "parse").data
    return whole + tail
