"""What a change did to the ids: what a serving loop applies to its own copy and to its KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Patch:
    """new = old[:keep] + ids + old[len(old) - tail:]. The KV cache of the first `keep` ids can be used again.

    `old` are the ids of revision - 1, or of `revision` itself where nothing was to be changed. Whoever holds those of
    an earlier one (another handle changed the session, or the verifier had it encoded anew) reads `session.ids`.

    keep, tail  numbers of ids, leading template ids included
    ids         int32 [n], read-only
    revision    of the session after the change
    """

    keep: int
    ids: np.ndarray
    tail: int
    revision: int

    def apply(self, old: np.ndarray) -> np.ndarray:
        """The new ids, int32, made of the old ones."""
        old = np.asarray(old, np.int32)
        return np.concatenate([old[: self.keep], self.ids, old[len(old) - self.tail :]])
