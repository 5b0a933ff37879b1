"""Leftmost-first matching by backtracking, straight from its definition, over the nodes of `program/pattern.py`.

Source: Frisch and Cardelli, Greedy Regular Expression Matching (ICALP 2004), for the order in which matches are tried.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from toktier_jax.plan import Alt, Atom, End, Look, Node, Repeat, Seq
from toktier_jax.program.pattern import Parsed, parse

from . import characters
from .normalized import Span

Matches = list[tuple[Span, bool]]
"""The whole text in order: byte ranges, and whether each is a match or a gap."""

InClass = Callable[[str, str], bool]


def find_matches(pattern: dict[str, str], text: str) -> Matches:
    """Matches of the `pattern` of a Split or Replace: {"String": ...} or {"Regex": ...}, read by Oniguruma."""
    if "String" in pattern:
        return _cover(text, _literal(pattern["String"], text))
    return _cover(text, regex_spans(_parsed(pattern["Regex"]), text, characters.in_class))


def each_character(predicate: Callable[[str], bool], text: str) -> Matches:
    """Every character that satisfies the predicate is a match of its own."""
    return _cover(text, ((i, i + 1) for i, char in enumerate(text) if predicate(char)))


def regex_spans(parsed: Parsed, text: str, in_class: InClass) -> Iterator[Span]:
    """The successive matches, in characters: the leftmost first, and of those at one start the preferred one."""
    at = 0
    while at < len(text):
        stop = next(_stops(parsed.root, at, text, lambda atom, char: in_class(parsed.classes[atom], char)), None)
        if stop is None:
            at += 1
        else:
            assert stop > at, "the parser refuses patterns that can match nothing"
            yield at, stop
            at = stop


def _stops(node: Node, at: int, text: str, member: Callable[[int, str], bool]) -> Iterator[int]:
    """Where a match of `node` from `at` can stop, the preferred stop first."""
    match node:
        case Atom(index):
            if at < len(text) and member(index, text[at]):
                yield at + 1
        case Seq(items):
            if not items:
                yield at
            else:
                for middle in _stops(items[0], at, text, member):
                    yield from _stops(Seq(items[1:]), middle, text, member)
        case Alt(items):
            for item in items:
                yield from _stops(item, at, text, member)
        case Repeat(item, minimum, maximum, possessive):
            stops = _repeated(item, minimum, maximum, at, text, member)
            yield from (stop for stop, _ in zip(stops, range(1), strict=False)) if possessive else stops
        case Look(item, negative):
            found = next(_stops(item, at, text, member), None) is not None
            if found != negative:
                yield at
        case End(newline):
            if at == len(text) or (newline is not None and member(newline.index, text[at])):
                yield at


def _repeated(
    item: Node, minimum: int, maximum: int | None, at: int, text: str, member: Callable[[int, str], bool]
) -> Iterator[int]:
    """Greedy: first one more repetition, then stopping here. A loop over one class is unrolled, runs are long."""
    if isinstance(item, Atom):
        stop, most = at, len(text) if maximum is None else at + maximum
        while stop < min(most, len(text)) and member(item.index, text[stop]):
            stop += 1
        yield from range(stop, at + minimum - 1, -1)
        return
    if maximum is None or maximum > 0:
        for middle in _stops(item, at, text, member):
            if middle > at:
                less = None if maximum is None else maximum - 1
                yield from _repeated(item, max(minimum - 1, 0), less, middle, text, member)
    if minimum == 0:
        yield at


@functools.cache
def _parsed(regex: str) -> Parsed:
    return parse(regex, "oniguruma")


def _literal(needle: str, text: str) -> Iterator[Span]:
    at = text.find(needle) if needle else -1
    while at >= 0:
        yield at, at + len(needle)
        at = text.find(needle, at + len(needle))


def _cover(text: str, spans: Any) -> Matches:
    """Spans in characters to byte ranges that cover the text, gaps between the matches included."""
    found, end = Matches(), 0
    bounds = [0]
    for char in text:
        bounds.append(bounds[-1] + len(char.encode()))
    for start, stop in spans:
        if end != start:
            found.append(((bounds[end], bounds[start]), False))
        found.append(((bounds[start], bounds[stop]), True))
        end = stop
    if end != len(text):
        found.append(((bounds[end], bounds[-1]), False))
    return found
