"""Prompts that end where people and programs stop, inside a token of the real text or on a border of its tokens.

Prompts of one context begin at the same place, so that they share a prefill; what really follows each is kept.
"""

from __future__ import annotations

import io
import random
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import texts

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
ENDS = {"code": (CUT, ALIGNED), "english": (CUT, ALIGNED, WORD_END)}
"""Where prompts end: inside a token of the real text; the same cuts where they fall on a border of its tokens; on a
border that is a word's end, too, as most prompts that people write."""
KINDS = {
    "code": ("lexer",),
    CUT: ("space", "word", "space", "word", "https"),
    ALIGNED: ("space", "word"),
    WORD_END: ("word end",),
}
"""Kinds of cuts in code and, by where they end, in English; as often as they are named, by contexts."""


@dataclass(frozen=True)
class Case:
    """A prompt, the shortest whole characters of at least 16 bytes after it, and the text further on."""

    kind: str
    prompt: str
    continuation: str
    after: str


def contexts(corpus: str, tok: Any, ends: str = CUT, seed: int = 0) -> Iterator[list[Case]]:
    """The prompts of one context after another without end, the same for a seed."""
    source = texts.code() if corpus == "code" else texts.english()
    rng = random.Random(f"{corpus} {ends} {seed}")
    kinds = KINDS["code"] if corpus == "code" else KINDS[ends]
    while True:
        kind = rng.choice(kinds)
        begin = _begin(kind, source, rng)
        window = source[begin : begin + WINDOW]
        if not window.isascii() or len(window) < WINDOW:
            continue
        borders = tok.encode(window, False, route="reference").byte_spans[:, 1]
        if len(borders) <= CONTEXT[1]:
            continue
        low, high = int(borders[CONTEXT[0]]), min(int(borders[CONTEXT[1] - 1]), WINDOW - AFTER)
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
    if kind == "word":
        return [place for word in re.finditer(r"\w{3,}", window) for place in range(word.start() + 1, word.end())]
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


def _case(kind: str, window: str, place: int, tok: Any, aligned: bool) -> Case | None:
    prompt, after = window[:place], window[place : place + AFTER]
    if re.match(r"\s*(\w+|[^\w\s]+)", after) is None:
        return None
    if not CONTEXT[0] <= len(tok.encode(prompt, False, route="reference").ids) <= CONTEXT[1]:
        return None
    on_border = place in tok.encode(prompt + after, False, route="reference").byte_spans[:, 1]
    return Case(kind, prompt, after[:CONTINUATION], after) if on_border == aligned else None
