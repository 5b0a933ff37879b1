"""Prompts that end where people and programs stop, inside a token of the real text or on a border of its tokens.

Prompts of one context begin at the same place, so that they share a prefill; what really follows each is kept.
"""

from __future__ import annotations

import io
import itertools
import random
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

CONTEXT = (96, 128)
"""Tokens of a prompt."""
CONTINUATION = 16
"""Bytes that an arm has to emit, at least: whole characters."""
PROMPTS = 6
"""Prompts of one context at most."""
WINDOW = 1100
"""Characters in which a context, its prompts and what follows them lie."""
AFTER = 128
"""Characters that are kept after a prompt."""
CUT, ALIGNED, WORD_END = "cut", "aligned", "aligned, word end"
ENDS = {"code": (CUT, ALIGNED), "english": (CUT, ALIGNED, WORD_END), "german": (CUT,), "chinese": (CUT,)}
"""Where prompts end: inside a token of the real text; the same cuts where they fall on a border of its tokens; on a
border that is a word's end, too, as most prompts that people write."""
KINDS = {
    "code": ("lexer",),
    "german": ("long word",),
    "chinese": ("han",),
    CUT: ("space", "word", "space", "word", "https"),
    ALIGNED: ("space", "word"),
    WORD_END: ("word end",),
}
"""Kinds of cuts by corpus and, by where they end, in English; as often as they are named, by contexts."""
INSIDE = {"word": r"\w{3,}", "long word": r"[^\W\d_]{10,}", "han": r"[\u4e00-\u9fff]{2,}"}
"""Words that a prompt of a kind ends inside of: German ones so long that most are compounds."""
WORD = re.compile(r"\s*([\u4e00-\u9fff]{1,2}|\w+|[^\w\s]+)")
"""The first word that follows a prompt: most Chinese ones have two characters at most."""


@dataclass(frozen=True)
class Case:
    """A prompt, the shortest whole characters of at least 16 bytes after it, and the text further on."""

    kind: str
    prompt: str
    continuation: str
    after: str


def contexts(corpus: str, source: str, tok: Any, ends: str = CUT, seed: int = 0) -> Iterator[list[Case]]:
    """The prompts of one context of the text `source` after another without end, the same for a seed."""
    rng = random.Random(f"{corpus} {ends} {seed}")
    kinds = KINDS[ends] if corpus == "english" else KINDS[corpus]
    while True:
        kind = rng.choice(kinds)
        begin = _begin(kind, source, rng)
        window = source[begin : begin + WINDOW]
        if len(window) < WINDOW or (corpus in ("code", "english") and not window.isascii()):
            continue
        borders = _borders(tok, window)
        if len(borders) <= CONTEXT[1]:
            continue
        low, high = max(borders[: CONTEXT[0] + 1]), min(max(borders[: CONTEXT[1]]), WINDOW - AFTER)
        places = [place for place in _places(kind, window) if low < place <= high]
        rng.shuffle(places)
        found = [case for place in places[: 4 * PROMPTS] if (case := _case(kind, window, place, tok, ends != CUT))]
        if found:
            yield found[:PROMPTS]


def _begin(kind: str, source: str, rng: random.Random) -> int:
    """A line's beginning from which on to look for cuts of a kind."""
    near = rng.randrange(len(source) - WINDOW)
    if kind == "https":  # rare: begin a context's length before one
        near = max(0, source.find("https://", near) - 3 * CONTEXT[1])
    return source.find("\n", near) + 1


def _places(kind: str, window: str) -> list[int]:
    """Where a prompt of this kind can end in the window."""
    if kind == "lexer":
        return _lexer_ends(window)
    if kind in INSIDE:
        words = re.finditer(INSIDE[kind], window)
        return [place for word in words for place in range(word.start() + 1, word.end())]
    pattern = {"space": r"\w (?=\w)", "https": r"https?:(?=//)", "word end": r"[a-z](?=[ ,.])"}[kind]
    return [match.end() for match in re.finditer(pattern, window)]


def _lexer_ends(text: str) -> list[int]:
    """Where the Python lexer ends a token of `text` that is more than white space."""
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    ends = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.string.strip():
                ends.append(lines[token.end[0] - 1] + token.end[1])
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    return ends


def _borders(tok: Any, text: str) -> list[int]:
    """Characters before the end of each token of a text; -1 for one that ends inside a character."""
    sizes = itertools.accumulate((len(character.encode()) for character in text), initial=0)
    places = {size: place for place, size in enumerate(sizes)}
    return [places.get(end, -1) for end in tok.encode(text, False, route="reference").byte_spans[:, 1].tolist()]


def _case(kind: str, window: str, place: int, tok: Any, aligned: bool) -> Case | None:
    prompt, after = window[:place], window[place : place + AFTER]
    if WORD.match(after) is None:
        return None
    if not CONTEXT[0] <= len(tok.encode(prompt, False, route="reference").ids) <= CONTEXT[1]:
        return None
    size = next(size for size in range(len(after) + 1) if len(after[:size].encode()) >= CONTINUATION)
    on_border = place in _borders(tok, prompt + after)
    return Case(kind, prompt, after[:size], after) if on_border == aligned else None
