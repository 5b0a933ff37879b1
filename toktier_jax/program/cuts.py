"""Where a piece may be cut: what tokens have round the borders of their symbols."""

from __future__ import annotations

import numpy as np

from toktier_jax.ops.hashing import gram_index, six
from toktier_jax.program.vocabulary import Entries, Symbols
from toktier_jax.types import CutTables

_BITS_PER_GRAM = 16


def cut_tables(of: Entries, base: Symbols, together: np.ndarray) -> CutTables:
    """What lies across a border between two symbols inside some entry.

    A border inside no token is a cut: merges on its two sides know nothing of each other. The pair of bytes at the
    border decides; between two characters of three bytes each, all six of them do, for tokens that have them all
    (most of the world's unspaced text is of such characters). Bytes in bool [256] `together` are never parted.
    """
    first = np.cumsum(base.counts) - base.counts
    inner = np.ones(len(base.begins), bool)
    inner[first] = False
    at = base.begins[inner]
    entry = np.repeat(np.arange(len(of.ids)), base.counts)[inner]
    left, right = at - of.begins[entry], (of.begins + of.sizes)[entry] - at
    data = np.pad(of.data, 3).astype(np.uint32)
    around = [data[at + 3 + k] for k in range(-3, 3)]
    wide = (left >= 3) & (right >= 3) & (around[0] & 0xF0 == 0xE0) & (around[3] & 0xF0 == 0xE0)
    pairs = np.zeros(1 << 16, bool)
    pairs[(around[2] | around[3] << np.uint32(8))[~wide]] = True
    unknown = np.flatnonzero(together)
    pairs[unknown[:, None] | unknown[None, :] << 8] = True
    words = six(*(byte[wide] for byte in around))
    bits = max(len(words[0]) * _BITS_PER_GRAM, 1 << 10).bit_length()
    grams = np.zeros(1 << bits, bool)
    grams[gram_index(*words, bits)] = True
    return CutTables(_pack(pairs), _pack(grams))


def _pack(mask: np.ndarray) -> np.ndarray:
    """bool [32 W] as bits of uint32 [W]."""
    return np.packbits(mask, bitorder="little").view("<u4")
