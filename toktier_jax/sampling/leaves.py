"""Log-probabilities of the leaves of covers and one draw among them, on the device. Pure functions on arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32

from toktier_jax.sampling.covers import Covers
from toktier_jax.sampling.draw import choose, penalized
from toktier_jax.sampling.prefill import bucket
from toktier_jax.sampling.tree import Tree
from toktier_jax.sampling.vocabulary import Vocabulary


class LeafTables(NamedTuple):
    """The leaves of a batch. B rows, K flat nodes, N leaves; sizes are powers of two.

    tokens, parents  int32 [B, K]     of the flat nodes
    above            bool [B, K, K]   which flat nodes lie on the way to each one, itself included, the root not
    nodes, leaves    int32 [B, N]     flat node and token of each leaf, node -1 where there is none
    ranges           int32 [B, K, 2]  [lo, hi) of the tokens that begin with what each node leaves of the prompt
    kept             bool [B, N] or None  the leaves that a constraint allows
    seen             bool [B, V] or None  tokens of the trunk, for the repetition penalty
    """

    tokens: Any
    parents: Any
    above: Any
    nodes: Any
    leaves: Any
    ranges: Any
    kept: Any = None
    seen: Any = None


@dataclass(frozen=True, eq=False)
class Row:
    """One prompt's covers, planted."""

    covers: Covers
    tree: Tree


def leaf_tables(
    vocabulary: Vocabulary, rows: Sequence[Row], nodes: int, keep: Sequence[np.ndarray] | None = None
) -> LeafTables:
    """Tables of the C leaves of each row; `keep` bool [leaves] a row, what a constraint allows."""
    batch = len(rows)
    size = bucket(max(len(row.covers.leaves[0]) for row in rows))
    tokens, parents = (np.zeros((batch, nodes), np.int32) for _ in range(2))
    above = np.zeros((batch, nodes, nodes), bool)
    of, leaves = np.full((batch, size), -1, np.int32), np.zeros((batch, size), np.int32)
    ranges = np.zeros((batch, nodes, 2), np.int32)
    kept = None if keep is None else np.zeros((batch, size), bool)
    for b, row in enumerate(rows):
        count = len(row.tree.tokens)
        tokens[b, :count], parents[b, :count] = row.tree.tokens, row.tree.parents
        above[b, 1:count, 1:count] = row.tree.ancestors()
        numbers, ends = row.covers.leaves
        of[b, : len(ends)], leaves[b, : len(ends)] = row.tree.places[numbers], ends
        if keep is not None and kept is not None:
            kept[b, : len(ends)] = keep[b]
        for node, flat in zip(row.covers.nodes, row.tree.places, strict=True):
            if node.at < len(row.covers.rest):
                ranges[b, flat] = vocabulary.range(row.covers.rest[node.at :])
    return LeafTables(tokens, parents, above, of, leaves, ranges, kept)


def node_logprobs(
    logits: Float[Array, "batch k vocab"], known: Array, tables: LeafTables, temperature: Any, penalty: Any = None
) -> tuple[Float[Array, "batch k vocab"], Float[Array, "batch k"]]:
    """Log-probs after each flat node, and of the way to it. Temperature acts on every conditional."""
    logits = jnp.where(known[None, None, :], logits, -jnp.inf)
    if penalty is not None:  # each node's own path
        hot = jax.nn.one_hot(tables.tokens, logits.shape[2], dtype=jnp.int32)
        path = jnp.einsum("bkj,bjv->bkv", tables.above.astype(jnp.int32), hot) > 0
        seen = path | tables.seen[:, None, :]
        logits = penalized(logits, seen, penalty)
    logprobs = jax.nn.log_softmax(logits / temperature, axis=-1)
    rows = jnp.arange(logits.shape[0], dtype=jnp.int32)[:, None]
    edges = logprobs[rows, tables.parents, tables.tokens]
    way = jnp.sum(jnp.where(tables.above, edges[:, None, :], 0.0), axis=2)
    return logprobs, way


def _leaf_scores(tables: LeafTables, logprobs: Array, way: Array) -> Float[Array, "batch n"]:
    """log w of each leaf; -inf where there is none."""
    rows = jnp.arange(logprobs.shape[0], dtype=jnp.int32)[:, None]
    node = jnp.maximum(tables.nodes, 0)
    score = way[rows, node] + logprobs[rows, node, tables.leaves]
    return jnp.where(tables.nodes >= 0, score, -jnp.inf)


@functools.partial(jax.jit, static_argnames=("greedy", "truncate", "penalize"))
def draw_leaf(
    logits: Float[Array, "batch k vocab"],
    known: Array,
    ranks: Int32[Array, " vocab"],
    tables: LeafTables,
    keys: Array,
    temperature: Array,
    truncation: tuple[Array, Array, Array],
    penalty: Array,
    *,
    greedy: bool,
    truncate: bool,
    penalize: bool,
) -> tuple[Array, Array, Array, Array]:
    """(leaf int32 [B], its log-share of C(P) [B], log of C(P)'s mass [B], dropped share [B]).

    Temperature and penalty act on every conditional, truncation once, on the softmax over C(P). They decide the draw
    only: the numbers are at temperature 1, before penalty and truncation. The log-share is among the leaves that the
    constraint allows, the mass that of all. The dropped share is what paths that no text encodes to have of the mass of
    all tokens that extend the nodes. Logits that are NaN or +inf give NaN.
    """
    logprobs, way = node_logprobs(logits, known, tables, jnp.float32(1.0))
    score = _leaf_scores(tables, logprobs, way)
    total = jax.nn.logsumexp(score, axis=1)
    place = ranks[None, None, :]
    inside = (place >= tables.ranges[:, :, :1]) & (place < tables.ranges[:, :, 1:])
    mass = jax.nn.logsumexp(jnp.where(inside, logprobs + way[:, :, None], -jnp.inf), axis=(1, 2))
    if penalize or not greedy:
        drawn = _leaf_scores(tables, *node_logprobs(logits, known, tables, temperature, penalty if penalize else None))
    else:
        drawn = score
    if tables.kept is not None:
        score, drawn = (jnp.where(tables.kept, scores, -jnp.inf) for scores in (score, drawn))
    share = jax.nn.log_softmax(score, axis=1)
    leaf = choose(
        jax.nn.log_softmax(drawn, axis=1), keys, jnp.float32(1.0), truncation if truncate else None, greedy=greedy
    )
    bad = jnp.any(known[None, None, :] & ~(logits < jnp.inf), axis=(1, 2))
    total = jnp.where(bad, jnp.nan, total)
    return leaf, jnp.take_along_axis(share, leaf[:, None], axis=1)[:, 0], total, 1.0 - jnp.exp(total - mass)
