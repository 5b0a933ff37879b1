"""Token paths that were forwarded, as a tree in one cache row: only nodes that are new cost a model call."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from toktier_jax.errors import InputError
from toktier_jax.sampling.per_model import per_model
from toktier_jax.sampling.prefill import CHUNK, bucket

CHAIN = 64
"""Tokens of a chain that one call forwards: the model gives each a row as long as the vocabulary."""


class PathNode:
    """One forwarded token: its slot, what follows it, and the log-probs after it once they were asked for."""

    __slots__ = ("children", "depth", "logprobs", "parent", "slot", "token")

    def __init__(self, token: int, parent: PathNode | None) -> None:
        self.token, self.parent = token, parent
        self.depth = 0 if parent is None else parent.depth + 1
        self.children: dict[int, PathNode] = {}
        self.slot = -1
        self.logprobs: np.ndarray | None = None

    def way(self) -> list[PathNode]:
        """From the first token to this one."""
        found: list[PathNode] = []
        node: PathNode | None = self
        while node is not None and node.depth:
            found.append(node)
            node = node.parent
        return found[::-1]


class PathTree:
    """Log-probs after token paths, for one growing text.

    calls, forwarded  model calls and tokens so far
    """

    def __init__(self, lm: Any, known: np.ndarray, room: int, temperature: float = 1.0, chunk: int = CHUNK) -> None:
        """`known` bool [V]: logit columns with a token; `room` slots to begin with; a positive temperature; at most
        `chunk` tokens a call."""
        self.lm, self.known, self.temperature, self.chunk = lm, known, temperature, chunk
        self.params = getattr(lm, "params", None)
        self.capacity = bucket(room, 64)
        self.calls = self.forwarded = self.used = 0
        self.root = PathNode(-1, None)
        self.cache = lm.init_cache(1, self.capacity)
        self._holding: list[PathNode] = []  # nodes that keep their log-probs
        self._asked: list[PathNode] = []  # those of the last call of `logprobs`

    def logprobs(self, paths: Sequence[Sequence[int]], trunk: Sequence[int] = ()) -> list[np.ndarray]:
        """float64 [V] after `trunk` and each path (together at least one id), all in one call where they fit.

        The tree keeps these rows until `forget`.
        """
        self._check_length(len(trunk) + max(map(len, paths)))
        nodes, fresh = self._find(trunk, paths)
        if self.used + len(fresh) > self.capacity:
            self._uproot()
            nodes, fresh = self._find(trunk, paths)
            self._allocate(len(fresh))
        for node, row in self._forward(fresh, {id(node) for node in nodes if node.logprobs is None}):
            node.logprobs = row
            self._holding.append(node)
        self._asked = nodes
        return [node.logprobs for node in nodes if node.logprobs is not None]

    def forget(self) -> None:
        """Drops the rows that the last call of `logprobs` did not ask for: each is as long as the vocabulary."""
        asked = set(map(id, self._asked))
        for node in self._holding:
            if id(node) not in asked:
                node.logprobs = None
        self._holding = [node for node in self._holding if node.logprobs is not None]

    def chain(self, ids: Sequence[int]) -> float:
        """The sum of log p(ids[k] | ids[:k]) for k from 1 to the end. The last id is not forwarded.

        One number of each row is read and no row is kept: the memory is that of CHAIN rows, however many ids.
        """
        self._check_length(len(ids) - 1)
        way = self._walk(self.root, ids[:-1])
        if self.used + sum(node.logprobs is None for node in way) > self.capacity:
            self._uproot()
            way = self._walk(self.root, ids[:-1])
            self._allocate(len(way))
        total = 0.0
        for begin in range(0, len(way), CHAIN):
            part = way[begin : begin + CHAIN]
            after = ids[begin + 1 : begin + 1 + len(part)]
            follows = {id(node): token for node, token in zip(part, after, strict=True)}
            found = {id(node): node.logprobs[follows[id(node)]] for node in part if node.logprobs is not None}
            fresh = [node for node in part if node.logprobs is None]
            found |= {id(node): row[follows[id(node)]] for node, row in self._forward(fresh, follows.keys())}
            total += sum(float(found[id(node)]) for node in part)
        return total

    def _check_length(self, longest: int) -> None:
        limit = getattr(self.lm, "context_length", None)
        if limit is not None and longest > limit:
            raise InputError(f"the text has {longest} tokens and the model's context {limit}")

    def _uproot(self) -> None:
        """Forgets all nodes: the cache is full, and begins anew with what is needed now."""
        self.root, self._holding, self._asked = PathNode(-1, None), [], []

    def _allocate(self, count: int) -> None:
        """An empty cache with room for `count` tokens, and some."""
        self.capacity = max(self.capacity, bucket(count + count // 2, 64))
        self.cache, self.used = self.lm.init_cache(1, self.capacity), 0

    @staticmethod
    def _walk(node: PathNode, ids: Sequence[int]) -> list[PathNode]:
        """The nodes of `ids` after `node`, made where there are none."""
        way = []
        for token in ids:
            if token not in node.children:
                node.children[token] = PathNode(token, node)
            node = node.children[token]
            way.append(node)
        return way

    def _find(self, trunk: Sequence[int], paths: Sequence[Sequence[int]]) -> tuple[list[PathNode], list[PathNode]]:
        """The last node of each path, and the nodes to forward, parents first."""
        shared = self._walk(self.root, trunk)
        nodes, fresh = [], [node for node in shared if node.slot < 0]
        again = set(map(id, fresh))
        for path in paths:
            way = self._walk(shared[-1] if shared else self.root, path) or shared[-1:]
            for node in way:
                unread = node is way[-1] and node.logprobs is None  # perhaps forwarded, but without its logits
                if id(node) not in again and (node.slot < 0 or unread):
                    again.add(id(node))
                    fresh.append(node)
            nodes.append(way[-1])
        return nodes, fresh

    def _forward(self, fresh: list[PathNode], wanted: Collection[int]) -> Iterator[tuple[PathNode, np.ndarray]]:
        """Forwards the nodes; yields those whose id() is wanted with their float64 log-probs [V], one row at a time."""
        for begin in range(0, len(fresh), self.chunk):
            part = fresh[begin : begin + self.chunk]
            size = bucket(len(part))
            tokens = np.zeros((1, size), np.int32)
            positions = np.full((1, size), -1, np.int32)
            mask = np.zeros((1, size, self.capacity), bool)
            for at, node in enumerate(part):
                node.slot = self.used + at
                tokens[0, at], positions[0, at] = node.token, node.depth - 1
                parent = node.parent
                if at and parent is part[at - 1]:
                    mask[0, at] = mask[0, at - 1]
                elif parent is not None:
                    mask[0, at, [above.slot for above in parent.way()]] = True
                mask[0, at, node.slot] = True
            asked = [at for at, node in enumerate(part) if id(node) in wanted]
            select = np.zeros((1, bucket(len(asked))), np.int32)
            select[0, : len(asked)] = asked
            logits, self.cache = _apply(self.lm)(self.params, self.cache, tokens, positions, mask, select)
            self.used += len(part)
            self.calls += 1
            self.forwarded += len(part)
            host = np.asarray(logits)[0]
            for row, at in enumerate(asked):
                yield part[at], self._normalized(host[row].astype(np.float64))

    def _normalized(self, logits: np.ndarray) -> np.ndarray:
        logits = np.where(self.known, logits, -np.inf) / self.temperature
        if not (logits < np.inf).all():
            raise InputError("the model's logits are NaN or infinite")
        top = logits.max()
        return logits - (top + np.log(np.exp(logits - top).sum()))


@per_model
def _apply(lm: Any) -> Any:
    def run(params, cache, tokens, positions, mask, at):
        if getattr(lm, "selects", False):
            return lm.apply(params, tokens, positions, cache, mask, at)
        logits, cache = lm.apply(params, tokens, positions, cache, mask)
        return jnp.take_along_axis(logits, at[:, :, None], axis=1), cache

    return jax.jit(run, donate_argnums=1)
