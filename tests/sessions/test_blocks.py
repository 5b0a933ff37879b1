"""Blocks and chunks: what is spliced is what a plain list would hold, and copies never change."""

from __future__ import annotations

import random

import numpy as np

from toktier_jax.sessions.blocks import TokenBlocks, Tokens
from toktier_jax.sessions.chunks import TextChunks
from toktier_jax.sessions.pack import pack_tokens, unpack_tokens


def _tokens(start: int, lengths: list[int]) -> Tokens:
    ends = start + np.cumsum(np.array(lengths, np.int64))
    return Tokens(
        np.array(lengths, np.int32) * 7,
        ends - np.array(lengths, np.int64),
        ends,
        (np.array(lengths) % 4).astype(np.uint8),
    )


def test_splices(scale: float) -> None:
    draw = random.Random(0)
    blocks, plain = TokenBlocks(), list[int]()
    kept: list[tuple[TokenBlocks, list[int]]] = []
    for _ in range(int(200 * scale)):
        lo = draw.randrange(len(plain) + 1) if draw.random() < 0.5 else len(plain)
        hi = min(len(plain), lo + draw.choice((0, 1, 30, 2000)))
        new = [draw.randrange(1, 9) for _ in range(draw.choice((0, 1, 40, 3000)))]
        shift = sum(new) - sum(plain[lo:hi])
        blocks.splice(lo, hi, _tokens(sum(plain[:lo]), new), shift)
        plain[lo:hi] = new
        want = _tokens(0, plain)
        found = blocks.get(0, blocks.count)
        for one, other in zip(found, want, strict=True):
            assert np.array_equal(one, other)
        place = draw.randrange(sum(plain) + 2)
        assert blocks.at_byte(place) == int(np.searchsorted(want.starts, place))
        flagged = np.flatnonzero((want.flags & 1) & (want.starts <= place))
        assert blocks.flagged_before(place, 1) == (flagged[-1] if len(flagged) else -1)
        kept.append((blocks.copy(), plain.copy()))
    for copy, was in draw.sample(kept, 10):
        assert np.array_equal(copy.ids(), np.array(was, np.int32) * 7)


def test_chunks(scale: float) -> None:
    draw = random.Random(0)
    chunks, plain = TextChunks(), ""
    for _ in range(int(150 * scale)):
        new = "".join(draw.choices("ab é中🇩", k=draw.choice((0, 1, 50, 5000))))
        start = draw.randrange(len(plain) + 1) if draw.random() < 0.6 else len(plain)
        stop = min(len(plain), start + draw.choice((0, 1, 6000)))
        chunks.replace(start, stop, new)
        plain = plain[:start] + new + plain[stop:]
        assert str(chunks) == plain
        assert chunks.length == len(plain)
        assert chunks.byte_length == len(plain.encode())
        char = draw.randrange(len(plain) + 1)
        byte = len(plain[:char].encode())
        assert (chunks.byte_of(char), chunks.char_of(byte), chunks.char_of_floor(byte)) == (byte, char, char)
        upto = draw.randrange(char, len(plain) + 1)
        assert chunks.bytes_between(byte, len(plain[:upto].encode())) == plain[char:upto].encode()
        assert chunks.common_prefix(plain[:char] + "\0") == char
        assert chunks.common_suffix("\0" + plain[char:], len(plain) - char) == len(plain) - char
        if len(plain) > 40_000:
            chunks.replace(0, len(plain), "")
            plain = ""


def test_packed_blocks_come_back() -> None:
    for lengths, gap in (([1, 2, 3], 0), ([1, 2, 3], 5), ([70_000, 1], 0), ([1] * 9, 40_000), ([], 0)):
        block = _tokens(0, lengths)
        shifts = np.arange(len(lengths)) * gap
        block = Tokens(
            block.ids, (block.starts + shifts).astype(np.int32), (block.ends + shifts).astype(np.int32), block.flags
        )
        for one, other in zip(unpack_tokens(pack_tokens(block)), block, strict=True):
            assert np.array_equal(one, other)
