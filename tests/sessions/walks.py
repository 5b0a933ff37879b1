"""Random walks over sessions, compared with a full encode after every step. benchmarks/walks.py takes many."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
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


_EXPECTED = "reference: a piece of the text has more than "
"""The one reason for which a change on a compiled pattern may be encoded whole (host/window.py, LONGEST)."""


def whole(store: SessionStore) -> dict[str, int]:
    """Changes on a compiled pattern that were encoded whole instead of repaired, by what they are counted as."""
    if store.engine.info.way not in ("anchors", "tokens"):
        return {}
    changes = store.stats()["changes"].items()
    return {way: n for way, n in changes if way.startswith(("full", "reference")) and not way.startswith(_EXPECTED)}


class Difference(AssertionError):
    """A session differs from the full encode."""


@dataclass
class Walked:
    """What a walk did.

    kinds     steps that did something, by kind
    compared  steps after which the ids were compared with a full encode; spans: after which the spans were, too
    lengths   steps by the characters of the text after them: below 10, below 100, ...; longest: the most
    store     the store, as it was opened last
    """

    store: SessionStore
    kinds: Counter[str] = field(default_factory=Counter[str])
    compared: int = 0
    spans: int = 0
    lengths: Counter[int] = field(default_factory=Counter[int])
    longest: int = 0


def walk(
    store: SessionStore,
    reopen: Callable[[], SessionStore] | None,
    encode: Callable[[str], Expected],
    draw: random.Random,
    steps: int,
    *,
    start: str = "",
    most: int = 1200,
    reach: int | None = None,
    compare_every: int = 1,
    spans_every: int = 1,
) -> Walked:
    """Takes `steps` steps that do something. Raises Difference.

    reopen         ends the store and opens it again on its disk; without one no session is evicted or read back
    start          the text to begin with
    most           characters; a longer text is truncated next
    reach          characters that a truncation or an update takes or repeats at most; None: any number
    compare_every  the first step, the last and every n-th are compared with a full encode; of these every
                   `spans_every`-th in its spans
    """
    done = Walked(store)
    texts: dict[str, str] = {"s0": start}
    handles: dict[str, Session] = {"s0": store.open("s0", start)}
    kinds, weights = zip(*(each for each in _KINDS.items() if reopen or each[0] not in _ON_DISK), strict=True)
    while (step := done.kinds.total()) < steps:
        name = draw.choice(list(texts))
        session, text = handles[name], texts[name]
        far = len(text) if reach is None else reach
        new = "".join(draw.choices(PARTS, k=draw.randrange(1, 7)))
        kind = draw.choices(kinds, weights)[0]
        old = session.ids
        patch: Patch | None = None
        if len(text) > most:
            kind = "truncate"
        match kind:
            case "append":
                patch, text = session.append(new), text + new
            case "edit":
                first = draw.randrange(len(text) + 1)
                last = min(len(text), first + draw.choice((0, 0, 1, 5, 40)))
                new = new if draw.random() < 0.8 else ""
                patch, text = session.replace(first, last, new), text[:first] + new + text[last:]
            case "truncate":
                length = draw.randrange(max(len(text) // 2, len(text) - far), len(text) + 1)
                patch, text = session.truncate(length), text[:length]
            case "update":
                first = draw.randrange(len(text) + 1)
                last = draw.randrange(max(0, first - far), min(len(text), first + far) + 1)
                text = text[:first] + new + text[last:]
                patch = session.update(text)
            case "fork":
                name = f"s{step + 1}"
                session = handles[name] = session.fork(name)
            case "evict":
                revision = session.revision
                session.close()
                store._memory.make_room()
                if name in store._memory.entries:
                    kind = ""  # there was room for it
                session = handles[name] = _found_again(store, name, text, revision)
            case "restart" if reopen:
                revisions = {each: handle.revision for each, handle in handles.items()}
                _check_counts(store)
                store.close()
                store = done.store = reopen()
                handles = {each: _found_again(store, each, texts[each], revisions[each]) for each in texts}
                session = handles[name]
        if patch is not None and text == texts[name]:
            kind = ""  # such as a truncation to its length
        texts[name] = text
        compared = step % compare_every == 0 or step == steps - 1
        spans = compared and done.compared % spans_every == 0
        _compare(session, text, encode(text) if compared else None, old, patch, spans=spans)
        if kind:
            done.kinds[kind] += 1
            done.compared += compared
            done.spans += spans
            done.lengths[10 ** len(str(len(text)))] += 1
            done.longest = max(done.longest, len(text))
        if len(texts) >= 4:
            gone = draw.choice(list(texts))
            handles.pop(gone).close()
            store.delete(gone)
            del texts[gone]
    for handle in handles.values():
        handle.close()
    _check_counts(store)
    return done


_KINDS = {"append": 45, "edit": 28, "truncate": 8, "update": 8, "fork": 4, "evict": 4, "restart": 3}
"""How often each is drawn."""
_ON_DISK = ("evict", "restart")


def _found_again(store: SessionStore, name: str, text: str, revision: int) -> Session:
    """A session as it was stored; never one that is made anew, or mended."""
    session = store.get(name)
    if (session.revision, session.text) != (revision, text):
        found = f"revision {session.revision}, {session.text[:99]!r}"
        raise Difference(f"session {name} of revision {revision} came back as {found}")
    return session


def _check_counts(store: SessionStore) -> None:
    """A walk damages nothing, and no other process writes."""
    odd = {what: store.stats()["counts"].get(what, 0) for what in ("damaged", "damaged file", "foreign", "conflicts")}
    if any(odd.values()):
        raise Difference(f"counted: {odd}")


def _compare(
    session: Session, text: str, want: Expected | None, old: np.ndarray, patch: Patch | None, *, spans: bool
) -> None:
    """The text and the patch always; ids where a full encode is given, its spans if asked for."""
    ids = session.ids
    if session.text != text:
        raise Difference(f"text: {_shown(session.text)}, not {_shown(text)}")
    if patch is not None and not np.array_equal(patch.apply(old), ids):
        raise Difference(f"patch to {_shown(text)}")
    if want is None:
        return
    if not np.array_equal(ids, want.ids):
        raise Difference(f"ids of {_shown(text)}")
    if not spans or want.spans is None:
        return
    in_bytes, in_characters = want.spans()
    if not np.array_equal(session.byte_spans, in_bytes):
        raise Difference(f"byte spans of {_shown(text)}")
    if not np.array_equal(session.char_spans, in_characters):
        raise Difference(f"character spans of {_shown(text)}")


def _shown(text: str, most: int = 2000) -> str:
    """A long text is told by its beginning and by the walk's seed."""
    return repr(text) if len(text) <= most else f"{text[:most]!r}... ({len(text):,} characters)"


def reference(tokenizer) -> Callable[[str], Expected]:
    """Full encodes by the reference of a Tokenizer."""
    after = len(tokenizer.spec.post_processor.after)

    @functools.lru_cache(maxsize=4)
    def encode(text: str) -> Expected:
        found = tokenizer.encode(text, route="reference")
        count = len(found.ids) - after
        return Expected(found.ids[:count], lambda: (found.byte_spans[:count], found.char_spans[:count]))

    return encode
