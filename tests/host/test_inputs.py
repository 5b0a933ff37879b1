"""What callers may pass, and errors that name the place."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from toktier_jax.errors import InputError
from toktier_jax.host import inputs


def test_texts() -> None:
    assert inputs.check_text("é\0") == ("é\0", b"\xc3\xa9\0")
    assert inputs.check_text(b"\xc3\xa9") == inputs.check_text(bytearray(b"\xc3\xa9")) == ("é", b"\xc3\xa9")
    assert inputs.check_texts(iter(["a", b"b"])) == [("a", b"a"), ("b", b"b")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("aé\ud800b", "lone surrogate U\\+D800 at character 2"),
        (b"a\xc3\xa9\xff", "not UTF-8 at byte 3 \\(0xff"),
        (b"a\xe6\x97", "not UTF-8 at byte 1"),
        (None, "not NoneType"),
        (3, "not int"),
        (["a"], "not list"),
    ],
)
def test_bad_texts(text: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        inputs.check_text(text)


@pytest.mark.parametrize(
    ("texts", "says"),
    [("text", "not one str; wrap"), (b"text", "not one bytes"), (None, "NoneType"), (["a", None], "text 1 must be")],
)
def test_bad_lists_of_texts(texts: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        inputs.check_texts(texts)


def test_ids() -> None:
    for ids in ([1, 2], (1, 2), np.array([1, 2], np.uint32), jnp.array([1, 2])):
        assert inputs.check_ids(ids, 3) == [1, 2]
    assert inputs.check_ids([], 3) == inputs.check_ids(np.zeros(0), 3) == []


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([1, 3], "id 3 at index 1 is out of range; the ids end at 2"),
        ([-1], "id -1 at index 0"),
        ([1 << 70], "at index 0 is out of range"),
        ([0.0], "float64"),
        ([True], "bool"),
        ([[1]], "2-dimensional"),
        ([[1], [2, 3]], "flat"),
        (1, "one id is a list of one"),
        ("12", "not str"),
        (None, "flat"),
    ],
)
def test_bad_ids(ids: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        inputs.check_ids(ids, 3)


def test_choices_and_counts() -> None:
    assert inputs.check_choice("side", "left", ("left", "right")) == "left"
    assert inputs.check_count("length", np.int64(3)) == 3
    with pytest.raises(InputError, match="side must be one of 'left', 'right', not 'up'"):
        inputs.check_choice("side", "up", ("left", "right"))
    for value in (0, -1, 1.5, True, "3"):
        with pytest.raises(InputError, match="length must be an integer from 1"):
            inputs.check_count("length", value)
