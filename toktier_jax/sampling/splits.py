"""Where a text that goes on can be cut into pieces: the splits that some continuation still produces.

A pre-tokenizer looks ahead, so the pieces of a prompt's end depend on what follows. `Splitter` walks the bimachines of
the tokenizer over many rows of text at once, each with every continuation that leads them to another state. Host code:
numpy, no JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.program.split import SplitStage, split_stages
from toktier_jax.sampling import walks
from toktier_jax.sampling.characters import decode_rows, unfinished
from toktier_jax.sampling.futures import Futures
from toktier_jax.sampling.normal_form import normal_form
from toktier_jax.spec import types
from toktier_jax.types import ANYTHING, BEGIN, COLLAPSED

_CHUNK, _CELLS = 4096, 1 << 22
"""Rows that are walked together, at most, and their bytes: a walk has some ten arrays of them."""

LONGEST = 1 << 15
"""Bytes at a prompt's end whose pieces may be undecided, at most: each takes a fifth of a millisecond or more for C.
For C+ see LONGEST_PAST in sampling/covers.py."""

_LAST = 8
"""Bytes at a text's end in which its last character lies."""


@dataclass(frozen=True)
class Open:
    """The end of a text whose pieces are not all decided.

    start   byte at which a piece begins whatever follows; nothing before it changes
    data    the text's bytes from there
    lefts   left state of each stage before `start`
    """

    start: int
    data: bytes
    lefts: tuple[int, ...]

    def upto(self, at: int) -> Open:
        """The same with only the first `at` bytes of `data`."""
        return Open(self.start, self.data[:at], self.lefts)


class Splitter:
    """Piece starts of texts under every continuation. Raises UnsupportedError for pipelines that lose text."""

    def __init__(self, spec: types.TokenizerSpec) -> None:
        self.form = normal_form(spec.normalizers)
        self.stages: list[SplitStage] = split_stages(spec.pre_tokenizers, spec.dialect)
        for stage in self.stages:
            if stage.plan.behavior == "Removed" or stage.plan.unit == "byte":
                raise UnsupportedError("no exact covers with a pre-tokenizer that removes text or splits bytes")
        self.futures = Futures(self.stages, self.form)

    @property
    def begin(self) -> tuple[int, ...]:
        """The left states at the start of a text."""
        return tuple(BEGIN for _ in self.stages)

    def open(self, data: bytes, limit: int | None = None) -> Open:
        """The undecided end of a text, at the latest from byte `limit` on, where an added token may begin.

        `data` may end inside a character; other invalid UTF-8 raises InputError, an end of more than LONGEST bytes
        UnsupportedError.
        """
        whole = data[: len(data) - len(unfinished(data))][:limit]
        text = whole.decode()
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.int64)
        size, decided = len(text), len(text)
        starts = np.zeros(size + 1, bool)
        starts[0] = True
        lefts: list[np.ndarray] = []
        for stage, of_code in zip(self.stages, self.futures.of_code, strict=True):
            column = of_code[codes].tolist()
            rights = walks.right(stage, column, starts)
            tail = ANYTHING
            while decided > 0 and tail != COLLAPSED and not (decided < size and starts[decided] and lefts):
                decided -= 1
                tail = int(stage.machine.tail[tail, column[decided]])
            begins, left = walks.left(stage, rights, BEGIN, starts)
            starts = np.append(walks.ruled(stage, begins[None], left[None, 1:], starts[None, :size])[0], False)
            lefts.append(left)
        if not self.stages:
            decided = 0
        cut = 0
        if all(stage.plan.behavior == "Isolated" for stage in self.stages):  # merging rules look at the piece before
            able = starts[: decided + 1]
            if self.form is not None:  # what may follow depends on all from a character on that is not contextual
                able = able & ~np.append(self.form.contextual[codes], False)[: decided + 1]
            cut = int(np.flatnonzero(able).max(initial=0))
        start = len(text[:cut].encode())
        if len(data) - start > LONGEST:
            why = ", ".join(sorted({stage.plan.behavior for stage in self.stages} - {"Isolated"}))
            why = f"the pre-tokenizer's {why} may merge them" if why else "they may be one piece"
            raise UnsupportedError(
                f"no exact covers where the last {len(data) - start} bytes are undecided, of at most {LONGEST}: {why}"
            )
        return Open(start, data[start:], tuple(int(left[cut]) for left in lefts))

    def final(self, begin: Open) -> np.ndarray:
        """Starts bool [n + 1] of `begin.data` where the text ends (inside a character, if it does)."""
        part = unfinished(begin.data)
        data = begin.data[: len(begin.data) - len(part)]
        starts, _ = self._starts([data], begin.lefts, len(data) + 1)
        return np.append(starts[0], np.zeros(len(part), bool))

    def rows(self, begin: Open, added: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Starts of `begin.data + added[i]` under every continuation: (owner int [R], starts bool [R, width + 1]).

        Row r belongs to `added[owner[r]]`; `starts[r, at]` is about byte `at` of data + added, the end included. Texts
        that cannot become UTF-8 have no rows.
        """
        texts: list[bytes] = []
        owner: list[int] = []
        cache: dict[bytes, list[bytes]] = {}
        for index, more in enumerate(added):
            text = begin.data + more
            end = text[-_LAST:]
            if self.form is not None and unfinished(end, strict=False):
                end = self.form.end(text)
            if end not in cache:
                cache[end] = self.futures.after(end)
            for future in cache[end]:
                texts.append(text + future)
                owner.append(index)
        width = len(begin.data) + max(map(len, added), default=0)
        if not texts:
            return np.zeros(0, np.int64), np.zeros((0, width + 1), bool)
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        owners, parts = [], []
        count = max(1, min(_CHUNK, _CELLS // (width + 1)))
        for at in range(0, len(order), count):  # of like length: a walk takes as many steps as the longest has bytes
            chunk = order[at : at + count]
            starts, valid = self._starts([texts[i] for i in chunk], begin.lefts, width + 1)
            owners.append(np.array([owner[i] for i in chunk], np.int64)[valid])
            parts.append(starts[valid])
        return np.concatenate(owners), np.concatenate(parts)

    def _starts(self, texts: list[bytes], lefts: tuple[int, ...], width: int) -> tuple[np.ndarray, np.ndarray]:
        """(starts bool [R, width] by byte, valid bool [R]) of whole texts, from the left states given."""
        size = max(map(len, texts))
        lengths = np.array([len(text) for text in texts])
        data = np.frombuffer(b"".join(text.ljust(size, b"\0") for text in texts), np.uint8).reshape(len(texts), size)
        codes, inside, valid = decode_rows(data, lengths)
        past = np.arange(size)[None, :] >= lengths[:, None]
        starts = np.zeros((len(texts), size + 1), bool)
        for stage, of_code, left in zip(self.stages, self.futures.of_code, lefts, strict=True):
            starts = walks.rows(stage, of_code[codes].astype(np.int32), inside, past, starts, left)
        starts[np.arange(len(texts)), lengths] = True  # the end closes a piece
        starts[:, 0] = True
        missing = max(0, width - starts.shape[1])
        return np.pad(starts, ((0, 0), (0, missing)))[:, :width], valid
