"""What may follow a text: continuations that lead a pre-tokenizer's bimachines to every state they can be in.

No search over texts: a bimachine has few states, and each is reached by some characters from the end of the text.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.program.classes import partition
from toktier_jax.program.split import SplitStage
from toktier_jax.sampling import characters, walks
from toktier_jax.sampling.normal_form import NormalForm
from toktier_jax.types import END, GAP_START

MOST = 512
"""Joint states of the stages at a text's end, at most: each costs every cover a row. Known files have up to 29."""


class Futures:
    """Continuations for texts under these stages, in `form` if there is one.

    of_code   int [0x110000] a stage: the class of each code point
    """

    def __init__(self, stages: Sequence[SplitStage], form: NormalForm | None = None) -> None:
        self.stages, self.form = stages, form
        self.of_code = [partition(stage.masks).lookup(np.arange(0x110000)) for stage in stages]
        joint = np.zeros(0x110000, np.int64)
        for classes in self.of_code:
            joint = joint * (int(classes.max()) + 1) + classes
        self._joint = np.unique(joint, return_inverse=True)[1].reshape(-1).astype(np.int32)
        self._joint[0xD800:0xE000] = -1
        kinds, places = np.unique(self._joint, return_index=True)
        if form is not None:  # an example has to be one after every text
            free = np.flatnonzero(form.free)
            able = self._joint[form.free | form.contextual]
            kinds, places = np.unique(self._joint[free], return_index=True)
            places = free[places]
            if len(np.setdiff1d(able[able >= 0], kinds)):
                raise UnsupportedError(
                    f"no exact covers with the normalizer {form.name} and a pre-tokenizer that tells characters apart "
                    "which it composes or orders"
                )
        self._examples = tuple(chr(int(at)) for kind, at in zip(kinds, places, strict=True) if kind >= 0)

    def after(self, end: bytes) -> list[bytes]:
        """What may follow a text that ends so: for an unfinished character, first every class that it can become.

        Nothing where the text cannot become UTF-8. Where there is a normal form, `end` begins as `NormalForm.end` does
        if it ends inside a character.
        """
        part = characters.unfinished(end, strict=False)
        if part:
            if not characters.possible(part):
                return []
            return [more + future for more, last in self._completions(end, part) for future in self._after[last]]
        at = len(end) - 1
        while at > 0 and end[at] & 0xC0 == 0x80:
            at -= 1
        try:
            code = ord(end[at:].decode())
        except (UnicodeDecodeError, TypeError):
            return [] if end else list(self.all)
        return list(self._after[int(self._joint[code])])

    @functools.cached_property
    def all(self) -> tuple[bytes, ...]:
        """Continuations that lead to every state which the stages can be in at a text's end; b"" is its end."""
        start = tuple(END for _ in self.stages)
        found, fresh = {start: ""}, [start]
        while fresh:
            if len(found) > MOST:
                raise UnsupportedError(f"no exact covers with pre-tokenizers of more than {MOST} states together")
            state, fresh = fresh[0], fresh[1:]
            for char in self._examples:
                classes = [int(of[ord(char)]) for of in self.of_code]
                after = tuple(int(s.machine.right[r, c]) for s, r, c in zip(self.stages, state, classes, strict=True))
                if after not in found:
                    found[after] = char + found[state]
                    fresh.append(after)
        texts = dict.fromkeys([*found.values(), *self._examples])
        return tuple(text.encode() for text in texts)

    @functools.cached_property
    def _after(self) -> dict[int, tuple[bytes, ...]]:
        """For each joint class of a last character, the continuations that differ for what is before it.

        The text before a character sees the right state there, and whether a piece begins after it sees the state of
        what follows. For two stages both are taken after each left state of the first; for more, all continuations are.
        """
        if len(self.stages) > 2 or any(stage.plan.behavior != "Isolated" for stage in self.stages):
            return {int(self._joint[ord(char)]): self.all for char in self._examples}
        found: dict[int, tuple[bytes, ...]] = {}
        for char in self._examples:
            seen: dict[tuple[int, ...], bytes] = {}
            for future in self.all:
                seen.setdefault(self._signature(char, future.decode()), future)
            found[int(self._joint[ord(char)])] = tuple(seen.values())
        return found

    def _signature(self, char: str, future: str) -> tuple[int, ...]:
        text = char + future
        columns = [[int(of[ord(c)]) for c in text] for of in self.of_code]
        if not self.stages:
            return (int(not future),)
        first = self.stages[0]
        rights = walks.right(first, columns[0])
        parts = [rights[0], *_closes(first, rights)]
        if len(self.stages) == 1:
            return tuple(parts)
        for state in range(len(first.machine.left)):
            segments = walks.left(first, rights, state)[0]
            after = walks.right(self.stages[1], columns[1], segments)
            parts += [after[0], int(segments[1:2].any()), *_closes(self.stages[1], after)]
        return tuple(parts)

    def _completions(self, end: bytes, part: bytes) -> list[tuple[bytes, int]]:
        """One completion of the unfinished character at the text's end for each joint class that it can have."""
        codes = characters.code_points(part)
        joint = self._joint[codes.start : codes.stop]
        if self.form is not None:
            joint = np.where(self.form.completions(end), joint, -1)
        kinds, places = np.unique(joint, return_index=True)
        return [
            (chr(codes[int(at)]).encode()[len(part) :], int(kind))
            for kind, at in zip(kinds, places, strict=True)
            if kind >= 0
        ]


def _closes(stage: SplitStage, rights: list[int]) -> list[int]:
    """For each left state that there can be after the first character, whether a piece begins behind it."""
    lefts = np.unique(stage.machine.left[:, rights[0]])
    if len(rights) == 1:
        return [1] * len(lefts)
    after = stage.machine.left[lefts, rights[1]]
    return ((after >= GAP_START) & (after < stage.machine.starts)).astype(int).tolist()
