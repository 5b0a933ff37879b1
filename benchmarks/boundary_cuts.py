"""Prompts that end inside a token: real text cut where people and programs stop, with what really follows.

A cut is kept where it falls strictly inside a token of the full text's encoding ("cut"), or on a border ("aligned").
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


@dataclass(frozen=True)
class Case:
    """A prompt, the shortest whole characters of at least 16 bytes after it, and the text further on."""

    kind: str
    prompt: str
    continuation: str
    after: str


def cases(corpus: str, tok: Any, *, aligned: bool = False, seed: int = 0) -> Iterator[Case]:
    """Cases of a corpus without end, the same for a seed."""
    source = texts.code() if corpus == "code" else texts.english()
    rng = random.Random(f"{corpus} {aligned} {seed}")
    while True:
        begin = rng.randrange(len(source) - 3000)
        kind, place = _place(corpus, source, begin, rng)
        if place is None:
            continue
        found = _case(kind, source, place, tok, aligned=aligned)
        if found is not None:
            yield found


def _place(corpus: str, source: str, begin: int, rng: random.Random) -> tuple[str, int | None]:
    """A kind of cut and where it is, near `begin`."""
    if corpus == "code":
        start = source.find("\n", begin) + 1
        ends = _lexer_ends(source[start : start + 1500])
        return "lexer", start + rng.choice(ends) if ends else None
    kind = rng.choice(("space", "space", "word", "word", "https"))
    pattern = {"space": r"\w (?=\w)", "word": r"\w{2,}?(?=\w{2})", "https": r"https?:(?=//)"}[kind]
    start = begin if kind != "https" else rng.randrange(len(source))
    match = re.compile(pattern).search(source, start)
    if match is None or match.start() < 1000:
        return kind, None
    if kind == "word":
        word = re.compile(r"\w+").search(source, start)
        assert word is not None
        return kind, rng.randrange(word.start() + 1, word.end()) if len(word[0]) > 2 else None
    return kind, match.end()


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
    return ends[5:]


def _case(kind: str, source: str, place: int, tok: Any, *, aligned: bool) -> Case | None:
    before, after = source[max(0, place - 1000) : place], source[place : place + 200]
    if not before.isascii() or not after.isascii() or len(after) < 64:
        return None
    ids = tok.encode(before, False, route="reference").ids.tolist()
    if len(ids) < CONTEXT[1]:
        return None
    skip = len(tok.decode_bytes(ids[: len(ids) - CONTEXT[1] + 4]))
    prompt = before[skip:]
    count = len(tok.encode(prompt, False, route="reference").ids)
    if not CONTEXT[0] <= count <= CONTEXT[1]:
        return None
    whole = tok.encode(prompt + after, False, route="reference").byte_spans
    on_border = len(prompt) in whole[:, 1]
    if on_border != aligned:
        return None
    return Case(kind, prompt, after[:CONTINUATION], after)
