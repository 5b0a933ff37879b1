"""Which characters a Unicode normal form leaves alone, asked of the reference's own normalizers.

A text without a suspect character is in the form already. The reference's Unicode is older than Python's, and is the
one that counts. The check is a superset filter, as UAX #15's quick check is: it may suspect, it never overlooks.
"""

from __future__ import annotations

import functools
import importlib.metadata
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from toktier_jax.program import cache, normalizers
from toktier_jax.program.classes import CODE_POINTS, Mask, all_characters
from toktier_jax.program.normalizers import outputs, pack_table, unpack_table

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

_LAST = "\u0345"  # no combining mark is ordered after this one
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class FormFacts:
    """What a normal form does to characters.

    reorders   bool [0x110000]  begins with a combining mark once decomposed: it can change places with marks before it
    composes   bool [0x110000]  can join the character before it, once decomposed (nothing for NFD and NFKD)
    changed    code point -> what the form makes of it where it stands alone, if that is something else
    """

    reorders: Mask
    composes: Mask
    changed: dict[int, str]

    @property
    def contextual(self) -> Mask:
        """Characters of which the form cannot be told without those before them."""
        return self.reorders | self.composes

    @property
    def suspect(self) -> Mask:
        """Characters without which any text is in the form."""
        flags = self.contextual.copy()
        flags[list(self.changed)] = True
        return flags


@functools.cache
def form_facts(form: Form) -> FormFacts:
    """The facts about a form, from the disk cache where they are."""
    source = cache.source(__file__, normalizers.__file__)
    entry = f"forms/{form}-{importlib.metadata.version('tokenizers')}-{source}"
    if (stored := cache.load(entry)) is None:
        facts = _ask(form)
        masks = np.packbits([facts.reorders, facts.composes], axis=1)
        cache.store(entry, form, {"masks": masks, "changed": pack_table(facts.changed)})
        return facts
    reorders, composes = np.unpackbits(stored[1]["masks"], axis=1).astype(bool)
    return FormFacts(reorders, composes, unpack_table(stored[1]["changed"]))


def _ask(form: Form) -> FormFacts:
    from tokenizers import normalizers

    decompose = normalizers.NFKD() if "K" in form else normalizers.NFD()
    suspects = _suspects(decompose)
    decomposed = outputs(decompose, suspects)
    reorders, composes = np.zeros(CODE_POINTS, bool), np.zeros(CODE_POINTS, bool)
    reorders[[code for code in suspects if _moves(decompose, chr(code))]] = True
    if form.endswith("C"):
        later = {char for text in outputs(normalizers.NFD(), suspects).values() for char in text[1:]}
        firsts = {code: decomposed.get(code, chr(code))[:1] for code in {*suspects, *map(ord, later)}}
        composes[[code for code, first in firsts.items() if first in later]] = True
    return FormFacts(reorders, composes, outputs(getattr(normalizers, form)(), decomposed))


def _suspects(decompose: Any) -> list[int]:
    """Code points in whose neighbourhood the decomposition changes anything, marks set between them.

    Where it changes nothing, no character decomposes and none changes places with the mark before it; then it does not
    compose to something else either.
    """
    characters = all_characters()
    found: list[int] = []
    for start in range(0, len(characters), _BLOCK):
        part = characters[start : start + _BLOCK]
        text = _LAST + _LAST.join(part) + _LAST
        if decompose.normalize_str(text) != text:
            found += map(ord, part)
    return found


def _moves(decompose: Any, char: str) -> bool:
    """Whether the character, decomposed, begins with a combining mark."""
    return char == _LAST or decompose.normalize_str("a" + _LAST + char)[1] != _LAST
