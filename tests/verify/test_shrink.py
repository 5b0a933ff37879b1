"""Failing texts become small."""

from __future__ import annotations

from toktier_jax.verify.shrink import shrink


def test_only_what_the_failure_needs_is_left() -> None:
    text = "lorem ipsum " * 50 + "é" + "dolor" * 30 + "ß" + "sit amet " * 20
    assert shrink(text, lambda t: "é" in t and "ß" in t and t.index("é") < t.index("ß")) == "éß"


def test_characters_that_do_not_matter_become_plain() -> None:
    assert shrink("日本語", lambda t: len(t) == 3) == "aaa"


def test_time_bounds_the_search() -> None:
    assert shrink("abc", lambda t: True, seconds=0.0) == "abc"
