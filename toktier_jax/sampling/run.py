"""One call of `generate` or `stream`, and its state: prefill, the first token of every row, then the loop."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from toktier_jax.errors import InputError
from toktier_jax.sampling import constraints, exact, loop
from toktier_jax.sampling.draw import row_keys
from toktier_jax.sampling.outcome import Events, Reader
from toktier_jax.sampling.placement import glance, on_device, on_host, owned
from toktier_jax.sampling.prefill import gatherer, prefill
from toktier_jax.sampling.prepare import Prepared
from toktier_jax.sampling.results import Completion, Event
from toktier_jax.sampling.vocabulary import vocabulary_of


class Run:
    """The state of one call. `decode` and `events` may be used once."""

    def __init__(self, ready: Prepared) -> None:
        """Forwards the prompts and draws the first token of each row."""
        self.request, self.stops, self.batch, self.settings = ready.request, ready.stops, ready.batch, ready.settings
        self.context_length, self.size, self.rows = ready.context_length, ready.size, ready.rows
        request = self.request
        self.vocabulary = vocabulary_of(request.tok)
        self.params = getattr(request.lm, "params", None)
        self.filled = prefill(request.lm, [row.tree for row in self.rows], ready.room, request.reuse)
        self.slots = self.filled.capacity
        self.heals = self.settings.heal is not None
        self.constraint_state = None if request.constraint is None else request.constraint.init()
        self.state = self._start()

    def _static(self, *, heals: bool) -> loop.Static:
        request = self.request
        return loop.Static(
            greedy=request.temperature == 0,
            truncate=request.top_k > 0 or request.top_p < 1 or request.min_p > 0,
            penalize=request.repetition_penalty != 1,
            logprobs=request.logprobs,
            heals=heals,
            stops=bool(self.stops.strings),
        )

    # ---- the first token of every row ----

    def _start(self) -> loop.State:
        """The state after it."""
        request, batch = self.request, len(self.rows)
        shape = (batch, self.size, request.logprobs)
        state = loop.State(
            cache=self.filled.cache,
            token=np.zeros(batch, np.int32),
            position=np.array([len(row.tree.trunk) - (row.covers is None) for row in self.rows], np.int32),
            written=np.zeros(batch, np.int32),
            counted=np.zeros(batch, np.int32),
            status=np.full(batch, loop.RUNNING, np.int32),
            offset=np.zeros(batch, np.int32),
            stop=np.zeros(batch, np.int32),
            ids=np.zeros((batch, self.size), np.int32),
            logprobs=np.zeros((batch, self.size), np.float32),
            top=(np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32)) if request.logprobs else None,
            seen=None,
            constraint=None,
            keys=row_keys(int(request.seed), batch),
            step=np.int32(0),
        )
        drawn = np.array([row.covers is not None for row in self.rows])
        if drawn.any():
            state = self._leaves(state)
        if request.repetition_penalty != 1:
            state = state._replace(seen=self._seen(state))
        if not drawn.all():
            state = self._tokens(state, drawn)
        return state._replace(step=jnp.int32(1))

    def _leaves(self, state: loop.State) -> loop.State:
        """A leaf for the rows that have covers, and the cache with only the path to it; writes the state's host arrays.

        The position of these rows is that of the leaf already, after a path of no tokens.
        """
        request, constraint, size = self.request, self.request.constraint, self.request.lm.vocab_size
        keep = None
        if constraint is not None:
            keep = exact.allowed_leaves(self.vocabulary, constraint, self.constraint_state, self.rows, size)
        static = self._static(heals=False)
        self.rows, drawn = exact.draw(
            self.vocabulary, self.rows, self.filled.logits, state.keys, self.settings, static, keep
        )
        for b, leaf in enumerate(drawn):
            if leaf is None:
                continue
            state.token[b] = state.ids[b, 0] = leaf.token
            state.logprobs[b, 0], state.written[b], state.counted[b] = leaf.logprob, 1, int(bool(leaf.past))
            state.position[b] += self.rows[b].tree.depths[leaf.flat]
            if self.settings.automaton is not None:
                for byte in leaf.past:
                    state.stop[b] = self.settings.automaton[state.stop[b], byte]
            stopped = self.settings.automaton is not None and self.settings.automaton[state.stop[b], 256]
            if stopped or (leaf.past and leaf.token in np.asarray(self.settings.stop_ids)):
                state.status[b] = loop.STOP
            elif state.counted[b] >= request.max_tokens:
                state.status[b] = loop.LENGTH
            elif state.position[b] >= self.context_length:
                state.status[b] = loop.CONTEXT
        if constraint is not None:
            pasts = [b"" if leaf is None else leaf.past for leaf in drawn]
            self.constraint_state = constraints.fed(constraint, self.constraint_state, self.vocabulary, pasts)
        if not any(row.tree.branches for row in self.rows):
            return state
        slots = exact.kept_slots(self.rows, drawn, self.slots)
        return state._replace(cache=gatherer(request.lm)(state.cache, slots))

    def _seen(self, state: loop.State) -> np.ndarray:
        """bool [B, V]: tokens of the context, and those drawn."""
        seen = np.zeros((len(self.rows), self.request.lm.vocab_size), bool)
        for b, row in enumerate(self.rows):
            seen[b, list(row.kept)] = True
            seen[b, state.ids[b, : state.written[b]]] = True
        return seen

    def _tokens(self, state: loop.State, drawn: np.ndarray) -> loop.State:
        """The first token of the rows that have no covers, from the logits of their last id."""
        status = np.asarray(state.status)
        before = state._replace(status=np.where(drawn, loop.LENGTH, status).astype(np.int32))
        mask = None if self.request.constraint is None else self._host_mask(before)
        first = loop.first(self._static(heals=self.heals))
        after = first(self.settings, None, before, self.filled.logits[:, 0], mask)
        if mask is not None:
            self._show(before, after)
        return after._replace(status=jnp.asarray(np.where(drawn, status, np.asarray(after.status)).astype(np.int32)))

    # ---- constraints that need the host ----

    def _rests(self, state: loop.State) -> list[bytes]:
        """What each row still has to spell of its prompt."""
        return [row.rest[offset:] for row, offset in zip(self.rows, np.asarray(state.offset).tolist(), strict=True)]

    def _host_mask(self, state: loop.State) -> np.ndarray:
        constraint, size = self.request.constraint, self.request.lm.vocab_size
        return constraints.healing_mask(constraint, self.constraint_state, self.vocabulary, size, self._rests(state))

    def _show(self, before: loop.State, after: loop.State) -> None:
        """Shows the constraint what the last step added past the prompt."""
        wrote = np.asarray(after.written) > np.asarray(before.written)
        tokens = np.where(wrote, np.asarray(after.token), -1)
        self.constraint_state = constraints.shown(
            self.request.constraint, self.constraint_state, self.vocabulary, tokens, self._rests(before)
        )

    # ---- the loop ----

    def decode(self) -> None:
        """Runs to the end."""
        self._advance(self.size + 1)

    def _advance(self, until: int) -> None:
        """Runs to step `until`: on the host while a constraint needs that, then in the jitted loop."""
        request, constraint = self.request, self.request.constraint
        pure = constraint is not None and constraints.is_pure(constraint)
        while constraint is not None and self._running() and int(self.state.step) < until:
            if pure and not any(self._rests(self.state)):
                break
            before = glance(self.state)
            run = loop.step(request.lm, self._static(heals=self.heals), self.slots)
            self.state = run(self.params, self.settings, on_device(self.state), self._host_mask(before))
            self._show(before, self.state)
        if constraint is None or pure:
            heals = self.heals and constraint is None
            state = on_device(self.state)
            if pure:
                state = state._replace(constraint=owned(self.constraint_state))
            run = loop.loop(request.lm, self._static(heals=heals), self.slots)
            settings = self.settings if heals else self.settings._replace(heal=None)
            self.state = run(self.params, settings, constraint if pure else None, state, jnp.int32(until))
            if pure:
                self.constraint_state = self.state.constraint
        self._check()

    def _running(self) -> bool:
        return bool((np.asarray(self.state.status) == loop.RUNNING).any())

    def _check(self) -> None:
        status = np.asarray(self.state.status)
        for b in np.flatnonzero((status == loop.NAN) | (status == loop.EMPTY)).tolist():
            after = f"after {int(self.state.written[b])} tokens of row {b}"
            if status[b] == loop.NAN:
                raise InputError(f"the model's logits are NaN or infinite {after}")
            raise InputError(f"nothing is allowed {after}: constraint or model exclude all")

    # ---- results ----

    def _reader(self) -> Reader:
        request = self.request
        return Reader(request.tok, self.vocabulary, self.stops, self.rows, self.filled, request.logprobs > 0)

    def completions(self) -> list[Completion]:
        """The completions of all rows, as far as they are."""
        host, reader = on_host(self.state), self._reader()
        self._keep(host)
        return [reader.completion(host, b) for b in range(len(self.rows))]

    def _keep(self, host: loop.State) -> None:
        """Leaves the cache to the PrefixCache."""
        if self.request.reuse is not None:
            written = host.ids[0, : max(0, int(host.written[0]) - 1)]
            kept = np.array(self.rows[0].kept, np.int32)
            self.request.reuse.put(self.state.cache, np.concatenate([kept, written]))

    def events(self) -> Iterator[Event]:
        """An event a step and row that runs; the last one of a row has its completion."""
        self._check()
        events, until = Events(self._reader()), 1
        while True:
            yield from events.look(glance(self.state), lambda: on_host(self.state))
            if events.over:
                self._keep(on_host(self.state))
                return
            until += 1
            self._advance(until)
