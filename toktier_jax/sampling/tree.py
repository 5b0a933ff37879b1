"""The nodes of the covers as one batch of tokens to forward: a trunk, branches, and who sees whom. Host arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toktier_jax.sampling.covers import Node


@dataclass(frozen=True, eq=False)
class Tree:
    """A trunk of ids and K flat nodes: 0 is the trunk's end, the others are branch tokens, each after its parent.

    tokens   int32 [K]     tokens[0] is the trunk's last id
    parents  int32 [K]     parents[0] = 0
    depths   int32 [K]     0 for the trunk's end
    places   int32 [n]     for each node of the covers its flat node
    """

    trunk: tuple[int, ...]
    tokens: np.ndarray
    parents: np.ndarray
    depths: np.ndarray
    places: np.ndarray

    @property
    def branches(self) -> int:
        return len(self.tokens) - 1

    def ancestors(self) -> np.ndarray:
        """bool [K - 1, K - 1]: which branch tokens each branch token sees, itself included: a row is its parent's and
        itself, so N nodes cost N row copies."""
        seen = np.zeros((self.branches, self.branches), bool)
        for node in range(1, len(self.tokens)):
            parent = self.parents[node]
            if parent:
                seen[node - 1] = seen[parent - 1]
            seen[node - 1, node - 1] = True
        return seen

    def path(self, flat: int) -> list[int]:
        """Flat nodes from the trunk's end, which is left out, to this one."""
        found = []
        while flat:
            found.append(flat)
            flat = int(self.parents[flat])
        return found[::-1]


def plant(before: Sequence[int], nodes: Sequence[Node]) -> Tree:
    """The Tree of nodes after the ids `before`; what all paths share becomes trunk."""
    paths = [node.path for node in nodes]
    shared = 0
    while all(len(path) > shared for path in paths) and len({path[shared] for path in paths}) == 1:
        shared += 1
    trunk = (*before, *(paths[0][:shared] if paths else ()))
    flat: dict[tuple[int, ...], int] = {(): 0}
    tokens, parents, depths = [trunk[-1] if trunk else -1], [0], [0]
    places = []
    for path in paths:
        path = path[shared:]
        for end in range(1, len(path) + 1):
            if path[:end] not in flat:
                flat[path[:end]] = len(tokens)
                tokens.append(path[end - 1])
                parents.append(flat[path[: end - 1]])
                depths.append(end)
        places.append(flat[path])
    arrays = (np.array(values, np.int32) for values in (tokens, parents, depths, places))
    return Tree(trunk, *arrays)
