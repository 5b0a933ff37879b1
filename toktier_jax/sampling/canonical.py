"""Canonical token paths: what the pieces and merges make of a text, and which tokens can follow so that some text
encodes to just that path. Pieces that are not decided are taken in all their splits. No added tokens, no model.

A path is kept if, for one split that some continuation still produces, no token crosses a piece's border and every
adjacent pair inside a piece encodes to itself under the merges alone; pairs across a border are not tested.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toktier_jax.sampling.merges import Merges
from toktier_jax.sampling.splits import Open, Splitter
from toktier_jax.sampling.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Canonical:
    """Paths of the texts of one tokenizer."""

    vocabulary: Vocabulary
    merges: Merges
    splitter: Splitter

    def encoded(self, begin: Open) -> tuple[int, ...]:
        """The tokens of the open bytes as a whole text's end."""
        return self.path(begin.data, self.splitter.final(begin))

    def path(self, data: bytes, starts: np.ndarray) -> tuple[int, ...]:
        """The tokens of `data` under one split, starts bool [at least n + 1]; the last piece may still go on."""
        bounds = [*np.flatnonzero(starts[: len(data)]).tolist(), len(data)] if data else []
        path: list[int] = []
        for a, b in itertools.pairwise(bounds):
            path += self._piece(data[a:b], closed=bool(starts[b]))
        return tuple(path)

    def _piece(self, piece: bytes, *, closed: bool) -> tuple[int, ...]:
        if closed and self.merges.whole:
            for id in self.vocabulary.by_bytes.get(piece, ()):
                if id not in self.vocabulary.added:
                    return (id,)
        return self.merges.encode(piece)

    def following(self, begin: Open, path: Sequence[int], at: int, tokens: np.ndarray) -> np.ndarray:
        """Those of `tokens` (each reaches the end of the open bytes) with which `path`, which spells the first `at` of
        them, is canonical for some text that goes on."""
        if not len(tokens):
            return tokens
        rest = begin.data
        strings = [self.vocabulary.strings[token] for token in tokens.tolist()]
        owner, starts = self.splitter.rows(begin, [(rest[:at] + string)[len(rest) :] for string in strings])
        ends = at + self.vocabulary.lengths[tokens][owner]
        closed, begins = starts[np.arange(len(owner)), ends], starts[:, at]
        free = self._keeps(path, at, starts) & ~_crossed(starts, at, ends)
        if path and at:
            pairs = np.ones(len(tokens), bool)
            asked = np.unique(owner[free & ~begins])
            pairs[asked] = [self.merges.pair(path[-1], int(tokens[i])) for i in asked]
            free &= begins | pairs[owner]
        alone = np.unique(owner[free & begins])
        made = np.zeros(len(tokens), bool)
        made[alone] = [self.merges.reachable(int(tokens[i])) for i in alone]
        free &= ~begins | made[owner] | (closed & self.merges.whole)
        if self.merges.whole:
            free &= ~self._spelled_apart(rest[:at], path, strings, owner, starts, ends)
        valid = np.zeros(len(tokens), bool)
        valid[owner[free]] = True
        return tokens[valid]

    def _keeps(self, path: Sequence[int], at: int, starts: np.ndarray) -> np.ndarray:
        """bool [R]: the split has no border inside the path's tokens, and one between each pair that needs it."""
        bounds, needed = set(), set()
        end = 0
        for left, right in itertools.pairwise(path):
            end += len(self.vocabulary.strings[left])
            bounds.add(end)
            if not self.merges.pair(left, right):
                needed.add(end)
        free = np.ones(len(starts), bool)
        for position in range(1, at):
            if position not in bounds:
                free &= ~starts[:, position]
            elif position in needed:
                free &= starts[:, position]
        return free

    def _spelled_apart(
        self,
        before: bytes,
        path: Sequence[int],
        strings: Sequence[bytes],
        owner: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
    ) -> np.ndarray:
        """Rows in which a closed piece is a token (`ignore_merges`) and the path spells it with several."""
        edges = [0]
        for token in path:
            edges.append(edges[-1] + len(self.vocabulary.strings[token]))
        wrong = np.zeros(len(owner), bool)
        known, longest = self.vocabulary.by_bytes, self.vocabulary.longest
        counts = np.cumsum(starts, axis=1)
        rows = np.arange(len(owner))
        for i, a in enumerate(edges[:-1]):
            for b in edges[i + 2 :]:
                if b - a > longest:
                    break
                if before[a:b] in known:
                    wrong |= starts[:, a] & starts[:, b] & (counts[:, b] - counts[:, a] == 1)
            if edges[-1] - a >= longest:
                continue
            both = np.array([before[a:] + string in known for string in strings])[owner]
            wrong |= both & starts[:, a] & starts[rows, ends] & (counts[rows, ends] - counts[:, a] == 1)
        return wrong


def _crossed(starts: np.ndarray, at: int, ends: np.ndarray) -> np.ndarray:
    """bool [R]: whether a piece begins strictly inside a row's last token."""
    place = np.arange(starts.shape[1])[None, :]
    return (starts & (place > at) & (place < ends[:, None])).any(axis=1)
