"""Normalizers that change each character by itself, in a row: what becomes of each, and the tables of such a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import MapPlan
from toktier_jax.program.classes import CODE_POINTS, Mask
from toktier_jax.program.normalizers import SEPARATOR, reference_normalizer
from toktier_jax.program.quickcheck import Form, form_facts
from toktier_jax.spec.types import Unicode
from toktier_jax.types import FIRST_CODE, RewriteTables


def _no_characters() -> Mask:
    return np.zeros(CODE_POINTS, bool)


@dataclass
class Chain:
    """Character by character normalizers in a row.

    changed   code point -> the string that it becomes, where that is something else
    flags     characters whose form depends on those before them
    marks     characters that begin with a combining mark where a form orders such marks
    forms     the Unicode forms among the normalizers
    maps      how many others there are
    """

    changed: dict[int, str] = field(default_factory=dict)
    flags: Mask = field(default_factory=_no_characters)
    marks: Mask = field(default_factory=_no_characters)
    forms: list[Form] = field(default_factory=list)
    maps: int = 0

    def map(self, table: Mapping[int, str]) -> None:
        """A normalizer that makes of each character a string."""
        new = {code: "".join(table.get(ord(char), char) for char in text) for code, text in self.changed.items()}
        new.update((code, text) for code, text in table.items() if code not in new)
        self.changed = {code: text for code, text in new.items() if text != chr(code)}
        self.maps += 1

    def normal_form(self, form: Form) -> None:
        """A Unicode form. What a character became may be several: they are brought into the form together."""
        facts = form_facts(form)
        firsts = np.arange(CODE_POINTS)
        for code, text in self.changed.items():
            firsts[code] = ord(text[0]) if text else ord("a")
        self.flags |= facts.contextual[firsts] if form.endswith("C") else facts.composes[firsts]
        self.marks |= facts.reorders[firsts]
        alone = {chr(code): text for code, text in facts.changed.items()}
        new = {code: alone.get(text, text) for code, text in self.changed.items()}
        longer = [code for code, text in self.changed.items() if len(text) > 1]
        if longer:
            joined = SEPARATOR.join(self.changed[code] for code in longer)
            parts = reference_normalizer([Unicode(form)]).normalize_str(joined).split(SEPARATOR)
            new.update(zip(longer, parts, strict=True))
        new.update((code, text) for code, text in facts.changed.items() if code not in self.changed)
        self.changed = {code: text for code, text in new.items() if text != chr(code)}
        self.forms.append(form)

    def suspects(self) -> Mask:
        """Characters for the quick check. Where a mark stood that is dropped in the end does not matter."""
        dropped = _no_characters()
        dropped[[code for code, text in self.changed.items() if not text]] = True
        return self.flags | (self.marks & ~dropped)


def contract(data: bytes, codes: Sequence[str]) -> bytes:
    """UTF-8 as it stands in a buffer in which `codes` are contracted."""
    for number, char in enumerate(codes):
        data = data.replace(char.encode(), bytes([FIRST_CODE + number]))
    return data


def map_tables(
    changed: Mapping[int, str], codes: Sequence[str], *, contracts: bool
) -> tuple[MapPlan, tuple[Mask, ...], RewriteTables]:
    """A map of characters in a buffer in which `codes` are contracted; with `contracts`, from this step on.

    Plan, the mask of the wide characters (if there are any) and the tables without its members.
    """
    new = {code: contract(text.encode(), codes) for code, text in changed.items()}
    for number, char in enumerate(codes):
        if contracts:
            new.setdefault(ord(char), bytes([FIRST_CODE + number]))
        elif ord(char) in new:
            new[CODE_POINTS + number] = new.pop(ord(char))
    narrow = np.arange(256).astype(np.uint8)
    wide: dict[int, bytes] = {}
    for code, text in new.items():
        byte = code if code < 0x80 else FIRST_CODE + code - CODE_POINTS
        if len(text) == 1 and 0 <= byte < 256:
            narrow[byte] = text[0]
        else:
            wide[code] = text
    longest = max(map(len, wide.values()), default=0)
    if longest > 255:
        raise UnsupportedError(f"a normalizer that makes {longest} bytes of a character (at most 255)")
    changes = bool((narrow != np.arange(256)).any())
    plan = MapPlan(changes, bool(wide), any(len(text) > _width(code) for code, text in wide.items()))
    mask = _no_characters()
    mask[[code if code < CODE_POINTS else ord(codes[code - CODE_POINTS]) for code in wide]] = True
    tables = RewriteTables(narrow=narrow if changes else None)
    return plan, (mask,) if wide else (), _with_pages(tables, wide) if wide else tables


def _with_pages(tables: RewriteTables, wide: Mapping[int, bytes]) -> RewriteTables:
    places: dict[bytes, int] = {}
    used = 0
    for text in wide.values():
        if text not in places:
            places[text] = used
            used += len(text)
    table = np.full((4360, 256), -1, np.int32)
    for code, text in wide.items():
        table[code >> 8, code & 255] = places[text] << 8 | len(text)
    rows, index = np.unique(table, axis=0, return_inverse=True)
    pages = np.full((1 << (len(rows) - 1).bit_length(), 256), -1, np.int32)
    pages[: len(rows)] = rows
    return tables._replace(index=index.reshape(-1).astype(np.uint16), pages=pages, pool=pool_of(b"".join(places)))


def pool_of(data: bytes) -> np.ndarray:
    """Bytes as uint8, padded with zeros to a power of two."""
    pool = np.zeros(1 << max(len(data) - 1, 0).bit_length(), np.uint8)
    pool[: len(data)] = np.frombuffer(data, np.uint8)
    return pool


def _width(code: int) -> int:
    return len(chr(code).encode()) if code < CODE_POINTS else 1
