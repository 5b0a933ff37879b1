"""Random walks over sessions, compared with a full encode after every step. benchmarks/walks.py takes many."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from toktier_jax.sessions import Patch, Session, SessionStore

PARTS = (
    "a", " ", "  ", "\n", "\r", "\r\n", "'", "ll", "'s", "1", "12", "123", "4567", " <", "|im_start|>", "<|im_end|>",
    "<s>", "</s>", "<|x", "|>", "<|x|>", "é", "e\u0301", "\u0301", "각", "\u1100\u1161", "\u11a8", "🇩🇪", "🇩", "👩‍👩",
    "\u200d", "𐐀", "A", "Ab", " b", "§ ", "x" * 40, "中文", "\u3000", "\t", ".", "...", "!?", "_", " \n\n ",
    "the quick", " fox", "0" * 20, "ba" + "a" * 30, "</", "▁", " việc", "Ω", "def f(x):\n    return ", "$", "\u00a0",
)  # fmt: skip
"""What hurts: digits that grow, white space before a letter, halves of added tokens, marks that arrive one by one."""


class Expected(NamedTuple):
    """A full encode less the template ids after the text; `spans()`: in bytes and in characters, if to be compared."""

    ids: np.ndarray
    spans: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None


class Difference(AssertionError):
    """A session differs from the full encode."""


def walk(
    store: SessionStore,
    reopen: Callable[[], SessionStore] | None,
    encode: Callable[[str], Expected],
    draw: random.Random,
    steps: int,
    *,
    most: int = 1200,
    spans_every: int = 1,
) -> tuple[Counter[str], SessionStore]:
    """Takes `steps` steps; returns what they were. Raises Difference. `reopen` ends the store and opens it again."""
    done: Counter[str] = Counter()
    texts: dict[str, str] = {"s0": ""}
    handles: dict[str, Session] = {"s0": store.open("s0")}
    for step in range(steps):
        name = draw.choice(list(texts))
        session, text = handles[name], texts[name]
        new = "".join(draw.choices(PARTS, k=draw.randrange(1, 7)))
        kind = draw.choices(("append", "edit", "truncate", "update", "fork", "evict", "restart"), _WEIGHTS)[0]
        old = session.ids
        patch: Patch | None = None
        if len(text) > most:
            kind = "truncate"
        match kind:
            case "append":
                patch, text = session.append(new), text + new
            case "edit":
                start = draw.randrange(len(text) + 1)
                stop = min(len(text), start + draw.choice((0, 0, 1, 5, 40)))
                new = new if draw.random() < 0.8 else ""
                patch, text = session.replace(start, stop, new), text[:start] + new + text[stop:]
            case "truncate":
                length = draw.randrange(len(text) // 2, len(text) + 1)
                patch, text = session.truncate(length), text[:length]
            case "update":
                text = text[: draw.randrange(len(text) + 1)] + new + text[draw.randrange(len(text) + 1) :]
                patch = session.update(text)
            case "fork" if len(texts) < 4:
                name = f"s{step + 1}"
                session = handles[name] = session.fork(name)
            case "evict":
                session.close()
                store._memory.make_room()  # on disk with room for nothing, it has left
                session = handles[name] = store.open(name, text)
            case "restart" if reopen is not None:
                store.close()
                store = reopen()
                handles = {each: store.open(each, texts[each]) for each in texts}
                session = handles[name]
        texts[name] = text
        done[kind] += 1
        _compare(session, text, encode(text), old, patch, spans=step % spans_every == 0)
        if len(texts) >= 4:
            gone = draw.choice(list(texts))
            handles.pop(gone).close()
            store.delete(gone)
            del texts[gone]
    for handle in handles.values():
        handle.close()
    return done, store


_WEIGHTS = (45, 28, 8, 8, 4, 4, 3)


def _compare(session: Session, text: str, want: Expected, old: np.ndarray, patch: Patch | None, *, spans: bool) -> None:
    ids = session.ids
    if session.text != text:
        raise Difference(f"text: {session.text!r}, not {text!r}")
    if not np.array_equal(ids, want.ids):
        raise Difference(f"ids of {text!r}")
    if patch is not None and not np.array_equal(patch.apply(old), ids):
        raise Difference(f"patch to {text!r}")
    if not spans or want.spans is None:
        return
    in_bytes, in_characters = want.spans()
    if not np.array_equal(session.byte_spans, in_bytes):
        raise Difference(f"byte spans of {text!r}")
    if not np.array_equal(session.char_spans, in_characters):
        raise Difference(f"character spans of {text!r}")


def reference(tokenizer) -> Callable[[str], Expected]:
    """Full encodes by the reference of a Tokenizer."""
    after = len(tokenizer.spec.post_processor.after)

    @functools.lru_cache(maxsize=4)
    def encode(text: str) -> Expected:
        found = tokenizer.encode(text, route="reference")
        count = len(found.ids) - after
        return Expected(found.ids[:count], lambda: (found.byte_spans[:count], found.char_spans[:count]))

    return encode
