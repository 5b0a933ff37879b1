"""What a change did to the ids: what a serving loop applies to its own copy and to its KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toktier_jax.errors import InputError


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
        """The new ids, int32, made of the old ones. Raises InputError for what cannot be those."""
        old = np.asarray(old)
        if old.ndim != 1 or (old.size and old.dtype.kind not in "iu") or len(old) < self.keep + self.tail:
            raise InputError(
                f"apply takes the ids before this change, at least {self.keep + self.tail}, not {old.dtype} {old.shape}"
            )
        old = old.astype(np.int32)
        return np.concatenate([old[: self.keep], self.ids, old[len(old) - self.tail :]])
