"""Added tokens: which ids they get, and how a text is cut at them before anything else looks at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import characters
from .normalized import Piece


@dataclass(frozen=True)
class Added:
    id: int
    content: str
    special: bool
    normalized: bool
    lstrip: bool
    rstrip: bool
    single_word: bool


def assign(parts: list[dict[str, Any]], vocab: Mapping[str, int]) -> dict[int, Added]:
    """The added tokens by id. The file's own `id` is *not* read.

    A content that the model knows keeps the model's id, any other gets the next free one in file order; a repeated
    content or id replaces the earlier token.
    """
    by_id, ids = dict[int, Added](), dict[str, int]()
    following = len(vocab)
    for part in parts:
        content = part["content"]
        if not content:
            continue
        id = ids.get(content, vocab.get(content))
        if id is None:
            id, following = following, following + 1
        ids[content] = id
        by_id[id] = Added(id, **{name: part[name] for name in Added.__dataclass_fields__ if name != "id"})
    return by_id


Cut = list[tuple[Piece, int | None]]
"""Pieces in order, each with the id of its added token, or None where it is text."""


def cut(piece: Piece, contents: Mapping[str, Added], ignored: Callable[[Added], bool]) -> Cut:
    """`piece` cut at the added tokens found in it. No piece is empty.

    `contents` maps what is looked for to its token. The leftmost match counts, of those the longest. A match that
    `single_word` rejects, or that is `ignored`, still uses up its text. `lstrip` takes the white space since the last
    token; `rstrip` takes white space in which a later match may begin all the same: then both cover it.
    """
    text, end = piece.string, 0
    spans = list[tuple[int, int, int | None]]()
    for found, token in _matches(text, contents):
        start, stop = found, found + len(next(key for key, value in contents.items() if value is token))
        if ignored(token) or (token.single_word and not _alone(text, start, stop)):
            continue
        if token.lstrip:
            while start > 0 and characters.is_space(text[start - 1]):
                start -= 1
            start = max(start, end)
        if token.rstrip:
            while stop < len(text) and characters.is_space(text[stop]):
                stop += 1
        if end < start:
            spans.append((end, start, None))
        spans.append((start, stop, token.id))
        end = stop
    if end != len(text):
        spans.append((end, len(text), None))
    bounds = [0]
    for char in text:
        bounds.append(bounds[-1] + len(char.encode()))
    pieces = [(piece.slice(bounds[start], bounds[stop]), id) for start, stop, id in spans]
    return [(each, id) for each, id in pieces if each.text]


def _matches(text: str, contents: Mapping[str, Added]) -> list[tuple[int, Added]]:
    found, at = list[tuple[int, Added]](), 0
    while at < len(text):
        here = [content for content in contents if text.startswith(content, at)]
        if here:
            longest = max(here, key=len)
            found.append((at, contents[longest]))
            at += len(longest)
        else:
            at += 1
    return found


def _alone(text: str, start: int, stop: int) -> bool:
    before = start > 0 and characters.is_word(text[start - 1])
    after = stop < len(text) and characters.is_word(text[stop])
    return not before and not after
