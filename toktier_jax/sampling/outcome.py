"""From the loop's state on the host to what the caller gets: completions, events, reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toktier_jax.sampling import loop
from toktier_jax.sampling.prefill import Prefilled, calls
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
        data = self.data(ids, row.kept[-1])[len(row.cut) :]
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

    def data(self, ids: Sequence[int], before: int) -> bytes:
        """The bytes of `ids` after the id `before`: alone, the first would lose the space that many tokenizers drop at
        the beginning of a text."""
        if not ids:
            return b""
        return self.tok.decode_bytes((before, *ids))[len(self.tok.decode_bytes((before,))) :]

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


class _Shown:
    """What was shown of one row. `data` begins with the row's cut, which is `sent` from the beginning.

    `state` is that of the stop strings' automaton after all bytes past the cut.
    """

    def __init__(self, row: Boundary) -> None:
        self.cut = self.sent = len(row.cut)
        self.data, self.last, self.written, self.state = bytearray(), row.kept[-1], 0, 0
        self.stream = TextStream(row.context.tail)

    def push(self, data: bytes, stops: Stops, done: bool) -> str:
        """The text that is certain with these bytes more. Only they are searched, and nothing follows a stop string."""
        before, machine = len(self.data), stops.automaton
        if machine.found(self.state):
            return ""
        self.data += data
        self.state = machine.after(self.state, self.data[max(self.cut, before) :])
        if machine.found(self.state):
            found = stops.find(self.data, max(self.cut, before - stops.memory))
            end = self.sent if found is None else found
        else:
            end = len(self.data) - (0 if done else machine.begun[self.state])
        begin, self.sent = self.sent, max(end, self.sent)
        return self.stream.push(bytes(self.data[begin : self.sent]))


class Events:
    """What is new in each row since it was last looked at; what an event costs does not grow with the text."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._shown = reader, [_Shown(row) for row in reader.rows]
        self._running = set(range(len(reader.rows)))

    @property
    def over(self) -> bool:
        return not self._running

    def look(self, glance: loop.State, whole: Callable[[], loop.State]) -> Iterator[Event]:
        """An event for each row that ran; its last one has the completion. What may begin a stop string is held.

        At most one token a row is new in a `glance`; `whole` gets what completions are made of.
        """
        reader = self._reader
        for b in sorted(self._running):
            shown, done = self._shown[b], bool(glance.status[b] != loop.RUNNING)
            new = (int(glance.token[b]),) if glance.written[b] > shown.written else ()
            text = shown.push(reader.data(new, shown.last), reader.stops, done)
            if new:
                shown.last, shown.written = new[0], shown.written + 1
            completion = reader.completion(whole(), b) if done else None
            if done:
                self._running.discard(b)
            yield Event(text, new, completion.finish_reason if completion else None, b, completion)


def _report(row: Boundary, filled: Prefilled, b: int) -> BoundaryReport:
    covers, own = row.covers, len(row.context.ids) - filled.reused[b]
    return BoundaryReport(
        mode="exact" if covers is not None else "heal" if row.rest else "none",
        kept=row.kept,
        cut=row.cut,
        nodes=len(covers.nodes) if covers else 0,
        leaves=len(covers.leaves[0]) if covers else 0,
        dropped=row.dropped,
        logprob=row.logprob,
        extra_tokens=filled.forwarded[b] - own,
        extra_calls=calls(filled.forwarded[b]) - calls(own),
        padded=filled.padded,
        reused=filled.reused[b],
    )
