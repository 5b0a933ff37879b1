"""Characters of several bytes that byte-pair merges make in any text, or beside all but some neighbours.

A character is made before anything else where no rule joins its parts with what can be beside it at a rank that is not
above those of its own merges: until it is whole, one of these is always next. Neighbours are told apart by a byte.
"""

from __future__ import annotations

import numpy as np

from toktier_jax.ops.characters import BUCKETS, left_bucket, right_bucket
from toktier_jax.program.merges import PairTable, Parts, Rules
from toktier_jax.types import NEVER, CharacterTables


def character_tables(rules: Rules, pairs: PairTable, parts: Parts, byte_ids: np.ndarray) -> CharacterTables | None:
    """The tables, None where there is no such character.

    parts: first and last symbols as bytes; byte_ids: int [256].
    """
    lefts, rights = (np.full((len(parts.first), BUCKETS), NEVER, np.int64) for _ in range(2))
    np.minimum.at(lefts, (rules.right, left_bucket(parts.last[rules.left])), rules.rank)
    np.minimum.at(rights, (rules.left, right_bucket(parts.first[rules.right])), rules.rank)
    risks, made = np.full(1 << 16, -1, np.int32), np.zeros((1 << 16, 2), np.int32)

    def enter(codes: np.ndarray, id: np.ndarray, level: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
        """left, right: int [n, BUCKETS], the least rank of a rule that joins a part of each with a neighbour."""
        risky = np.concatenate([left, right], axis=1) <= level[:, None]
        whole = level < NEVER
        risks[codes[whole]] = np.packbits(risky[whole], axis=1, bitorder="little").view("<i4")[:, 0]
        made[codes[whole]] = np.stack([id, level], axis=1)[whole]

    codes = np.arange(0x80, 0x800)
    a, b = byte_ids[0xC0 | codes >> 6], byte_ids[0x80 | codes & 0x3F]
    rank, id = pairs.find(a, b)
    enter(codes, id, rank, lefts[a], rights[b])

    codes = np.setdiff1d(np.arange(0x800, 1 << 16), np.arange(0xD800, 0xE000))
    a, b, c = byte_ids[0xE0 | codes >> 12], byte_ids[0x80 | codes >> 6 & 0x3F], byte_ids[0x80 | codes & 0x3F]
    (rank_ab, ab), (rank_bc, bc) = pairs.find(a, b), pairs.find(b, c)
    ab_first = (rank_ab <= rank_bc)[:, None]
    begin = np.where(ab_first, np.stack([ab, c], axis=1), np.stack([a, bc], axis=1))
    rank, id = pairs.find(begin[:, 0], begin[:, 1])
    # where there is neither pair nothing is entered, whatever their ids
    left = np.minimum(lefts[a], np.where(ab_first, lefts[ab], NEVER))
    right = np.minimum(rights[c], np.where(ab_first, NEVER, rights[bc]))
    enter(codes, id, np.maximum(rank, np.minimum(rank_ab, rank_bc)), left, right)
    return None if np.all(risks == -1) else CharacterTables(risks, made)
