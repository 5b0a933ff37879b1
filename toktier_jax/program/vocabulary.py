"""Tokens as the byte strings that they stand for in a piece, and the tables in which such strings are looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from toktier_jax.ops.hashing import powers
from toktier_jax.program import perfect_hash
from toktier_jax.program.merges import PairTable, merge_all
from toktier_jax.spec.byte_alphabet import from_alphabet
from toktier_jax.spec.types import BPE, BytePairRanks
from toktier_jax.types import FIRST_CODE, SELF, SHORT, Lexicon

START, END = 1, 2
"""Where in its piece a string lies, as bits: it begins the piece, it ends it (0 where a tokenizer does not care)."""


class Entries(NamedTuple):
    """Strings that are tokens. n strings, B bytes in all.

    ids, places  int32, uint8 [n]  the token, and where the string must lie: START | END
    data         uint8 [B]         the strings one after another, as bytes of a buffer
    sizes        int64 [n]         their bytes
    """

    ids: np.ndarray
    places: np.ndarray
    data: np.ndarray
    sizes: np.ndarray

    @property
    def begins(self) -> np.ndarray:
        """Where in `data` each string begins, int64 [n]."""
        return np.cumsum(self.sizes) - self.sizes


def entries(model: BPE | BytePairRanks, *, byte_level: bool, codes: Sequence[str]) -> Entries:
    """Every string that is one token by its spelling. Code byte 0xF8 + k stands for the character `codes[k]`.

    With a `continuing_subword_prefix` or an `end_of_word_suffix` a string's token depends on where in the piece the
    string lies, so there are entries for each place. Tokens that no text spells are left out.
    """
    if isinstance(model, BytePairRanks):
        ids = (rank + model.offset for rank in model.ranks.values())
        return _entries(zip(model.ranks, ids, strict=True), 0)
    prefix, suffix = model.continuing_subword_prefix, model.end_of_word_suffix
    if not prefix and not suffix:
        return _entries(_spell(model.vocab, byte_level, codes), 0)
    parts = []
    for place in (0, START, END, START | END):
        vocab = {}
        for token, id in model.vocab.items():
            head = "" if place & START else prefix
            tail = suffix if place & END else ""
            if token.startswith(head) and token.endswith(tail) and len(token) > len(head) + len(tail):
                vocab[token[len(head) : len(token) - len(tail)]] = id
        parts.append(_entries(_spell(vocab, byte_level, codes), place))
    return join(parts)


def join(parts: Sequence[Entries]) -> Entries:
    """The entries of all parts."""
    return Entries(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def pick(of: Entries, mask: np.ndarray) -> Entries:
    """The entries where bool [n] is true."""
    return Entries(of.ids[mask], of.places[mask], of.data[np.repeat(mask, of.sizes)], of.sizes[mask])


def spelled(vocab: Mapping[str, int], *, byte_level: bool, codes: Sequence[str]) -> Entries:
    """Every token that a text can spell, for any place."""
    return _entries(_spell(vocab, byte_level, codes), 0)


def strings(of: Entries) -> list[bytes]:
    """The strings of entries."""
    data = of.data.tobytes()
    return [data[begin : begin + size] for begin, size in zip(of.begins, of.sizes, strict=True)]


def whole_pieces(model: BPE, *, byte_level: bool, codes: Sequence[str]) -> Entries:
    """What `ignore_merges` takes for a token: a piece that is spelled like one, whatever its prefix and suffix."""
    positional = bool(model.continuing_subword_prefix or model.end_of_word_suffix)
    return _entries(_spell(model.vocab, byte_level, codes), START | END if positional else 0)


def _spell(vocab: Mapping[str, int], byte_level: bool, codes: Sequence[str]) -> Iterable[tuple[bytes, int]]:
    """Token strings as bytes of a buffer; those that are none are left out."""
    swaps = [(code.encode(), bytes([FIRST_CODE + k])) for k, code in enumerate(codes)]
    for token, id in vocab.items():
        if byte_level:
            spelled = from_alphabet(token)
        else:
            spelled = token.encode("utf-8", "surrogatepass")
            for code, byte in swaps:
                spelled = spelled.replace(code, byte)
        if spelled:
            yield spelled, id


def _entries(strings: Iterable[tuple[bytes, int]], place: int) -> Entries:
    pairs = list(strings)
    data = np.frombuffer(b"".join(string for string, _ in pairs), np.uint8)
    sizes = np.fromiter((len(string) for string, _ in pairs), np.int64, len(pairs))
    ids = np.fromiter((id for _, id in pairs), np.int32, len(pairs))
    return Entries(ids, np.full(len(pairs), place, np.uint8), data, sizes)


class Symbols(NamedTuple):
    """The base symbols of entries: characters, or bytes where the unit is a byte.

    ids     int32 [S]  the token that each symbol is alone, at its place; -1 where it is none
    begins  int64 [S]  its first byte in the entries' data
    counts  int64 [n]  symbols of each entry
    """

    ids: np.ndarray
    begins: np.ndarray
    counts: np.ndarray


def symbols(of: Entries, unit: str) -> Symbols:
    """What merging starts from, for each entry."""
    leads = np.ones(len(of.data), bool) if unit == "byte" else (of.data & 0xC0) != 0x80
    begins = np.flatnonzero(leads)
    if not len(of.ids):
        return Symbols(np.zeros(0, np.int32), begins, np.zeros(0, np.int64))
    widths = np.diff(np.append(begins, len(of.data)))
    counts = np.add.reduceat(leads.astype(np.int64), of.begins)
    padded = np.append(of.data, np.zeros(3, np.uint8)).astype(np.int64)
    key = np.zeros(len(begins), np.int64)
    for k in range(4):
        key |= np.where(widths > k, padded[begins + k] << (8 * k + 2), 0)
    first = np.cumsum(counts) - counts
    key[first] |= of.places & START
    key[first + counts - 1] |= of.places & END
    single = counts == 1
    known, order = np.unique(key[first[single]], return_index=True)
    if not len(known):
        return Symbols(np.full(len(begins), -1, np.int32), begins, counts)
    at = np.minimum(np.searchsorted(known, key), len(known) - 1)
    ids = np.where(known[at] == key, of.ids[single][order][at], -1)
    return Symbols(ids.astype(np.int32), begins, counts)


def self_encoding(of: Entries, base: Symbols, pairs: PairTable) -> np.ndarray:
    """bool [n]: whether BPE of the string, at its place, gives the token itself."""
    first, count = merge_all(base.ids.copy(), base.counts, pairs)
    return (count == 1) & (first == of.ids)


def lexicon(of: Entries, own: np.ndarray) -> Lexicon:
    """The tables of distinct strings; bool [n] `own` says which encode themselves, the others hold for whole pieces."""
    short = of.sizes <= SHORT
    marks = (of.sizes << 2 | of.places).astype(np.uint32)
    ids = of.ids.astype(np.uint32) | np.where(own, SELF, np.uint32(0))
    words = _padded(pick(of, short), SHORT // 4)
    keys = [*words.T, marks[short]]
    table = perfect_hash.build(keys)
    rows = np.zeros((table.size, 8), np.uint32)  # 32 bytes: half a cache line
    rows[table.slots(keys), :6] = np.column_stack([words, marks[short], ids[short]])
    width = 1 << (max(int(of.sizes.max(initial=1)), SHORT + 1) - 1 >> 2).bit_length()
    words = _padded(pick(of, ~short), width)
    keys = [*((words * factor).sum(axis=1, dtype=np.uint32) for factor in powers(width)), marks[~short]]
    longs = perfect_hash.build(keys)
    strings = np.zeros((longs.size, width + 2), np.uint32)
    strings[longs.slots(keys)] = np.column_stack([words, marks[~short], ids[~short]])
    seeds = np.array([table.seed, longs.seed])
    return Lexicon(seeds, table.displacements, rows, longs.displacements, strings)


def _padded(of: Entries, width: int) -> np.ndarray:
    """The strings as little-endian words, padded with zeros: uint32 [n, width]."""
    words = np.zeros((len(of.ids), width * 4), np.uint8)
    words[np.arange(width * 4)[None, :] < of.sizes[:, None]] = of.data
    return words.view("<u4")
