"""Perfect hash tables by displacement: each key has one slot, found with two look-ups. Nothing about tokenizers.

A key's first hash names a bucket, its second a place; the bucket's displacement is added to the place (Pagh, Hash and
Displace, WADS 1999). A reader compares the key that it finds, so a foreign key is never taken for a member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toktier_jax.errors import SpecError
from toktier_jax.ops.hashing import hash_pair

_SLOTS_PER_BUCKET = 4
_LOAD = 0.85
_SEEDS = 1000
_TRIALS = 1000
"""Displacements tried for the buckets of one count. In a small table a bucket may fit nowhere."""


class PerfectHash(NamedTuple):
    """`slot = (place(key) + displacements[bucket(key)]) mod size`, both from the seeded hashes of the key's words."""

    seed: np.uint32
    displacements: np.ndarray  # int32 [size / 4]
    size: int  # a power of two

    def slots(self, words: Sequence[np.ndarray]) -> np.ndarray:
        """The only slot where each key can be, int64 [n]."""
        bucket, place = _places(words, self.seed, self.size)
        return (place + self.displacements[bucket]) & (self.size - 1)


def build(words: Sequence[np.ndarray]) -> PerfectHash:
    """A table for n distinct keys, each of a few words (uint32 [n] arrays), at most 85% full."""
    count = len(words[0])
    size = 1 << max(3, (int(np.ceil(count / _LOAD)) - 1).bit_length())
    for seed in range(_SEEDS):  # about every second seed will do
        displacements = _displace(*_places(words, np.uint32(seed), size), size)
        if displacements is not None:
            return PerfectHash(np.uint32(seed), displacements, size)
    raise SpecError(f"no hash tells {count} keys apart: two of them must be equal")


def _places(words: Sequence[np.ndarray], seed: np.uint32, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Bucket and place: the upper bits of the two hashes, int64 [n] both."""
    first, second = hash_pair(words, seed)
    bits = size.bit_length() - 1
    buckets = (size // _SLOTS_PER_BUCKET).bit_length() - 1
    return np.asarray(first >> np.uint32(32 - buckets), np.int64), np.asarray(second >> np.uint32(32 - bits), np.int64)


def _displace(bucket: np.ndarray, place: np.ndarray, size: int) -> np.ndarray | None:
    """Displacements that give each key a slot of its own; None if there are none, or none were found."""
    same = np.sort(bucket * size + place)
    if np.any(same[1:] == same[:-1]):
        return None
    displacements = np.zeros(size // _SLOTS_PER_BUCKET, np.int32)
    counts = np.bincount(bucket, minlength=len(displacements))
    order = np.argsort(bucket, kind="stable")
    begins = np.cumsum(counts) - counts
    taken = np.zeros(size, bool)
    owner = np.empty(size, np.int64)
    random = np.random.default_rng(0)
    for count in range(int(counts.max(initial=0)), 1, -1):  # the fullest buckets choose first
        waiting = np.flatnonzero(counts == count)
        local = place[order[begins[waiting][:, None] + np.arange(count)]]
        for _ in range(_TRIALS):
            if not len(waiting):
                break
            trial = random.integers(0, size, len(waiting))
            slots = (local + trial[:, None]) & (size - 1)
            owner[slots] = waiting[:, None]
            good = np.all((owner[slots] == waiting[:, None]) & ~taken[slots], axis=1)
            taken[slots[good]] = True
            displacements[waiting[good]] = trial[good]
            waiting, local = waiting[~good], local[~good]
        if len(waiting):
            return None
    single = np.flatnonzero(counts == 1)
    free = np.flatnonzero(~taken)[: len(single)]
    displacements[single] = (free - place[order[begins[single]]]) & (size - 1)
    return displacements
