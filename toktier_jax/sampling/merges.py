"""Byte-pair merges of one piece on the host, and the test whether two neighbouring tokens encode to themselves.

A token sequence inside a piece is what the merges give if and only if every adjacent pair is (Berglund and van der
Merwe, Formalizing BPE Tokenization, arXiv 2309.08715; the pair test after Antoniadis and others, rust-gems `bpe`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.host.heap_merge import LONG, NO_RULE, merge_long
from toktier_jax.spec.byte_alphabet import from_alphabet
from toktier_jax.spec.types import BPE, BytePairRanks, TokenizerSpec

_NEVER = 1 << 60
_KEPT = 1 << 17
"""Pairs whose answer is kept: some 20 MB."""


class Rules(Protocol):
    """The merges of a model."""

    def __call__(self, left: int, right: int) -> tuple[int, int] | None:
        """(rank, new id) of the merge of two ids, or None."""
        ...


class _Packed(dict[int, int]):
    """Rules as host/heap_merge.py takes them; those that were asked for."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def __missing__(self, pair: int) -> int:
        rule = self._rules(pair >> 32, pair & 0xFFFFFFFF)
        if len(self) >= _KEPT:
            self.clear()
        self[pair] = found = NO_RULE if rule is None else rule[0] << 32 | rule[1]
        return found


class Merges:
    """The merges of a byte-level tokenizer.

    units    id of each byte that is a token
    whole    a closed piece that is a token is that token alone (`ignore_merges`; tiktoken does so always)
    """

    def __init__(self, strings: Sequence[bytes], units: dict[int, int], rules: Rules, whole: bool) -> None:
        self.strings, self.units, self.rules, self.whole = strings, units, rules, whole
        self._packed = _Packed(rules)
        self._pairs: dict[tuple[int, int], bool] = {}
        self._made: dict[int, tuple[int, int, int, bool] | None] = {}

    def encode(self, piece: bytes) -> tuple[int, ...]:
        """Ids of a piece by the merges alone. Raises InputError for a byte without a token."""
        if len(piece) < LONG:
            return tuple(self._merge(piece)[0])
        return tuple(merge_long(self._symbols(piece), list(range(1, len(piece) + 1)), self._packed)[0])

    def reachable(self, id: int) -> bool:
        """Whether the merges make this token of its own bytes."""
        return self._parts(id) is not None

    def pair(self, left: int, right: int) -> bool:
        """Whether left + right, in one piece, encodes to exactly these two."""
        key = left, right
        if (known := self._pairs.get(key)) is None:
            if len(self._pairs) >= _KEPT:
                self._pairs.clear()
            known = self._pairs[key] = self._pair(left, right)
        return known

    def _merge(self, piece: bytes) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Ids, and the merges (left, right, rank) in the order in which they were done. Quadratic: for short pieces."""
        ids = self._symbols(piece)
        done: list[tuple[int, int, int]] = []
        found = [self.rules(left, right) for left, right in itertools.pairwise(ids)]
        while True:
            best, at = _NEVER, -1
            for index, rule in enumerate(found):
                if rule is not None and rule[0] < best:
                    best, at = rule[0], index
            if at < 0:
                return ids, done
            done.append((ids[at], ids[at + 1], best))
            ids[at : at + 2] = [found[at][1]]  # type: ignore[index]  # `best` was found there
            del found[at]
            if at > 0:
                found[at - 1] = self.rules(ids[at - 1], ids[at])
            if at < len(found):
                found[at] = self.rules(ids[at], ids[at + 1])

    def _symbols(self, piece: bytes) -> list[int]:
        try:
            return [self.units[byte] for byte in piece]
        except KeyError as error:
            raise InputError(
                f'the vocabulary cannot spell byte 0x{error.args[0]:02x} of the prompt; use boundary="none"'
            ) from None

    def _parts(self, id: int) -> tuple[int, int, int, bool] | None:
        """(left, right, rank, whether ranks rise) of the last merge of a token; None where merges do not make it.

        A token of one byte has rank -1.
        """
        if id not in self._made:
            string, parts = self.strings[id], None
            if len(string) == 1:
                parts = (id, id, -1, True) if self.units.get(string[0]) == id else None
            elif string and all(byte in self.units for byte in string):
                ids, done = self._merge(string)
                if ids == [id]:
                    rising = all(a[2] <= b[2] for a, b in itertools.pairwise(done))
                    parts = (*done[-1], rising)
            self._made[id] = parts
        return self._made[id]

    def _pair(self, left: int, right: int) -> bool:
        a, b = self._parts(left), self._parts(right)
        if a is None or b is None:
            return False
        if not (a[3] and b[3]):  # a merge that comes before those that made its parts: only the whole run tells
            return self._merge(self.strings[left] + self.strings[right])[0] == [left, right]
        # Backwards in time: what stood left and right of the border while no merge of a rank from `before` on was done.
        before, last = _NEVER, False
        while True:
            rule = self.rules(left, right)
            if rule is not None and (rule[0] < before or (rule[0] == before and last)):
                return False
            if a[2] < 0 and b[2] < 0:
                return True
            if a[2] > b[2]:
                before, last, left = a[2], False, a[1]
                a = self._parts(left)
            else:  # at one rank the leftmost goes first: what the right token's parts did came last
                before, last, right = b[2], True, b[0]
                b = self._parts(right)
            if a is None or b is None:  # a part that its own bytes do not make: cannot be with rising ranks
                return False


def merges_of(spec: TokenizerSpec, strings: Sequence[bytes]) -> Merges:
    """The Merges of a byte-level BPE. Raises UnsupportedError, by name, for every other model."""
    model = spec.model
    if isinstance(model, BytePairRanks):
        ranks, offset = model.ranks, model.offset

        def by_string(left: int, right: int) -> tuple[int, int] | None:
            rank = ranks.get(strings[left] + strings[right])
            return None if rank is None else (rank, rank + offset)

        units = {string[0]: rank + offset for string, rank in ranks.items() if len(string) == 1}
        return Merges(strings, units, by_string, True)
    if not isinstance(model, BPE):
        raise UnsupportedError(f"no exact covers with a {type(model).__name__} model")
    if not spec.byte_level:
        raise UnsupportedError("no exact covers with merges over characters (byte fallback)")
    if model.continuing_subword_prefix or model.end_of_word_suffix or model.dropout:
        raise UnsupportedError("no exact covers with continuing_subword_prefix, end_of_word_suffix or dropout")
    table: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, (left, right) in enumerate(model.merges):
        table[model.vocab[left], model.vocab[right]] = rank, model.vocab[left + right]
    units = {}
    for string, id in model.vocab.items():
        if len(string) == 1 and (data := from_alphabet(string)) is not None and len(data) == 1:
            units[data[0]] = id
    return Merges(strings, units, lambda left, right: table.get((left, right)), model.ignore_merges)
