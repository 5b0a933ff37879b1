"""From the loop's state on the host to what the caller gets: completions, events, reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toktier_jax.sampling import loop
from toktier_jax.sampling.prefill import CHUNK, Prefilled
from toktier_jax.sampling.repair import Boundary
from toktier_jax.sampling.results import BoundaryReport, Completion, Event, TextStream, TokenLogprob, Usage
from toktier_jax.sampling.stops import Stops
from toktier_jax.sampling.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads the rows of one call; `logprobs` says whether alternatives were recorded."""

    tok: Any
    vocabulary: Vocabulary
    stops: Stops
    rows: Sequence[Boundary]
    filled: Prefilled
    logprobs: bool

    def completion(self, host: loop.State, b: int) -> Completion:
        """Row b as far as it is."""
        row = self.rows[b]
        ids = tuple(host.ids[b, : int(host.written[b])].tolist())
        data = self.data(ids, b)
        found = self.stops.find(data)
        data = data if found is None else data[:found]
        return Completion(
            text=TextStream(row.context.tail).push(data),
            data=data,
            ids=ids,
            logprobs=self._logprobs(host, b, ids),
            finish_reason="stop" if host.status[b] == loop.STOP else "length",
            usage=Usage(len(row.context.ids), int(host.counted[b])),
            boundary=_report(row, self.filled, b),
        )

    def data(self, ids: Sequence[int], b: int) -> bytes:
        """The bytes of row b's tokens past the prompt."""
        return (self.tok.decode_bytes(ids) if ids else b"")[len(self.rows[b].cut) :]

    def _logprobs(self, host: loop.State, b: int, ids: Sequence[int]) -> tuple[TokenLogprob, ...]:
        drawn = self.rows[b].covers is not None  # the first token is a leaf: no alternatives were recorded
        straddling = len(self.rows[b].rest)
        found = []
        for at, id in enumerate(ids):
            leaf = drawn and at == 0
            top = ()
            if self.logprobs and not leaf:
                pairs = zip(host.top[0][b, at].tolist(), host.top[1][b, at].tolist(), strict=True)
                top = tuple((other, value) for other, value in pairs if value > -float("inf"))
            found.append(TokenLogprob(id, float(host.logprobs[b, at]), leaf or straddling > 0, top))
            straddling -= len(self.vocabulary.strings[id])
        return tuple(found)


@dataclass(eq=False)
class Events:
    """What is new in each row since it was last looked at."""

    reader: Reader

    def __post_init__(self) -> None:
        rows = self.reader.rows
        self._streams = [TextStream(row.context.tail) for row in rows]
        self._shown, self._sent = [0] * len(rows), [0] * len(rows)
        self._running = set(range(len(rows)))

    @property
    def over(self) -> bool:
        return not self._running

    def look(self, host: loop.State) -> Iterator[Event]:
        """An event for each row that ran; its last one has the completion. What may begin a stop string is held."""
        reader = self.reader
        for b in sorted(self._running):
            done = host.status[b] != loop.RUNNING
            ids = tuple(host.ids[b, : int(host.written[b])].tolist())
            data = reader.data(ids, b)
            found = reader.stops.find(data)
            end = found if found is not None else len(data) if done else len(data) - reader.stops.held(data)
            text = self._streams[b].push(data[self._sent[b] : max(end, self._sent[b])])
            new, self._shown[b], self._sent[b] = ids[self._shown[b] :], len(ids), max(end, self._sent[b])
            completion = reader.completion(host, b) if done else None
            if done:
                self._running.discard(b)
            yield Event(text, new, completion.finish_reason if completion else None, b, completion)


def _report(row: Boundary, filled: Prefilled, b: int) -> BoundaryReport:
    covers, own = row.covers, len(row.context.ids)
    return BoundaryReport(
        mode="exact" if covers is not None else "heal" if row.rest else "none",
        kept=row.kept,
        cut=row.cut,
        nodes=len(covers.nodes) if covers else 0,
        leaves=len(covers.leaves[0]) if covers else 0,
        dropped=row.dropped,
        logprob=row.logprob,
        extra_tokens=filled.forwarded[b] + filled.reused[b] - own,
        extra_calls=filled.calls - 1 - (max(0, own - filled.reused[b] - 1) // CHUNK),
        padded=filled.padded,
        reused=filled.reused[b],
    )
