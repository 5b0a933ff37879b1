"""Maps of characters in a row, and their tables, against applying them one after the other."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toktier_jax.errors import UnsupportedError
from toktier_jax.program.charmap import Chain, contract, map_tables, pool_of
from toktier_jax.program.normalizers import reference_normalizer
from toktier_jax.program.quickcheck import Form
from toktier_jax.spec.types import Unicode
from toktier_jax.types import FIRST_CODE, RewriteTables

SCALE = float(os.environ.get("TOKTIER_JAX_TEST_SCALE", "1"))
LETTERS = "aAé漢\U0001f600▁ﬁÅ"
maps = st.dictionaries(st.sampled_from(LETTERS).map(ord), st.text(LETTERS, max_size=3), max_size=5)


def applied(tables: list[dict[int, str]], char: str) -> str:
    for table in tables:
        char = "".join(table.get(ord(each), each) for each in char)
    return char


@settings(max_examples=max(15, int(15 * SCALE)), deadline=None)
@given(st.lists(maps, max_size=4))
def test_maps_in_a_row(tables: list[dict[int, str]]) -> None:
    chain = Chain()
    for table in tables:
        chain.map(table)
    expected = {ord(char): new for char in LETTERS if (new := applied(tables, char)) != char}
    assert chain.changed == expected
    assert chain.maps == len(tables)
    assert not chain.suspects().any()


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_forms_in_a_row_with_maps(form: Form) -> None:
    """What single characters become is what the reference makes of what they were; ﬁ, Å (Angstrom), É and marks."""
    table = {ord("a"): "ﬁ", ord("b"): "e\u0301", ord("c"): "", ord("d"): "\u212bx"}
    chain = Chain()
    chain.map(table)
    chain.normal_form(form)
    reference = reference_normalizer([Unicode(form)])
    for char in "abcdef\u212bﬁÉ½가豈":
        expected = reference.normalize_str(table.get(ord(char), char))
        assert chain.changed.get(ord(char), char) == expected, char
    assert chain.forms == [form]
    flags = chain.suspects()
    assert flags[0x301]
    assert not flags[ord("x")]
    assert not flags[ord("c")]  # nothing is left of it
    assert flags[0x1161] == form.endswith("C")  # a vowel that joins the consonant before it


def test_a_mark_that_is_dropped_is_not_suspect() -> None:
    chain = Chain()
    chain.normal_form("NFD")
    assert chain.suspects()[0x301]
    chain.map({0x301: ""})
    assert not chain.suspects()[0x301]
    assert chain.suspects()[0x302]


def read(tables: RewriteTables, codes: str, data: bytes) -> bytes:
    """A contracted text, rewritten as the tables say."""
    out, at = b"", 0
    while at < len(data):
        byte = data[at]
        size = 1 if byte < 0x80 or byte >= FIRST_CODE else 2 + (byte >= 0xE0) + (byte >= 0xF0)
        char, at = data[at : at + size], at + size
        code = ord(char.decode()) if byte < FIRST_CODE else 0x110000 + byte - FIRST_CODE
        entry = -1
        if tables.pages is not None:
            assert tables.index is not None
            entry = int(tables.pages[tables.index[code >> 8], code & 255])
        if entry >= 0:
            assert tables.pool is not None
            out += tables.pool[entry >> 8 : (entry >> 8) + (entry & 255)].tobytes()
        elif size == 1 and tables.narrow is not None:
            out += bytes([tables.narrow[byte]])
        else:
            out += char
    return out


@settings(max_examples=max(6, int(6 * SCALE)), deadline=None)  # pages of all code points are compared
@given(maps, st.sampled_from(["", "▁", "é▁"]), st.text(LETTERS, max_size=12), st.booleans())
def test_tables_of_a_map(table: dict[int, str], codes: str, text: str, contracts: bool) -> None:
    """With `contracts` the text comes in as UTF-8; every text leaves with the codes contracted."""
    changed = {code: new for code, new in table.items() if chr(code) != new}
    plan, masks, tables = map_tables(changed, codes, contracts=contracts)
    given_ = text.encode() if contracts else contract(text.encode(), codes)
    assert read(tables, codes, given_) == contract(applied([table], text).encode(), codes)
    assert plan.narrow == (tables.narrow is not None)
    assert plan.wide == (tables.pages is not None) == bool(masks)
    grown = {code for code, new in changed.items() if len(contract(new.encode(), codes)) > len(chr(code).encode())}
    assert not grown or plan.grows
    if masks:
        assert set(np.flatnonzero(masks[0])) <= {ord(char) for char in LETTERS}


def test_what_a_table_cannot_hold() -> None:
    with pytest.raises(UnsupportedError, match="256 bytes of a character"):
        map_tables({ord("a"): "b" * 256}, (), contracts=False)
    plan, _, tables = map_tables({ord("a"): "b" * 255}, (), contracts=False)
    assert read(tables, "", b"xa") == b"x" + b"b" * 255
    assert (plan.wide, plan.grows, plan.narrow) == (True, True, False)


def test_pools_are_padded() -> None:
    assert pool_of(b"").tolist() == [0]
    assert pool_of(b"abc").tolist() == [97, 98, 99, 0]
