"""Where a text that goes on can be cut into pieces: the splits that some continuation still produces.

A pre-tokenizer looks ahead, so the pieces of a prompt's end depend on what follows. `Splitter` walks the bimachines of
the tokenizer (program/automaton.py) over many rows of text at once, each with every continuation that leads them to
another state. Host code: numpy, no JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.program.automaton import ANYTHING, BEGIN, COLLAPSED, END, GAP_START, MATCH_START
from toktier_jax.program.classes import partition
from toktier_jax.program.split import SplitStage, split_stages
from toktier_jax.spec import types

MAX_FUTURES = 512
_CHUNK = 4096


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
        if any(isinstance(step, types.ByteLevelNormalizer) for step in spec.normalizers):
            raise UnsupportedError('boundary="exact" with a ByteLevel normalizer; use boundary="heal"')
        self.stages: list[SplitStage] = split_stages(spec.pre_tokenizers, spec.dialect)
        for stage in self.stages:
            if stage.plan.behavior == "Removed" or stage.plan.unit == "byte":
                raise UnsupportedError(
                    'boundary="exact" with a pre-tokenizer that removes text or splits bytes; use boundary="heal"'
                )
        self._of_code = [partition(stage.masks).lookup(np.arange(0x110000)) for stage in self.stages]
        joint = np.zeros(0x110000, np.int64)
        for classes in self._of_code:
            joint = joint * (int(classes.max()) + 1) + classes
        self._joint = np.unique(joint, return_inverse=True)[1].reshape(-1).astype(np.int32)
        self._joint[0xD800:0xE000] = -1
        self.examples = _representatives(self._joint)

    @property
    def begin(self) -> tuple[int, ...]:
        """The left states at the start of a text."""
        return tuple(BEGIN for _ in self.stages)

    # ---- what may follow ----

    @functools.cached_property
    def futures(self) -> tuple[bytes, ...]:
        """Continuations that lead to every state which the stages can be in at a text's end; b"" is its end."""
        start = tuple(END for _ in self.stages)
        found, fresh = {start: ""}, [start]
        while fresh and len(found) < MAX_FUTURES:
            state, fresh = fresh[0], fresh[1:]
            for char in self.examples:
                classes = [int(of[ord(char)]) for of in self._of_code]
                after = tuple(int(s.machine.right[r, c]) for s, r, c in zip(self.stages, state, classes, strict=True))
                if after not in found:
                    found[after] = char + found[state]
                    fresh.append(after)
        texts = dict.fromkeys([*found.values(), *self.examples])
        return tuple(text.encode() for text in texts)

    @functools.cached_property
    def _futures_after(self) -> dict[int, tuple[bytes, ...]]:
        """For each joint class of a last character, the continuations that differ for what is before it.

        The text before a character sees the right state there, and whether a piece begins after it sees the state of
        what follows. For two stages both are taken after each left state of the first; for more, all continuations are.
        """
        if len(self.stages) > 2 or any(stage.plan.behavior != "Isolated" for stage in self.stages):
            return {int(self._joint[ord(char)]): self.futures for char in self.examples}
        found: dict[int, tuple[bytes, ...]] = {}
        for char in self.examples:
            seen: dict[tuple[int, ...], bytes] = {}
            for future in self.futures:
                seen.setdefault(self._signature(char, future.decode()), future)
            found[int(self._joint[ord(char)])] = tuple(seen.values())
        return found

    def _signature(self, char: str, future: str) -> tuple[int, ...]:
        text = char + future
        columns = [[int(of[ord(c)]) for c in text] for of in self._of_code]
        if not self.stages:
            return (int(not future),)
        first = self.stages[0]
        rights = _right(first, columns[0])
        parts = [rights[0], *self._closes(first, rights)]
        if len(self.stages) == 1:
            return tuple(parts)
        for left in range(len(first.machine.left)):
            segments = _walk(first, rights, left)[0]
            after = _right(self.stages[1], columns[1], segments)
            parts += [after[0], int(segments[1:2].any()), *self._closes(self.stages[1], after)]
        return tuple(parts)

    @staticmethod
    def _closes(stage: SplitStage, rights: list[int]) -> list[int]:
        """For each left state that there can be after the first character, whether a piece begins behind it."""
        lefts = np.unique(stage.machine.left[:, rights[0]])
        if len(rights) == 1:
            return [1] * len(lefts)
        after = stage.machine.left[lefts, rights[1]]
        return ((after >= GAP_START) & (after < stage.machine.starts)).astype(int).tolist()

    # ---- where to begin ----

    def open(self, data: bytes, limit: int | None = None) -> Open:
        """The undecided end of a text, at the latest from byte `limit` on, where an added token may begin.

        `data` may end inside a character; other invalid UTF-8 raises InputError.
        """
        whole = data[: len(data) - len(unfinished(data))][:limit]
        text = whole.decode()
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.int64)
        size, decided = len(text), len(text)
        starts = np.zeros(size + 1, bool)
        starts[0] = True
        lefts: list[np.ndarray] = []
        for stage, of_code in zip(self.stages, self._of_code, strict=True):
            column = of_code[codes].tolist()
            rights = _right(stage, column, starts)
            tail = ANYTHING
            while decided > 0 and tail != COLLAPSED and not (decided < size and starts[decided] and lefts):
                decided -= 1
                tail = int(stage.machine.tail[tail, column[decided]])
            begins, left = _walk(stage, rights, BEGIN, starts)
            starts = _ruled(stage, begins[None], left[None, 1:], starts[None, :size], stage.machine.starts)[0]
            starts = np.append(starts, False)
            lefts.append(left)
        if not self.stages:
            decided = 0
        cut = int(np.flatnonzero(starts[: decided + 1])[-1]) if starts[: decided + 1].any() else 0
        cut = self._resumable(cut, lefts, starts)
        start = len(text[:cut].encode())
        return Open(start, data[start:], tuple(int(left[cut]) for left in lefts))

    def _resumable(self, cut: int, lefts: list[np.ndarray], starts: np.ndarray) -> int:
        """Merging rules look at the piece before: begin a piece earlier where there are such rules."""
        if all(stage.plan.behavior == "Isolated" for stage in self.stages):
            return cut
        return 0

    # ---- the splits ----

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
        cache: dict[bytes, tuple[bytes, ...]] = {}
        for index, more in enumerate(added):
            end = (begin.data + more)[-8:]
            if end not in cache:
                cache[end] = tuple(self._continuations(end))
            text = begin.data + more
            for future in cache[end]:
                texts.append(text + future)
                owner.append(index)
        width = len(begin.data) + max(map(len, added), default=0)
        if not texts:
            return np.zeros(0, np.int64), np.zeros((0, width + 1), bool)
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        owners, parts = [], []
        for at in range(0, len(order), _CHUNK):  # of like length: a walk takes as many steps as the longest has bytes
            chunk = order[at : at + _CHUNK]
            starts, valid = self._starts([texts[i] for i in chunk], begin.lefts, width + 1)
            owners.append(np.array([owner[i] for i in chunk], np.int64)[valid])
            parts.append(starts[valid])
        return np.concatenate(owners), np.concatenate(parts)

    def _continuations(self, end: bytes) -> list[bytes]:
        """What may follow a text that ends so: for an unfinished character, first every class that it can become."""
        part = unfinished(end, strict=False)
        if not part:
            at = len(end) - 1
            while at > 0 and end[at] & 0xC0 == 0x80:
                at -= 1
            try:
                code = ord(end[at:].decode())
            except (UnicodeDecodeError, TypeError):
                return list(self.futures) if not end else []
            return list(self._futures_after[int(self._joint[code])])
        if not _possible(part) or (completions := self._completions(part)) is None:
            return []
        return [more + future for more, last in completions for future in self._futures_after[last]]

    def _completions(self, part: bytes) -> list[tuple[bytes, int]] | None:
        """One completion of an unfinished character for each joint class that it can have."""
        lead, missing = part[0], _size(part[0]) - len(part)
        if missing < 0:
            return None
        value = lead & (0x7F >> _size(lead))
        for byte in part[1:]:
            value = value << 6 | byte & 0x3F
        low, high = value << 6 * missing, (value + 1) << 6 * missing
        low = max(low, {2: 0x80, 3: 0x800, 4: 0x10000}[_size(lead)])
        classes = self._joint[low : min(high, 0x110000)]
        kinds, places = np.unique(classes, return_index=True)
        found = [
            (chr(low + int(at)).encode()[len(part) :], int(kind))
            for kind, at in zip(kinds, places, strict=True)
            if kind >= 0
        ]
        return found or None

    def _starts(self, texts: list[bytes], lefts: tuple[int, ...], width: int) -> tuple[np.ndarray, np.ndarray]:
        """(starts bool [R, width] by byte, valid bool [R]) of whole texts, from the left states given."""
        size = max(map(len, texts))
        lengths = np.array([len(text) for text in texts])
        data = np.frombuffer(b"".join(text.ljust(size, b"\0") for text in texts), np.uint8).reshape(len(texts), size)
        codes, inside, valid = _decode(data, lengths)
        past = np.arange(size)[None, :] >= lengths[:, None]
        starts = np.zeros((len(texts), size + 1), bool)
        for stage, of_code, left in zip(self.stages, self._of_code, lefts, strict=True):
            column = of_code[codes].astype(np.int32)
            machine = stage.machine
            right = np.full(len(texts), END)
            rights = np.empty((size, len(texts)), np.int32)
            for at in range(size - 1, -1, -1):
                seen = np.where(starts[:, at + 1], END, right)
                right = np.where(past[:, at], END, np.where(inside[:, at], right, machine.right[seen, column[:, at]]))
                right = np.where(inside[:, at] & starts[:, at + 1], END, right)
                rights[at] = right
            state = np.full(len(texts), left)
            found = np.zeros((len(texts), size + 1), bool)
            states = np.empty((len(texts), size), np.int32)
            for at in range(size):
                skip = inside[:, at] | past[:, at]
                before = np.where(starts[:, at], BEGIN, state)
                after = machine.left[before, rights[at]]
                found[:, at] = ~skip & (after >= GAP_START) & (after < machine.starts)
                state = np.where(skip, state, after)
                states[:, at] = state
            found[:, :size] = _ruled(stage, found[:, :size], states, starts[:, :size], machine.starts)
            starts = found
        starts[np.arange(len(texts)), lengths] = True  # the end closes a piece
        starts[:, 0] = True
        missing = max(0, width - starts.shape[1])
        return np.pad(starts, ((0, 0), (0, missing)))[:, :width], valid


def unfinished(data: bytes, strict: bool = True) -> bytes:
    """The last bytes of `data` that begin a character and do not end it. Raises InputError for other invalid UTF-8."""
    part = b""
    for count in range(1, min(3, len(data)) + 1):
        byte = data[-count]
        if byte & 0xC0 != 0x80:
            if byte >= 0xC0 and _size(byte) > count:
                part = data[-count:]
            break
    if strict:
        try:
            data[: len(data) - len(part)].decode()
            if part and not _possible(part):
                raise UnicodeDecodeError("utf-8", data, len(data) - len(part), len(data), "no character begins so")
        except UnicodeDecodeError as error:
            raise InputError(
                f"the prompt is not UTF-8 at byte {error.start}, and no bytes after it make it so"
            ) from None
    return part


def _possible(part: bytes) -> bool:
    if part[0] < 0xC2 or part[0] > 0xF4:
        return False
    if len(part) == 1:
        return True
    least = {0xE0: 0xA0, 0xF0: 0x90}.get(part[0], 0x80)
    most = {0xED: 0x9F, 0xF4: 0x8F}.get(part[0], 0xBF)
    return least <= part[1] <= most


def _size(lead: int) -> int:
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def _decode(data: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Code points at first bytes (0 elsewhere), whether a byte continues a character, whether a row is valid UTF-8."""
    size = data.shape[1]
    wide = np.pad(data, ((0, 0), (0, 3))).astype(np.int32)
    b0, b1, b2, b3 = (wide[:, k : k + size] for k in range(4))
    inside = (b0 & 0xC0) == 0x80
    codes = np.select(
        [b0 < 0x80, b0 < 0xC0, b0 < 0xE0, b0 < 0xF0],
        [b0, 0, (b0 & 31) << 6 | b1 & 63, (b0 & 15) << 12 | (b1 & 63) << 6 | b2 & 63],
        (b0 & 7) << 18 | (b1 & 63) << 12 | (b2 & 63) << 6 | b3 & 63,
    )
    lead = np.select([b0 < 0x80, b0 < 0xC0, b0 < 0xE0, b0 < 0xF0], [0, 0, 1, 2], 3)
    follows = np.zeros((len(data), size + 3), np.int32)
    for k in (1, 2, 3):
        follows[:, k : k + size] += lead >= k
    least = np.array([0, 0x80, 0x800, 0x10000])[lead]
    bad = (follows[:, :size] != inside) | ((lead > 0) & ((codes < least) | (codes > 0x10FFFF)))
    bad |= (lead > 0) & (codes >= 0xD800) & (codes < 0xE000)
    bad |= np.pad(follows, ((0, 0), (0, 0)))[:, :size].astype(bool) & (np.arange(size)[None, :] >= lengths[:, None])
    return np.where(codes > 0x10FFFF, 0, codes), inside, ~bad.any(axis=1) & ~follows[:, size:].any(axis=1)


def _right(stage: SplitStage, column: list[int], starts: np.ndarray | None = None) -> list[int]:
    """The right state at each character."""
    table, state, found = stage.machine.right.tolist(), END, [END] * len(column)
    for at in range(len(column) - 1, -1, -1):
        if starts is not None and at + 1 < len(column) and starts[at + 1]:
            state = END
        state = found[at] = table[state][column[at]]
    return found


def _walk(
    stage: SplitStage, rights: list[int], left: int, segments: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Where matches and gaps begin, bool [n]; the left states before each character and at the end, int [n + 1]."""
    table, found, states, state = stage.machine.left.tolist(), [], [left], left
    for at, right in enumerate(rights):
        if segments is not None and segments[at]:
            state = BEGIN
        state = table[state][right]
        found.append(GAP_START <= state < stage.machine.starts)
        states.append(state)
    return np.array(found, bool), np.array(states)


def _ruled(stage: SplitStage, starts: np.ndarray, states: np.ndarray, segments: np.ndarray, limit: int) -> np.ndarray:
    """Starts [R, n] after the stage's rule (ops/split_rule.py), for left states [R, n] at each byte."""
    if stage.plan.behavior == "Isolated":
        return starts
    match = (states >= MATCH_START) ^ stage.plan.invert
    before = np.pad(match, ((0, 0), (1, 0)))[:, :-1]
    joins = {
        "MergedWithPrevious": match & ~before,
        "MergedWithNext": ~match & before,
        "Contiguous": match == before,
    }[stage.plan.behavior]
    return starts & (segments | ~joins)


def _representatives(joint: np.ndarray) -> tuple[str, ...]:
    """One character of each joint class, the first that can be shown."""
    kinds, places = np.unique(joint, return_index=True)
    return tuple(chr(int(at)) for kind, at in zip(kinds, places, strict=True) if kind >= 0)
