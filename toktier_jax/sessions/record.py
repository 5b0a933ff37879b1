"""The record of a session: its text, its tokens, and from where an append goes on. Values and copies, no encode."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from toktier_jax.sessions.blocks import ANCHOR, INNER, TokenBlocks, Tokens
from toktier_jax.sessions.chunks import TextChunks
from toktier_jax.sessions.engine import Window


@dataclass
class Record:
    """What is known of one text.

    leading   template ids before the text; they are no tokens of the blocks
    resume    byte from which an append encodes anew: what ends before stays whatever follows
    revision  grows by one with each change
    distrust  why everything is encoded by the reference from now on; None as long as it is not
    """

    leading: tuple[int, ...] = ()
    text: TextChunks = field(default_factory=TextChunks)
    tokens: TokenBlocks = field(default_factory=TokenBlocks)
    resume: int = 0
    revision: int = 0
    distrust: str | None = None

    def copy(self) -> Record:
        """A record that shares every chunk and block with this one; costs a few pointers for every few thousand
        characters."""
        return Record(self.leading, self.text.copy(), self.tokens.copy(), self.resume, self.revision, self.distrust)

    @property
    def count(self) -> int:
        """Ids, leading ones included."""
        return len(self.leading) + self.tokens.count

    @property
    def bytes_held(self) -> int:
        """About how much memory the record holds alone."""
        text = 49 * len(self.text.chunks) + self.text.byte_length
        return text + 13 * self.tokens.count + 700 * len(self.tokens.blocks) + 1024

    @property
    def bytes_shared(self) -> int:
        """About how much a copy holds that shares all chunks and blocks: it is counted whole once it is changed."""
        return 2048 + 32 * (len(self.text.chunks) + len(self.tokens.blocks))


def flagged(window: Window, base: int) -> Tokens:
    """The tokens of a window that begins at byte `base`, with flags. Anchors inside the text removed by a split, where
    no token begins, are left out."""
    starts, ends = window.byte_starts, window.byte_ends
    flags = np.zeros(len(starts), np.uint8)
    for places, flag in ((window.anchors, ANCHOR), (window.inner, INNER)):
        if len(places) and len(starts):
            at = starts.searchsorted(places)
            if at[-1] == len(starts):
                inside = at < len(starts)
                at, places = at[inside], places[inside]
            at = at[starts[at] == places]
            flags[at] |= flag
    if (ends[:-1] > starts[1:]).any():  # tokens that overlap: work is not resumed in the middle of one
        flags[1:][ends[:-1] > starts[1:]] = 0
    return Tokens(window.ids, np.add(starts, base, dtype=np.int64), np.add(ends, base, dtype=np.int64), flags)
