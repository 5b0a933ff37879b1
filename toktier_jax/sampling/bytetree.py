"""Token paths that were forwarded, as a tree in one cache row: only nodes that are new cost a model call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from toktier_jax.errors import InputError
from toktier_jax.sampling.per_model import per_model
from toktier_jax.sampling.prefill import CHUNK, bucket


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

    def logprobs(self, paths: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """float64 [V] after each path (of at least one id), all in one call where they fit."""
        longest = max(map(len, paths))
        limit = getattr(self.lm, "context_length", None)
        if limit is not None and longest > limit:
            raise InputError(f"the text has {longest} tokens and the model's context {limit}")
        nodes, fresh = self._find(paths)
        if self.used + len(fresh) > self.capacity:  # begin anew with what is needed now
            self.root = PathNode(-1, None)
            nodes, fresh = self._find(paths)
            self.capacity = max(self.capacity, bucket(len(fresh) + len(fresh) // 2, 64))
            self.cache, self.used = self.lm.init_cache(1, self.capacity), 0
        self._forward(fresh, {id(node) for node in nodes if node.logprobs is None})
        return [node.logprobs for node in nodes if node.logprobs is not None]

    def _find(self, paths: Sequence[Sequence[int]]) -> tuple[list[PathNode], list[PathNode]]:
        """The last node of each path, and the nodes to forward, parents first."""
        nodes, fresh, again = [], [], set()
        for path in paths:
            node = self.root
            for token in path:
                if token not in node.children:
                    node.children[token] = PathNode(token, node)
                node = node.children[token]
                if node.slot < 0 and id(node) not in again:
                    again.add(id(node))
                    fresh.append(node)
            if node.slot >= 0 and node.logprobs is None and id(node) not in again:  # forwarded without its logits
                again.add(id(node))
                fresh.append(node)
            nodes.append(node)
        return nodes, fresh

    def _forward(self, fresh: list[PathNode], wanted: set[int]) -> None:
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
            host = np.asarray(logits)[0].astype(np.float64)
            for row, at in enumerate(asked):
                part[at].logprobs = self._normalized(host[row])

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
