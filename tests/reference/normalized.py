"""A string on its way through normalizers and splits, with the original bytes that each of its bytes came from.

What the reference's `NormalizedString` does, quirks included, because offsets are made of them: an inserted character
has the place of the one before it; the text that replaces a match has the place of the *last* character of the match;
a change of the whole string covers only the bytes whose place is not empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Span = tuple[int, int]
Change = tuple[str, int]
"""A character of the new text: 0 replaces a character, 1 is inserted, -n replaces one and removes the n after it."""


@dataclass
class Piece:
    """`text` is UTF-8; `places[i]` are the bytes of `original` behind byte i; `shift` is where `original` starts."""

    original: bytes
    text: bytes
    places: list[Span]
    shift: int = 0

    @classmethod
    def of(cls, text: str) -> Piece:
        data, places = text.encode(), list[Span]()
        for char in text:
            size = len(char.encode())
            places += [(len(places), len(places) + size)] * size
        return cls(data, data, places)

    @property
    def string(self) -> str:
        return self.text.decode()

    # ---- between the new text and the original ----

    def to_original(self, start: int, stop: int) -> Span | None:
        """The original bytes behind text[start:stop]; None past the end, the range itself where it is empty."""
        if start == stop:
            return start, stop
        if start > stop or stop > len(self.places):
            return None
        return self.places[start][0], self.places[stop - 1][1]

    def from_original(self, start: int, stop: int) -> Span | None:
        """The bytes of the text that came from original[start:stop]. Bytes with an empty place open no range."""
        if start == stop:
            return start, stop
        first = last = None
        for index, (left, right) in enumerate(self.places):
            if right > stop:
                break
            if first is None and start <= left and left != right:
                first = index
            last = index + 1
        if last is None:
            return None
        return (last if first is None else first), last

    def slice(self, start: int, stop: int) -> Piece:
        span = self.to_original(start, stop)
        assert span is not None, "the reference panics here"
        left, right = span
        places = [(a - left, b - left) for a, b in self.places[start:stop]]
        return Piece(self.original[left:right], self.text[start:stop], places, self.shift + left)

    # ---- changes ----

    def change(self, new: Iterable[Change], removed_first: int = 0, within: Span | None = None) -> None:
        """Rewrites `within` (by default all that came from the original), whose first characters are removed."""
        window = within or self.from_original(0, len(self.original))
        if window is None:
            return
        start, stop = window
        old = iter(self.text[start:stop].decode())

        def size_of_next(count: int) -> int:
            return sum(len(next(old, "").encode()) for _ in range(count))

        at = start + size_of_next(removed_first)
        data, places = b"", list[Span]()
        for char, change in new:
            if change > 0:
                place = self.places[at - 1] if at else (0, 0)
            else:
                place = self.places[at]
                at += size_of_next(1 - change)
            encoded = char.encode()
            data += encoded
            places += [place] * len(encoded)
        self.text = self.text[:start] + data + self.text[stop:]
        self.places[start:stop] = places

    def map(self, function: Callable[[str], str]) -> None:
        """Replaces each character by what `function` gives for it: one or more characters."""
        self.change([(c, int(i > 0)) for char in self.string for i, c in enumerate(function(char))])

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Removes the characters that are not wanted."""
        new, removed_first = list[Change](), 0
        for char in self.string:
            if wanted(char):
                new.append((char, 0))
            elif new:
                new[-1] = new[-1][0], new[-1][1] - 1
            else:
                removed_first += 1
        self.change(new, removed_first)

    def prepend(self, text: str) -> None:
        """Puts `text` before a text that is not empty. All of it, and the old first character, get that one's place."""
        if self.text:
            first = self.string[0]
            new = [(char, int(i > 0)) for i, char in enumerate(text)] + [(first, 1)]
            self.change(new, within=(0, len(first.encode())))

    def replace(self, matches: Iterable[tuple[Span, bool]], content: str) -> None:
        """Replaces each matched range by `content`, at the place of the last byte of the match."""
        data, places = b"", list[Span]()
        for (start, stop), matched in matches:
            if matched:
                data += content.encode()
                places += [self.places[stop - 1] if stop else (0, 0)] * len(content.encode())
            else:
                data += self.text[start:stop]
                places += self.places[start:stop]
        self.text, self.places = data, places

    def strip(self, is_space: Callable[[str], bool], *, left: bool, right: bool) -> None:
        chars = list(self.string)
        head = next((i for i, c in enumerate(chars) if not is_space(c)), len(chars)) if left else 0
        tail = next((i for i, c in enumerate(reversed(chars)) if not is_space(c)), len(chars)) if right else 0
        if head or tail:
            self.change([(char, 0) for char in chars[head : len(chars) - tail]], head)
