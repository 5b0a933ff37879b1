"""Changes inside a piece that is as long as the text: equal to a full encode, by windows that are short."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from tests import artifacts
from tests.sessions.walks import PARTS, reference
from toktier_jax.sessions import SessionStore, Window


@pytest.mark.parametrize("subject", ["mistral-v1", "mistral-v3"])
def test_changes_of_one_long_piece(subject: str, scale: float) -> None:
    store, encode, sizes = _opened(subject)
    draw = random.Random(subject)
    session = store.open("a", "".join(draw.choices("abcd\u4e2d", k=8000)))
    assert store.engine.info.way == "tokens"
    sizes.clear()
    for step in range(int(40 * scale)):
        length = len(session.text)
        new = "".join(draw.choices(PARTS if step % 3 == 0 else "abcd\u00e9\u4e2d", k=draw.randrange(30)))
        at = draw.randrange(length) if step % 2 else length
        patch_of = session.ids
        patch = session.replace(at, min(length, at + draw.choice((0, 1, 5, 40))), new)
        ids = session.ids
        assert np.array_equal(ids, encode(session.text).ids), (at, new)
        assert np.array_equal(patch.apply(patch_of), ids)
    assert float(np.median(sizes)) < 1000


@pytest.mark.parametrize("text", ["b" + "a" * 3000, "a" * 3001, "ab" * 1500])
def test_what_repeats_finds_its_phase(text: str) -> None:
    """A window of a run agrees with the old tokens at its start by chance, or not at all."""
    store, encode, _ = _opened("mistral-v1")
    session = store.open("a", text)
    for change in (
        lambda: session.append("a"),
        lambda: session.append("aab"),
        lambda: session.replace(1500, 1501, ""),
        lambda: session.replace(1500, 1500, "</s>"),
        lambda: session.replace(700, 700, "</"),
        lambda: session.replace(702, 702, "s>"),
        lambda: session.truncate(len(session.text) - 1),
    ):
        change()
        assert np.array_equal(session.ids, encode(session.text).ids)


def _opened(name: str) -> tuple[SessionStore, Callable, list[int]]:
    try:
        tokenizer = artifacts.load(name).tokenizer
    except artifacts.Missing as missing:
        pytest.skip(str(missing))
    store, sizes = SessionStore(tokenizer), []
    encode_window = store.engine.encode_window

    def counted(text: bytes, *, at_start: bool, at_end: bool) -> Window:
        sizes.append(len(text))
        return encode_window(text, at_start=at_start, at_end=at_end)

    store.engine.encode_window = counted  # type: ignore[method-assign]  # a double
    return store, reference(tokenizer), sizes
