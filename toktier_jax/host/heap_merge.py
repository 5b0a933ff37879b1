"""Byte-pair merges of one long piece on the host, by a heap and a linked list: n log n. Knows ids alone, no bytes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

LONG = 64
"""Symbols from which on this is faster than a look at all pairs for each merge."""

NO_RULE = 1 << 62
"""The rule of a pair that has none."""


def merge_long(ids: list[int], ends: list[int], rules: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Ids and the byte after each, merged: the lowest rank first, of equal ones the leftmost. Changes both in place.

    `rules[left << 32 | right]` is rank << 32 | new id, or NO_RULE.
    """
    count = len(ids)
    after, before = list(range(1, count + 1)), list(range(-1, count - 1))
    alive = [True] * count
    heap: list[tuple[int, int, int, int, int]] = []

    def offer(at: int) -> None:
        follower = after[at]
        if follower < count:
            rule = rules[ids[at] << 32 | ids[follower]]
            if rule != NO_RULE:
                heap.append((rule >> 32, at, rule & 0xFFFFFFFF, ids[at], ids[follower]))

    for at in range(count):
        offer(at)
    heapq.heapify(heap)
    while heap:
        _, at, new, left, right = heapq.heappop(heap)
        if not alive[at] or ids[at] != left:
            continue
        follower = after[at]
        if follower >= count or ids[follower] != right:
            continue
        ids[at], ends[at] = new, ends[follower]
        alive[follower] = False
        after[at] = after[follower]
        if after[at] < count:
            before[after[at]] = at
        for place in (before[at], at):
            if place >= 0:
                size = len(heap)
                offer(place)
                if len(heap) > size:
                    heapq.heappush(heap, heap.pop())
    kept = [at for at in range(count) if alive[at]]
    return [ids[at] for at in kept], [ends[at] for at in kept]
