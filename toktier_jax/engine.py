"""The device path of a tokenizer: runs an EncodeProgram over texts of any length, in blocks of few capacities.

A block ends where more text could change nothing (`decided`), so that blocks are encoded one after the other without a
seam. Knows no file format, and of the reference only the normalizer that it is given.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.executables import TRACES, cutter, encoder
from toktier_jax.host.align import Alignment
from toktier_jax.host.assemble import DeviceResult
from toktier_jax.host.reference import Special
from toktier_jax.host.refusals import QuickCheckFailed, beyond_program
from toktier_jax.host.utf8 import character_start
from toktier_jax.ops.encode import HOST_NEEDED, OK, Pieces, default_lowering
from toktier_jax.plan import QuickCheckPlan, describe
from toktier_jax.program.load import Loaded
from toktier_jax.types import EncodeProgram
from toktier_jax.variants import as_text, for_lowering, without_model

CAPACITIES = tuple(1 << bits for bits in range(10, 25, 2))
"""Bytes of a block: 1 Ki, 4 Ki, … 16 Mi. Those above the usual block hold a piece that is longer than one."""

CPU_BLOCK, BLOCK = 1 << 18, 1 << 22
"""On a CPU larger blocks gain nothing and leave the caches; elsewhere every block costs its launches."""

T = TypeVar("T")

_LEAST = 64
"""Bytes of a document in a full block of them, at least: a block has a place for as many."""


class DeviceEngine:
    """Encodes texts by a program. Thread-safe; the tables move to the device when the first text is encoded.

    steps      what is done on the device, for people
    programs   with their tables on the host: one reads special tokens as themselves, one as text
    normalize  does what fails the quick check; None where there is none
    """

    def __init__(
        self,
        programs: dict[Special, EncodeProgram],
        steps: tuple[str, ...],
        normalize: Callable[[bytes, Special], Alignment] | None,
    ) -> None:
        self.steps = steps
        self.programs = programs
        self.normalize = normalize
        self._lock = threading.Lock()
        self._placed: dict[Special, EncodeProgram] = {}

    @property
    def program(self) -> EncodeProgram:
        """The program, its tables on the device."""
        return self._program("parse")

    @property
    def compiles(self) -> dict[str, int]:
        """Executables traced so far in this process, by kind and capacity."""
        return dict(TRACES)

    def encode(self, data: bytes, special: Special, progress: Callable[[int], object] | None = None) -> DeviceResult:
        """Ids and spans of a valid UTF-8 text. Raises UnsupportedError where this text has to go to the reference.

        `progress` is called after each block with the bytes done so far, which never grow less.
        """
        reached = 0

        def show(done: int) -> None:
            nonlocal reached
            reached = max(reached, done)
            if progress is not None:
                progress(reached)

        try:
            return _joined(list(self._blocks(data, special, show, checked=False)))
        except QuickCheckFailed:
            assert self.normalize is not None
            aligned = self.normalize(data, special)

        def show_original(done: int) -> None:
            show(int(aligned.ends[done - 1]) if 0 < done < len(aligned.data) else len(data))

        return _to_original(_joined(list(self._blocks(aligned.data, special, show_original, checked=True))), aligned)

    def encode_many(self, texts: Sequence[bytes], special: Special) -> list[np.ndarray | None]:
        """Ids of many valid UTF-8 texts, int32 [n] each, short ones packed into blocks.

        None for a text that has to be encoded by itself: it is long, or its block holds one for the host.
        """
        out: list[np.ndarray | None] = [None] * len(texts)

        def encode(numbers: list[int], pieces: Pieces, offsets: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
            try:
                found = self._encode(pieces, 0, int(offsets[-1]), special)
            except UnsupportedError:
                return [], []
            return numbers, np.split(found.ids, np.searchsorted(found.starts, offsets[1:-1]))

        def packs() -> Iterator[tuple[list[int], Pieces, np.ndarray]]:
            for numbers in _packs([len(text) for text in texts], _block()):
                offsets = np.cumsum([0, *(len(texts[number]) for number in numbers)], dtype=np.int32)
                pieces = self._cut_pack(b"".join(texts[number] for number in numbers), offsets, special)
                if int(pieces.status) == OK:
                    yield numbers, pieces, offsets

        for numbers, rows in _side_by_side(encode, packs(), _workers()):
            for number, ids in zip(numbers, rows, strict=True):
                out[number] = ids
        return out

    def _cut_pack(self, data: bytes, offsets: np.ndarray, special: Special) -> Pieces:
        """The pieces of documents that lie end to end, each of some bytes, and begin at `offsets`."""
        capacity = _capacity(len(data))
        block, starts = np.zeros(capacity, np.uint8), np.full(capacity // _LEAST + 1, capacity, np.int32)
        block[: len(data)] = np.frombuffer(data, np.uint8)
        starts[: len(offsets) - 1] = offsets[:-1]
        program = without_model(for_lowering(self._program(special), default_lowering()))
        run = cutter(default_lowering())
        return run(program, block, np.int32(len(data)), np.bool_(True), np.bool_(False), starts)

    def warmup(self) -> None:
        """Compiles the executables that texts of every length need."""
        block = _block()
        for capacity in CAPACITIES:
            if capacity <= block:
                list(self._blocks(b"a" * (capacity // 2), "parse", None, checked=False))

    def _blocks(
        self, data: bytes, special: Special, progress: Callable[[int], object] | None, *, checked: bool
    ) -> Iterator[DeviceResult]:
        """Tokens of `data`, block by block; positions are bytes of `data`."""
        blocks = ((pieces, begin, end, special) for begin, end, pieces in self._cut(data, special, checked=checked))
        for found in _side_by_side(self._encode, blocks, 1 if len(data) <= _block() else _workers()):
            yield found
            if progress is not None and len(found.ends):
                progress(int(found.ends[-1]))
        if progress is not None:
            progress(len(data))

    def _cut(self, data: bytes, special: Special, *, checked: bool) -> Iterator[tuple[int, int, Pieces]]:
        """The pieces of the blocks of `data`, and from where to where they are decided: bytes of `data`."""
        program = without_model(for_lowering(self._program(special), default_lowering()))
        begin, least = 0, 0
        while begin < len(data):
            capacity = max(least, _capacity(len(data) - begin))
            end = character_start(data, min(begin + capacity, len(data)))
            block = np.zeros(capacity, np.uint8)
            block[: end - begin] = np.frombuffer(data, np.uint8, end - begin, begin)
            run = cutter(default_lowering())
            pieces = run(program, block, np.int32(end - begin), np.bool_(begin == 0), np.bool_(checked))
            if int(pieces.status) == HOST_NEEDED:
                if self.normalize is None or checked:
                    raise beyond_program()
                raise QuickCheckFailed
            stop = end if end == len(data) else begin + int(pieces.decided)
            if stop > begin:
                yield begin, stop, pieces
                begin, least = stop, 0
            elif capacity < CAPACITIES[-1]:
                least = CAPACITIES[CAPACITIES.index(capacity) + 1]
            else:
                raise UnsupportedError(
                    f"a piece of the text, at byte {begin}, is longer than {capacity} bytes",
                    f"a piece of the text is longer than {capacity} bytes",
                )

    def _encode(self, pieces: Pieces, begin: int, end: int, special: Special) -> DeviceResult:
        """Tokens of the block that begins at byte `begin`, those up to byte `end`."""
        program = self._program(special)
        out = encoder(default_lowering(), program.plan.model)(program.tables.model, pieces)
        if int(out.status) == HOST_NEEDED:
            raise beyond_program()
        ends = np.asarray(out.byte_ends)[: int(out.count)]
        count = int(np.searchsorted(ends, end - begin, side="right"))
        by = np.int64(begin)  # a text may be longer than 2 GiB
        starts, ends = np.asarray(out.byte_starts)[:count] + by, ends[:count] + by
        return DeviceResult(np.asarray(out.ids)[:count], starts, ends, ends)

    def _program(self, special: Special) -> EncodeProgram:
        with self._lock:
            if special not in self._placed:
                self._placed[special] = jax.device_put(self.programs[special])
            return self._placed[special]


def open_device(loaded: Loaded) -> DeviceEngine | None:
    """The device path of a tokenizer, None where it has no program."""
    program = loaded.program
    if program is None:
        return None
    forms: list[Any] = [step.form for step in program.plan.steps if isinstance(step, QuickCheckPlan) and step.form]

    @functools.cache
    def normalizer() -> Callable[[bytes, Special], Alignment]:
        from toktier_jax.host.normalize import normalize  # and the compiler's probes: few texts need them
        from toktier_jax.program.added import effective_tokens

        return functools.partial(normalize, forms[0], effective_tokens(loaded.outline.added_tokens))

    def on_host(data: bytes, special: Special) -> Alignment:
        return normalizer()(data, special)

    programs: dict[Special, EncodeProgram] = {"parse": program, "text": as_text(program)}
    return DeviceEngine(programs, describe(program.plan), on_host if forms else None)


def _block() -> int:
    """Bytes of the blocks that a long text is cut into."""
    return min(CPU_BLOCK if jax.default_backend() == "cpu" else BLOCK, CAPACITIES[-1])


def _side_by_side(run: Callable[..., T], calls: Iterable[tuple[Any, ...]], workers: int) -> Iterator[T]:
    """`run(*call)` of each, in order, some of them at a time."""
    if workers == 1:
        yield from itertools.starmap(run, calls)
        return
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for call in calls:
            waiting.append(pool.submit(run, *call))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _workers() -> int:
    """Blocks whose pieces are encoded at a time. An executable for a CPU leaves most cores idle."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8) if jax.default_backend() == "cpu" else 1


def _capacity(remaining: int) -> int:
    """The capacity of the next block: the least that holds the rest. Loops are bounded by the length, not by it."""
    block = _block()
    return next((capacity for capacity in CAPACITIES if remaining <= capacity <= block), block)


def _packs(sizes: Sequence[int], block: int) -> Iterator[list[int]]:
    """Numbers of texts that share a block, in order: those of at least a byte and at most a quarter of a block."""
    pack, room, places = list[int](), block, block // _LEAST
    for number, size in enumerate(sizes):
        if not 0 < size <= block // 4:
            continue
        if size > room or len(pack) == places:
            yield pack
            pack, room = [], block
        pack.append(number)
        room -= size
    if len(pack) > 1:
        yield pack


def _joined(parts: Sequence[DeviceResult]) -> DeviceResult:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.zeros(0, np.int32)
        return DeviceResult(none, none, none, none)
    ids, starts, ends, _ = (np.concatenate(each) for each in zip(*parts, strict=True))
    return DeviceResult(ids, starts, ends, ends)


def _to_original(found: DeviceResult, aligned: Alignment) -> DeviceResult:
    """Spans of the normalized text as spans of the original."""
    if not len(found.ids):
        return found
    return DeviceResult(found.ids, *aligned.original(found.starts, found.ends))
