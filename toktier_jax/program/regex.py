"""A pattern's plan nodes as a regular expression of Python's own `re` over bytes, for texts of a few kilobytes.

Both read greedy alternatives from left to right and give back likewise, so they match the same; what a class is, the
caller says, as the byte values of each atom. Compiled tables (program/walk.py) do the same for long texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toktier_jax.plan import Alt, Atom, End, Look, Node, Repeat, Seq


def scanner(root: Node, members: Sequence[Sequence[int]]) -> re.Pattern[bytes]:
    """Finds the pieces of a text, without a gap: matches of `root`, and what lies between two of them.

    `members[k]` are the byte values of `Atom(k)`. A text that is searched is one segment: what is outside is not seen.
    """
    items = (
        root.items if isinstance(root, Alt) else (root,)
    )  # no group: alternatives are then skipped by their first byte
    pattern = b"|".join(_source(item, members) for item in items)
    return re.compile(b"%b|(?:(?!%b)[\\x00-\\xff])+" % (pattern, pattern))


def is_quick(node: Node) -> bool:
    """Whether no loop repeats more than a character: `(?:a+)+b` would be tried in exponentially many ways."""
    match node:
        case Atom() | End():
            return True
        case Seq(items) | Alt(items):
            return all(map(is_quick, items))
        case Repeat(item, _, maximum):
            return isinstance(item, Atom) or (maximum is not None and maximum <= 1 and is_quick(item))
        case Look(item):
            return is_quick(item)


def _source(node: Node, members: Sequence[Sequence[int]]) -> bytes:
    match node:
        case Atom(index):
            return _one_of(members[index])
        case Seq(items):
            return b"".join(_source(item, members) for item in items)
        case Alt(items):
            return b"(?:%b)" % b"|".join(_source(item, members) for item in items)
        case Repeat(item, minimum, maximum, possessive):
            body = _source(item, members)
            body = body if isinstance(item, Atom) else b"(?:%b)" % body
            most = b"" if maximum is None else b"%d" % maximum
            return b"%b{%d,%b}%b" % (body, minimum, most, b"+" if possessive else b"")
        case Look(item, negative):
            return b"(?%b%b)" % (b"!" if negative else b"=", _source(item, members))
        case End(newline):
            return rb"\Z" if newline is None else rb"(?=%b|\Z)" % _one_of(members[newline.index])


def _one_of(values: Sequence[int]) -> bytes:
    if not len(values):
        return b"(?!)"
    return b"[%b]" % b"".join(b"\\x%02x" % value for value in values)
