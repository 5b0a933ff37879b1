"""A Model whose logits depend on the token path alone, by a hash; tokens that no text encodes to are masked."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from toktier_jax.models import Cache, write_slots
from toktier_jax.sampling.covers import Node, cover_rules
from toktier_jax.sampling.splits import Open
from toktier_jax.sampling.vocabulary import vocabulary_of


class HashModel:
    """Not fast: every token asks the host."""

    def __init__(self, tok: Any, favour: tuple[bytes, int] | None = None, nan: bool = False) -> None:
        self.tok, self.favour, self.nan = tok, favour, nan
        self.vocab_size = len(vocabulary_of(tok).strings)

    def init_cache(self, batch: int, length: int) -> Cache:
        layers = jnp.zeros((batch, length), jnp.int32), jnp.zeros((batch, length), jnp.int32)
        return Cache(jnp.zeros((batch,), jnp.int32), layers, length)

    def gather(self, cache: Cache, rows: jax.Array) -> Cache:
        index = jnp.maximum(rows, 0)
        layers = tuple(jnp.take_along_axis(layer, index, axis=1) for layer in cache.layers)
        return Cache(jnp.sum(rows >= 0, axis=1, dtype=jnp.int32), layers, cache.capacity)

    def apply(self, params: Any, tokens: jax.Array, positions: jax.Array, cache: Cache, mask: jax.Array):
        real = positions >= 0
        slots = cache.length[:, None] + jnp.cumsum(real, axis=1, dtype=jnp.int32) - 1
        slots = jnp.where(real, slots, cache.capacity)
        ids, places = (write_slots(c, slots, x) for c, x in zip(cache.layers, (tokens, positions), strict=True))
        shape = jax.ShapeDtypeStruct((*tokens.shape, self.vocab_size), jnp.float32)
        logits = jax.pure_callback(self._logits, shape, ids, places, mask, positions)
        return logits, Cache(cache.length + jnp.sum(real, axis=1, dtype=jnp.int32), (ids, places), cache.capacity)

    def _logits(self, ids: Any, places: Any, mask: Any, positions: Any) -> np.ndarray:
        ids, places, mask, positions = (np.asarray(array) for array in (ids, places, mask, positions))
        out = np.zeros((*positions.shape, self.vocab_size), np.float32)
        for b, t in np.ndindex(*positions.shape):
            if positions[b, t] >= 0:
                slots = np.flatnonzero(mask[b, t])
                order = slots[np.argsort(places[b, slots])]
                assert places[b, order].tolist() == list(range(len(order))), "a path has one token a position"
                out[b, t] = self._after(tuple(ids[b, order].tolist()))
        return out

    @functools.cache  # noqa: B019  # lives as long as the test
    def _after(self, path: tuple[int, ...]) -> np.ndarray:
        vocabulary, rules = vocabulary_of(self.tok), cover_rules(self.tok)
        logits = 2 * np.random.default_rng(list(path)).standard_normal(self.vocab_size).astype(np.float32)
        if self.nan:
            return logits * np.nan
        ordinary = tuple(id for id in path if id not in vocabulary.special)
        text = b"".join(vocabulary.strings[id] for id in ordinary)
        if self.favour is not None and self.favour[0] == text:
            logits[self.favour[1]] += 20
        keep = np.zeros(self.vocab_size, bool)
        begin = Open(0, text, rules.canonical.splitter.begin)
        keep[rules._leaves(begin, Node(ordinary, len(text)), text, past=True)] = True
        if rules.whole(text) == text and rules.encode(text) == ordinary:
            keep[sorted(vocabulary.special)] = True
        return np.where(keep, logits, -np.inf).astype(np.float32)
