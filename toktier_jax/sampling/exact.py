"""The first draw of boundary="exact": one leaf of each row's covers, and the cache with only the path to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toktier_jax.errors import InputError
from toktier_jax.sampling import constraints
from toktier_jax.sampling.covers import Covers
from toktier_jax.sampling.leaves import Row, draw_leaf, leaf_tables
from toktier_jax.sampling.loop import Settings, Static
from toktier_jax.sampling.repair import Boundary
from toktier_jax.sampling.vocabulary import Vocabulary

_NOTHING = np.zeros(0, np.int32)
_EMPTY = Covers((), (), (_NOTHING, _NOTHING), (_NOTHING, _NOTHING, np.zeros(0, np.uint8)), None, b"")


class Drawn(NamedTuple):
    """A leaf: its token, what of it lies past the prompt, its flat node, and its log-share of the covers."""

    token: int
    past: bytes
    flat: int
    logprob: float


def draw(
    vocabulary: Vocabulary,
    rows: Sequence[Boundary],
    logits: Any,
    keys: Any,
    settings: Settings,
    static: Static,
    keep: Sequence[np.ndarray] | None,
) -> tuple[list[Boundary], list[Drawn | None]]:
    """A leaf for each row that has covers, and the rows with what that decides of them.

    logits float32 [B, K, V] are those of each row's flat nodes; `keep` bool [leaves] a row, what a constraint allows.
    Raises InputError for NaN logits and where no leaf is left.
    """
    tables = leaf_tables(vocabulary, [Row(row.covers or _EMPTY, row.tree) for row in rows], logits.shape[1], keep)
    if static.penalize:
        seen = np.zeros((len(rows), logits.shape[2]), bool)
        for b, row in enumerate(rows):
            seen[b, list(row.tree.trunk)] = True
        tables = tables._replace(seen=seen)
    found = draw_leaf(
        logits, settings.known, settings.ranks, tables, keys, settings.temperature, settings.truncation,
        settings.penalty, greedy=static.greedy, truncate=static.truncate, penalize=static.penalize,
    )  # fmt: skip
    leaf, share, total, dropped = (np.asarray(array) for array in found)
    after: list[Boundary] = []
    drawn: list[Drawn | None] = []
    for b, row in enumerate(rows):
        if row.covers is None:
            after.append(row)
            drawn.append(None)
            continue
        if np.isnan(total[b]):
            raise InputError(f"the model's logits are NaN or infinite after the prompt of row {b}")
        if tables.nodes[b, leaf[b]] < 0 or not np.isfinite(share[b]):
            raise InputError(f"nothing is allowed after the prompt of row {b}: constraint or model exclude all")
        flat, token = int(tables.nodes[b, leaf[b]]), int(tables.leaves[b, leaf[b]])
        number = int(np.flatnonzero(row.tree.places == flat)[0])
        drawn.append(Drawn(token, vocabulary.strings[token][row.covers.skip(number) :], flat, float(share[b])))
        after.append(
            dataclasses.replace(
                row,
                kept=(*row.tree.trunk, *row.tree.tokens[row.tree.path(flat)].tolist()),
                cut=row.covers.rest[row.covers.nodes[number].at :],
                dropped=float(max(dropped[b], 0.0)),
                logprob=float(total[b]),
            )
        )
    return after, drawn


def allowed_leaves(
    vocabulary: Vocabulary, constraint: Any, state: Any, rows: Sequence[Boundary], size: int
) -> list[np.ndarray]:
    """For each row bool [leaves of C]: what a constraint allows of their bytes past the prompt."""
    mask = constraints.checked_mask(constraint, state, len(rows), size)
    kept: list[np.ndarray] = []
    for b, row in enumerate(rows):
        covers = row.covers or _EMPTY
        skips = [covers.skip(number) for number in range(len(covers.nodes))]
        leaves = zip(*(array.tolist() for array in covers.leaves), strict=True)
        pasts = [vocabulary.strings[token][skips[number] :] for number, token in leaves]
        kept.append(constraints.allowed(constraint, state, mask, vocabulary, b, pasts))
    return kept


def kept_slots(rows: Sequence[Boundary], drawn: Sequence[Drawn | None], capacity: int) -> np.ndarray:
    """int32 [B, capacity]: the slots of each row's trunk and path, which are all that stays; -1 behind them."""
    slots = np.full((len(rows), capacity), -1, np.int32)
    for b, (row, leaf) in enumerate(zip(rows, drawn, strict=True)):
        trunk = len(row.tree.trunk)
        path = row.tree.path(leaf.flat) if leaf is not None else []
        slots[b, : trunk + len(path)] = [*range(trunk), *(trunk + flat - 1 for flat in path)]
    return slots
