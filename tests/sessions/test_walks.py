"""Sessions equal a full encode after every step of random walks: a stand-in engine, and real tokenizers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import artifacts
from tests.sessions import standin
from tests.sessions.walks import Difference, Expected, reference, walk, whole
from toktier_jax.errors import UnsupportedError
from toktier_jax.sessions import SessionStore

STEPS = 250


@pytest.mark.parametrize("way", ["anchors", "black box", "full"])
def test_stand_in(way: str, scale: float) -> None:
    engine = standin.StandIn(way=way)

    def encode(text: str) -> Expected:
        return Expected(standin.expected(engine, text))

    done = walk(SessionStore(engine), None, encode, random.Random(way), int(STEPS * 4 * scale))
    assert done.kinds["append"] > STEPS * scale
    assert done.store.stats()["changes"].get("full", 0) == 0 or way != "anchors"


def test_stand_in_on_disk(tmp_path: Path, scale: float) -> None:
    engine = standin.StandIn()

    def encode(text: str) -> Expected:
        return Expected(standin.expected(engine, text))

    def reopen() -> SessionStore:
        return SessionStore(engine, tmp_path, max_bytes=20_000)

    done = walk(reopen(), reopen, encode, random.Random(1), int(STEPS * 3 * scale))
    assert done.kinds["restart"]


def _counted(engine: standin.StandIn) -> tuple[Callable[[str], Expected], list[str]]:
    """Full encodes, and the texts that were asked for."""
    asked: list[str] = []

    def encode(text: str) -> Expected:
        asked.append(text)
        return Expected(standin.expected(engine, text))

    return encode, asked


def test_only_what_did_something_counts(tmp_path: Path) -> None:
    """Without a disk nothing is evicted or read back; with one and room for all, nothing is evicted."""
    engine = standin.StandIn()
    encode, _ = _counted(engine)
    in_memory = walk(SessionStore(engine), None, encode, random.Random(2), 300)
    assert in_memory.kinds.total() == 300
    assert not {"evict", "restart", ""} & set(in_memory.kinds)
    counts = {}
    for room in (1, 1 << 30):
        stores: list[SessionStore] = []

        def reopen(room: int = room, stores: list[SessionStore] = stores) -> SessionStore:
            stores.append(SessionStore(engine, tmp_path / str(room), max_bytes=room))
            return stores[-1]

        done = walk(reopen(), reopen, encode, random.Random(2), 300)
        assert done.kinds.total() == 300
        assert done.kinds["restart"] == len(stores) - 1 > 0
        counts[room] = done.kinds["evict"]
        evicted = sum(store.stats()["counts"].get("evicted", 0) for store in stores)
        assert evicted >= done.kinds["evict"]
        stores[-1].close()
    assert counts[1] > 0 == counts[1 << 30]


def test_a_long_text_stays_long_and_is_compared_now_and_then() -> None:
    engine = standin.StandIn()
    encode, asked = _counted(engine)
    start = "some words, 12 of them.\n" * 1000
    done = walk(
        SessionStore(engine), None, encode, random.Random(3), 41, start=start, most=30_000, reach=500, compare_every=10
    )
    assert done.lengths == {100_000: 41}
    assert done.longest >= len(start)
    assert done.compared == done.spans == len(asked) == 5  # 0, 10, 20, 30, 40


def test_a_wrong_text_or_id_is_a_difference() -> None:
    """Also where only the last step shows it."""
    engine = standin.StandIn()

    def encode(text: str) -> Expected:
        ids = standin.expected(engine, text)
        return Expected(ids if len(text) < 100 else ids[:-1])

    with pytest.raises(Difference, match=r"^ids of .*characters"):
        walk(SessionStore(engine), None, encode, random.Random(4), 2, start="ab " * 1000, most=4000, compare_every=9)
    walk(SessionStore(engine), None, encode, random.Random(4), 3, start="ab", compare_every=9)


@pytest.mark.parametrize(
    ("reason", "way", "found"),
    [
        ("odd", "anchors", {"reference: odd": 1}),
        ("odd", "black box", {}),
        ("a piece of the text has more than 9 bytes to merge", "anchors", {}),
    ],
)
def test_what_is_encoded_whole_is_told(reason: str, way: str, found: dict[str, int]) -> None:
    class Refusing(standin.StandIn):
        def encode_window(self, text: bytes, *, at_start: bool, at_end: bool):
            raise UnsupportedError(reason)

    with SessionStore(Refusing(way=way)) as store:
        store.open("a").append("x")
        assert store.stats()["changes"] == {f"reference: {reason}": 1}
        assert whole(store) == found


@pytest.mark.parametrize("name", ["qwen-3", "deepseek-v3", "trained-falcon", "mistral-v1", "trained-clip"])
def test_tokenizers(name: str, scale: float) -> None:
    """Every change on a compiled pattern is repaired."""
    tokenizer = _tokenizer(name)
    store = SessionStore(tokenizer)
    walk(store, None, reference(tokenizer), random.Random(name), int(STEPS * scale), most=400, spans_every=4)
    assert set(store.stats()["changes"]) <= {"append", "edit", "widened"}


@pytest.mark.parametrize("name", ["qwen-3", "mistral-v1"])
def test_tokenizers_on_long_texts(name: str) -> None:
    """Several chunks of text and blocks of tokens."""
    tokenizer = _tokenizer(name)
    start = "def f(x):\n    return 中文 12 the quick fox\n" * 500
    options = {"start": start, "most": 24_000, "reach": 6000, "compare_every": 8}
    done = walk(SessionStore(tokenizer), None, reference(tokenizer), random.Random(name), 40, **options)
    assert done.longest > 4 * 4096


@pytest.mark.slow
@pytest.mark.parametrize("name", list(artifacts.NAMES))
def test_all_tokenizers(name: str, scale: float) -> None:
    tokenizer = _tokenizer(name)
    if tokenizer.spec.padding or tokenizer.spec.truncation:
        pytest.skip("sessions refuse files that pad or truncate")
    done = walk(SessionStore(tokenizer), None, reference(tokenizer), random.Random(name), int(100 * scale), most=400)
    assert whole(done.store) == {}, "every change on a compiled pattern is repaired"


def _tokenizer(name: str):
    try:
        return artifacts.load(name).tokenizer
    except artifacts.Missing as missing:
        pytest.skip(str(missing))
