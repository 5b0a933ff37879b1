"""A long text as a list of short strings: appends touch the last one, and nothing ever joins them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

CHUNK = 4096
"""Characters of a chunk. One wide character widens its chunk alone."""


class TextChunks:
    """Text by characters (code points) and by bytes of its UTF-8. Strings are immutable, so copies share them.

    chunks       no chunk is empty
    chars, data  where each chunk begins, in characters and in bytes
    dirty        chunks before this one are as they were when someone last set it high
    """

    __slots__ = ("byte_length", "chars", "chunks", "data", "dirty", "length")

    def __init__(self, text: str = "") -> None:
        self.chunks: list[str] = []
        self.chars: list[int] = []
        self.data: list[int] = []
        self.length = 0
        self.byte_length = 0
        self.dirty = 0
        self.append(text)

    def copy(self) -> TextChunks:
        new = TextChunks.__new__(TextChunks)
        new.chunks, new.chars, new.data = self.chunks.copy(), self.chars.copy(), self.data.copy()
        new.length, new.byte_length, new.dirty = self.length, self.byte_length, self.dirty
        return new

    def tail(self, char: int) -> tuple[Any, ...]:
        """What a change from character `char` on can change, for `restore`. Costs what such a change does."""
        first = max(bisect_right(self.chars, char) - 1, 0)
        lists = self.chunks[first:], self.chars[first:], self.data[first:]
        return first, lists, (self.length, self.byte_length, self.dirty)

    def restore(self, tail: tuple[Any, ...]) -> None:
        """Makes the text what it was when `tail` gave this, wherever a change was interrupted."""
        first, (self.chunks[first:], self.chars[first:], self.data[first:]), numbers = tail
        self.length, self.byte_length, self.dirty = numbers

    def append(self, text: str) -> None:
        """Costs in proportion to `text` and one chunk."""
        if not text:
            return
        if self.chunks and len(self.chunks[-1]) < CHUNK:
            text = self.chunks.pop() + text
            self.length, self.byte_length = self.chars.pop(), self.data.pop()
        self.dirty = min(self.dirty, len(self.chunks))
        for at in range(0, len(text), CHUNK):
            chunk = text[at : at + CHUNK]
            self.chunks.append(chunk)
            self.chars.append(self.length)
            self.data.append(self.byte_length)
            self.length += len(chunk)
            self.byte_length += _bytes(chunk)

    def replace(self, start: int, stop: int, text: str) -> None:
        """Replaces characters [start, stop). Costs in proportion to the change and the number of chunks."""
        if start == stop == self.length:
            self.append(text)
            return
        first = bisect_right(self.chars, start) - 1
        last = max(bisect_right(self.chars, stop) - 1, first)
        middle = self.chunks[first][: start - self.chars[first]] + text + self.chunks[last][stop - self.chars[last] :]
        if last + 1 < len(self.chunks) and len(middle) < CHUNK // 4:
            last += 1
            middle += self.chunks[last]
        self.dirty = min(self.dirty, first)
        pieces = -(-len(middle) // CHUNK) or 1
        size = -(-len(middle) // pieces) or 1
        fresh = [middle[at : at + size] for at in range(0, len(middle), size)]
        chars, data = self.chars[first], self.data[first]
        self.chunks[first : last + 1] = fresh
        self.chars[first:], self.length = _moved(self.chars, self.length, last + 1, map(len, fresh), chars)
        self.data[first:], self.byte_length = _moved(self.data, self.byte_length, last + 1, map(_bytes, fresh), data)

    def byte_of(self, char: int) -> int:
        """The byte at which character `char` begins, or the end."""
        if char >= self.length:
            return self.byte_length
        number = bisect_right(self.chars, char) - 1
        return self.data[number] + _bytes(self.chunks[number][: char - self.chars[number]])

    def char_of(self, byte: int) -> int:
        """The character that begins at `byte`, or the length."""
        if byte >= self.byte_length:
            return self.length
        number = bisect_right(self.data, byte) - 1
        chunk, within = self.chunks[number], byte - self.data[number]
        return self.chars[number] + (within if chunk.isascii() else len(chunk.encode()[:within].decode()))

    def char_of_floor(self, byte: int) -> int:
        """The character that byte `byte` belongs to."""
        if byte >= self.byte_length:
            return self.length
        number = bisect_right(self.data, byte) - 1
        chunk, within = self.chunks[number], byte - self.data[number]
        if chunk.isascii():
            return self.chars[number] + within
        data = chunk.encode()
        while data[within] & 0xC0 == 0x80:
            within -= 1
        return self.chars[number] + len(data[:within].decode())

    def bytes_between(self, start: int, stop: int) -> bytes:
        """UTF-8 of bytes [start, stop); both begin characters."""
        if start >= stop:
            return b""
        number = bisect_right(self.data, start) - 1
        parts: list[bytes] = []
        at = start
        while at < stop:
            base = self.data[number]
            parts.append(self.chunks[number].encode()[at - base : stop - base])
            at += len(parts[-1])
            number += 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def common_prefix(self, text: str) -> int:
        """How many characters `text` and this text begin with in common. Compares chunk by chunk and joins nothing."""
        at, plain = 0, text.isascii()
        for chunk in self.chunks:
            same = text.startswith(chunk, at) if plain else text[at : at + len(chunk)] == chunk
            if not same:
                return at + _common(chunk, text[at : at + len(chunk)])
            at += len(chunk)
        return at

    def common_suffix(self, text: str, most: int) -> int:
        """How many characters, at most `most`, both end with in common."""
        done = 0
        for chunk in reversed(self.chunks):
            stop = len(text) - done
            size = min(len(chunk), most - done)
            if not size:
                break
            mine, other = chunk[len(chunk) - size :], text[stop - size : stop]
            if mine != other:
                return done + _common(mine[::-1], other[::-1])
            done += size
        return done

    def __iter__(self) -> Iterator[str]:
        return iter(self.chunks)

    def __str__(self) -> str:
        return "".join(self.chunks)


def _moved(places: list[int], end: int, kept: int, sizes: Iterable[int], base: int) -> tuple[list[int], int]:
    """Where chunks begin from `base` on, and their end: fresh ones of these sizes, then those from number `kept` on."""
    found = list(accumulate(sizes, initial=base))
    by = found.pop() - (places[kept] if kept < len(places) else end)
    return [*found, *(place + by for place in places[kept:])], end + by


def _bytes(chunk: str) -> int:
    return len(chunk) if chunk.isascii() else len(chunk.encode())


def _common(one: str, other: str) -> int:
    """Length of the common prefix, by halving."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
