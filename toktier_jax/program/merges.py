"""The merge rules of a BPE model as arrays and hash tables; BPE by definition, in numpy, of whole vocabularies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toktier_jax.errors import SpecError, UnsupportedError
from toktier_jax.ops.hashing import SYMBOL_BITS, bound_index, bound_key, pack_bound, pack_symbols
from toktier_jax.program import perfect_hash
from toktier_jax.spec.types import BPE, BytePairRanks
from toktier_jax.types import CASCADES, NEVER, MergeTables

_MOST_SYMBOLS = (1 << 14) - 1


class Rules(NamedTuple):
    """Merge rules, in any order: ids `left`, `right` -> id `new`; of two pairs the lower `rank` merges first.

    Each int64 [R]. Rules that make the same token may share a rank; no others do.
    """

    left: np.ndarray
    right: np.ndarray
    rank: np.ndarray
    new: np.ndarray


class PairTable(NamedTuple):
    """Rules by their pair: rows int32 [M, 4] of left, right, rank, new (left -1: empty)."""

    hash: perfect_hash.PerfectHash
    rows: np.ndarray

    def find(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rank (NEVER where there is no rule) and new id of each pair of ids, int32 [n]."""
        row = self.rows[self.hash.slots([left.astype(np.uint32), right.astype(np.uint32)])]
        found = (row[:, 0] == left) & (row[:, 1] == right) & (left >= 0)  # -1 is in rows that are empty
        return np.where(found, row[:, 2], NEVER).astype(np.int32), row[:, 3]


def rules_of(model: BPE | BytePairRanks) -> Rules:
    """The rules of a model. Raises SpecError, naming the merge, where its tokens are not in the vocabulary."""
    return _rank_rules(model) if isinstance(model, BytePairRanks) else _listed_rules(model)


def _listed_rules(model: BPE) -> Rules:
    """Merges as listed; of a pair that is listed twice the last counts, as in the reference."""
    vocab, skip = model.vocab, len(model.continuing_subword_prefix)
    lefts = [vocab.get(left, -1) for left, _ in model.merges]
    rights = [vocab.get(right, -1) for _, right in model.merges]
    news = [vocab.get(left + right[skip:], -1) for left, right in model.merges]
    left, right, new = (np.array(ids, np.int64) for ids in (lefts, rights, news))
    absent = np.flatnonzero((left < 0) | (right < 0) | (new < 0))
    if len(absent):
        raise SpecError(f"model.merges[{absent[0]}] = {model.merges[absent[0]]}: a token of it is not in model.vocab")
    rank = np.arange(len(left))
    _, last = np.unique((left << 32 | right)[::-1], return_index=True)
    kept = len(left) - 1 - last
    return Rules(left[kept], right[kept], rank[kept], new[kept])


def _rank_rules(model: BytePairRanks) -> Rules:
    """Every split of a token into two tokens is a rule; its rank is the token's."""
    ranks = model.ranks
    found: list[int] = []
    for token, rank in ranks.items():
        for cut in range(1, len(token)):
            left = ranks.get(token[:cut])
            if left is not None:
                right = ranks.get(token[cut:])
                if right is not None:
                    found += (left, right, rank)
    left, right, rank = np.array(found, np.int64).reshape(-1, 3).T
    return Rules(left + model.offset, right + model.offset, rank, rank + model.offset)


def pair_table(rules: Rules) -> PairTable:
    """The rules by their pairs of ids."""
    table = perfect_hash.build([rules.left.astype(np.uint32), rules.right.astype(np.uint32)])
    rows = np.full((table.size, 4), -1, np.int32)
    slots = table.slots([rules.left.astype(np.uint32), rules.right.astype(np.uint32)])
    rows[slots] = np.stack([rules.left, rules.right, rules.rank, rules.new], axis=1)
    return PairTable(table, rows)


def merge_all(symbols: np.ndarray, sizes: np.ndarray, pairs: PairTable) -> tuple[np.ndarray, np.ndarray]:
    """BPE by definition on many strings at once: in each, merge the leftmost pair of lowest rank until there is none.

    symbols int32 [S]: the strings' symbols one after another (negative: unknown, never merges); sizes int64 [n], > 0.
    Returns the first id, int32 [n], and the number of ids, int64 [n], of each string.
    """
    first, count = np.empty(len(sizes), np.int32), np.empty(len(sizes), np.int64)
    string = np.repeat(np.arange(len(sizes)), sizes)
    rank, new = pairs.find(symbols[:-1], symbols[1:])
    while len(symbols):
        inner = string[1:] == string[:-1]
        key = np.append(np.where(inner, rank, NEVER).astype(np.int64), NEVER) * len(symbols) + np.arange(len(symbols))
        begins = np.flatnonzero(np.append(True, ~inner))
        best = np.minimum.reduceat(key, begins)
        merges = best < NEVER * len(symbols)
        done = np.repeat(~merges, np.diff(np.append(begins, len(symbols))))
        finished = string[begins[~merges]]
        first[finished], count[finished] = symbols[begins[~merges]], np.diff(np.append(begins, len(symbols)))[~merges]
        at = best[merges] % len(symbols)
        symbols[at] = new[at]
        keep = ~done
        keep[at + 1] = False
        changed = np.zeros(len(symbols), bool)
        changed[at] = True
        symbols, string, changed = symbols[keep], string[keep], changed[keep]
        rank, new = np.append(rank, NEVER)[keep][:-1], np.append(new, 0)[keep][:-1]
        again = np.flatnonzero(changed[:-1] | changed[1:])
        rank[again], new[again] = pairs.find(symbols[again], symbols[again + 1])
    return first, count


class Parts(NamedTuple):
    """What each id is made of: its first and last symbol, uint32 [n], and how many it has, int64 [n]."""

    first: np.ndarray
    last: np.ndarray
    count: np.ndarray

    def as_bytes(self, byte_ids: np.ndarray) -> Parts:
        """With bytes for their ids, int [256]."""
        byte_of = np.zeros(len(self.first), np.uint32)
        byte_of[byte_ids] = np.arange(256)
        return Parts(byte_of[self.first], byte_of[self.last], self.count)


def merge_tables(rules: Rules, pairs: PairTable, parts: Parts, byte_ids: np.ndarray | None) -> tuple[MergeTables, bool]:
    """Tables of rules, and whether a token can be merged at a lower rank than one it is made at.

    byte_ids: int [256], the ids of bytes where these are the symbols; then they are the symbols of `parts`.
    """
    first, last, count = parts
    size = len(first)
    lowest = np.full(size, NEVER)
    np.minimum.at(lowest, rules.left, rules.rank)
    np.minimum.at(lowest, rules.right, rules.rank)
    rows = pairs.rows.copy()
    cascades = (rows[:, 0] >= 0) & (lowest[rows[:, 3]] < rows[:, 2])
    rows[cascades, 3] |= CASCADES
    if byte_ids is None:
        first, last = ((ends * np.uint32(0x9E3779B1)) >> np.uint32(32 - SYMBOL_BITS) for ends in (first, last))
        of_bytes = np.full((1, 4), NEVER, np.int32)
    else:
        of_bytes = _of_bytes(rules, pairs._replace(rows=rows), byte_ids, first, last, count)
    symbols = np.zeros(1 << max(size - 1, 1).bit_length(), np.uint32)
    symbols[:size] = pack_symbols(first, last, np.log2(count).astype(np.uint32))
    left_bounds = _bounds(rules.right, last[rules.left], count[rules.left], rules.rank)
    right_bounds = _bounds(rules.left, first[rules.right], count[rules.right], rules.rank)
    tables = MergeTables(pairs.hash.seed, pairs.hash.displacements, rows, left_bounds, right_bounds, symbols, of_bytes)
    return tables, bool(cascades.any())


def _bounds(ids: np.ndarray, symbol: np.ndarray, count: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """The least rank at which each id is joined with a token of more than 2 ** k symbols with `symbol` at its side.

    By hash of (symbol, k, id), for the k that are asked: those with 2 ** k below the token's `count`. Rounded down, so
    that the table is small: `ops.hashing.pack_bound`.
    """
    bits = max(3 * len(ids) - 1, 1 << 8).bit_length()
    table = np.full(1 << bits, NEVER, np.int32)
    for power in range(int(count.max(initial=1)).bit_length()):
        of = count > 1 << power
        key = bound_key(symbol[of], np.full(int(of.sum()), power, np.uint32))
        np.minimum.at(table, bound_index(key, ids[of].astype(np.uint32), bits), rank[of].astype(np.int32))
    return pack_bound(table)


def _of_bytes(
    rules: Rules, pairs: PairTable, byte_ids: np.ndarray, first: np.ndarray, last: np.ndarray, count: np.ndarray
) -> np.ndarray:
    """Rule and bounds of each pair of bytes, int32 [65536, 4]; the bytes that ids begin and end with, their symbols."""
    table = np.full((1 << 16, 4), NEVER, np.int32)
    table[:, 0], table[:, 1] = pairs.find(np.tile(byte_ids, 256), np.repeat(byte_ids, 256))
    at = last[rules.left] | first[rules.right] << np.uint32(8)
    single_left, single_right = count[rules.left] == 1, count[rules.right] == 1
    rank = rules.rank.astype(np.int32)
    for column, of in ((2, single_right & ~single_left), (3, single_left & ~single_right)):
        np.minimum.at(table[:, column], at[of], rank[of])
    return table


def parts_of(rules: Rules, size: int) -> Parts:
    """What the ids below `size` are made of, by the ids of symbols.

    Raises UnsupportedError where rules disagree about that.
    """
    first, last = np.arange(size, dtype=np.uint32), np.arange(size, dtype=np.uint32)
    count = np.ones(size, np.int64)
    changed = True
    while changed:
        changed = False
        for values, made in (
            (first, lambda: first[rules.left]),
            (last, lambda: last[rules.right]),
            (count, lambda: count[rules.left] + count[rules.right]),
        ):
            if np.any(values[rules.new] != made()):
                before = values.copy()
                values[rules.new] = made()
                if np.array_equal(before, values) or np.any(count > _MOST_SYMBOLS):
                    raise UnsupportedError("model.merges make one token in ways that differ in its symbols")
                changed = True
    return Parts(first, last, count)
