"""One call of `generate` or `stream`: from the request to the loop's state, and from it to results."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from toktier_jax.errors import InputError
from toktier_jax.sampling import constraints, loop, stops
from toktier_jax.sampling.covers import Covers, cover_rules
from toktier_jax.sampling.healing import Healed, heal, heal_tables
from toktier_jax.sampling.leaves import Row, draw_leaf, leaf_tables
from toktier_jax.sampling.placement import device_tables, gatherer, on_device, on_host, owned, token_bytes
from toktier_jax.sampling.prefill import CHUNK, Prefilled, bucket, prefill
from toktier_jax.sampling.prompt import NO_CONTEXT, Context, read_prompts
from toktier_jax.sampling.request import Request
from toktier_jax.sampling.results import BoundaryReport, Completion, Event, TextStream, TokenLogprob, Usage
from toktier_jax.sampling.tree import Tree, plant
from toktier_jax.sampling.vocabulary import check_logits, padded, vocabulary_of


@dataclass(eq=False)
class _Prompt:
    """A prompt on its way: what is kept, what has to be spelled again, and its covers if there are any."""

    context: Context
    tree: Tree
    rest: bytes  # for "heal": what the next tokens have to spell
    covers: Covers | None = None
    kept: tuple[int, ...] = ()
    cut: bytes = b""
    dropped: float = 0.0
    logprob: float = 0.0
    straddles: int = 0  # sampled tokens that begin inside the prompt


class Run:
    """The state of one call. `decode` and `events` may be used once."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.vocabulary = vocabulary_of(request.tok)
        check_logits(request.tok, request.lm)
        self.stops = stops.check_stops(request.stop)
        contexts, self.batch = read_prompts(request.tok, request.prompt, request.boundary, request.context_start)
        if request.reuse is not None and (len(contexts) > 1 or request.reuse.lm is not request.lm):
            raise InputError("reuse: a PrefixCache holds one row of the model that it was made for")
        self.context_length = getattr(request.lm, "context_length", None) or 1 << 30
        self.prompts = [self._prompt(context) for context in contexts]
        for prompt in self.prompts:
            if not prompt.tree.trunk:
                raise InputError(NO_CONTEXT)
            size = len(prompt.tree.trunk) + int(prompt.tree.depths.max())
            if size >= self.context_length:
                raise InputError(f"the prompt has {size} tokens and the model's context {self.context_length}")
        self.params = getattr(request.lm, "params", None)
        self._prefill()

    # ---- the boundary ----

    def _prompt(self, context: Context) -> _Prompt:
        ids = context.ids
        if context.mode == "exact" and context.text:
            covers = cover_rules(self.request.tok).covers(ids, context.text)
            if not covers.leaves[0].size:
                raise InputError("no token sequence of this vocabulary covers the end of the prompt")
            tree = plant(covers.trunk, covers.nodes)
            return _Prompt(context, tree, b"", covers, cut=covers.rest)
        healed = Healed(ids, b"")
        if context.mode == "heal":
            healed = heal(self.vocabulary, ids, context.tail, self.request.heal_tokens, context.fixed)
        elif context.tail:
            healed = Healed((*ids, *self.vocabulary.greedy(context.tail)), b"")
        return _Prompt(context, plant(healed.kept, []), healed.rest, None, healed.kept, healed.rest)

    @functools.cached_property
    def _tables(self) -> tuple[Any, Any, Any]:
        """known bool [V], ranks int32 [V], lengths int32 [V] of the model's V logits, on the device."""
        return device_tables(self.vocabulary, self.request.lm.vocab_size)

    def _prefill(self) -> None:
        request, prompts = self.request, self.prompts
        rests = max(len(prompt.rest) for prompt in prompts)
        room = min(request.max_tokens + rests + 1, max(1, self.context_length - 1))
        self.size = bucket(request.max_tokens + rests + 1)
        self.filled = prefill(request.lm, [prompt.tree for prompt in prompts], room, request.reuse)
        self.capacity = self.filled.cache.capacity if hasattr(self.filled.cache, "capacity") else None
        self._start()

    def _settings(self) -> loop.Settings:
        request, vocabulary = self.request, self.vocabulary
        known, ranks, lengths = self._tables
        ends = vocabulary.end_ids if request.stop_ids is None else tuple(request.stop_ids)
        tables = None
        if any(prompt.rest for prompt in self.prompts):
            tables = heal_tables(vocabulary, [prompt.rest for prompt in self.prompts], request.lm.vocab_size)
        size = request.lm.vocab_size
        return loop.Settings(
            temperature=np.float32(request.temperature or 1.0),
            truncation=(np.int32(request.top_k), np.float32(request.top_p), np.float32(request.min_p)),
            penalty=np.float32(request.repetition_penalty),
            max_tokens=np.int32(request.max_tokens),
            context=np.int32(self.context_length),
            stop_ids=padded(np.array(ends, np.int32), bucket(len(ends)), -1),
            known=known,
            ranks=ranks,
            lengths=lengths,
            heal=None if tables is None else (tables.ranges, tables.prefixes, tables.left),
            automaton=stops.automaton(self.stops) if self.stops.strings else None,
            token_bytes=token_bytes(vocabulary, size) if self.stops.strings else None,
        )

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

    def _start(self) -> None:
        """The state after the first sampled token of every row."""
        request, prompts, batch = self.request, self.prompts, len(self.prompts)
        self.settings = self._settings()
        self.heals = self.settings.heal is not None
        constraint = request.constraint
        self.constraint_state = None if constraint is None else constraint.init()
        seed = jax.random.key(np.uint32(request.seed & 0xFFFFFFFF))
        keys = jax.vmap(lambda row: jax.random.fold_in(seed, row))(jnp.arange(batch, dtype=jnp.int32))
        trunks = np.array([len(prompt.tree.trunk) for prompt in prompts], np.int32)
        exact = np.array([prompt.covers is not None for prompt in prompts])
        tokens = np.zeros(batch, np.int32)
        first = np.zeros((batch, self.size), np.float32)
        written, counted, stop = (np.zeros(batch, np.int32) for _ in range(3))
        status = np.full(batch, loop.RUNNING, np.int32)
        positions, ids = trunks.copy(), np.zeros((batch, self.size), np.int32)
        cache = self.filled.cache
        if exact.any():
            drawn = self._draw_leaves(keys)
            for b in np.flatnonzero(exact).tolist():
                token, past, flat, logprob = drawn[b]
                tokens[b] = ids[b, 0] = token
                first[b, 0], written[b], counted[b] = logprob, 1, int(bool(past))
                positions[b] = trunks[b] + prompts[b].tree.depths[flat]
                if self.settings.automaton is not None:
                    for byte in past:
                        stop[b] = self.settings.automaton[stop[b], byte]
                    if self.settings.automaton[stop[b], 256]:
                        status[b] = loop.STOP
                if status[b] == loop.RUNNING and counted[b] >= request.max_tokens:
                    status[b] = loop.LENGTH
                elif status[b] == loop.RUNNING and positions[b] >= self.context_length:
                    status[b] = loop.CONTEXT
            if any(prompt.tree.branches for prompt in prompts):
                cache = self._gathered(cache, drawn)
            if constraint is not None:
                pasts = [drawn[b][1] if exact[b] else b"" for b in range(batch)]
                self.constraint_state = constraints.fed(constraint, self.constraint_state, self.vocabulary, pasts)
        top = None
        if request.logprobs:
            shape = (batch, self.size, request.logprobs)
            top = (np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32))
        self.state = loop.State(
            cache=cache, token=tokens, position=positions, written=written, counted=counted, status=status,
            offset=np.zeros(batch, np.int32), stop=stop, ids=ids, logprobs=first, top=top,
            seen=self._seen(tokens, exact) if request.repetition_penalty != 1 else None,
            constraint=None, keys=keys, step=np.int32(0),
        )  # fmt: skip
        if not exact.all():
            self._first_tokens(exact)
        self.state = self.state._replace(step=jnp.int32(1))

    def _seen(self, tokens: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """bool [B, V]: tokens of the context, and those drawn."""
        seen = np.zeros((len(self.prompts), self.request.lm.vocab_size), bool)
        for b, prompt in enumerate(self.prompts):
            seen[b, list(prompt.kept or prompt.tree.trunk)] = True
            if exact[b]:
                seen[b, tokens[b]] = True
        return seen

    def _first_tokens(self, exact: np.ndarray) -> None:
        """The first token of the rows that have no covers, from the logits of their last id."""
        constraint = self.request.constraint
        done = np.asarray(self.state.status)
        state = self.state._replace(status=np.where(exact, loop.LENGTH, done).astype(np.int32))
        logits = self.filled.logits[:, 0]
        before = state
        if constraint is None:
            state = loop.first(self._static(heals=self.heals))(self.settings, None, state, logits, None)
        else:
            mask = self._host_mask(state)
            state = loop.first(self._static(heals=self.heals))(self.settings, None, state, logits, mask)
            self._feed(before, state)
        status = np.where(exact, done, np.asarray(state.status)).astype(np.int32)
        self.state = state._replace(status=jnp.asarray(status))

    # ---- exact: one draw among the leaves ----

    def _draw_leaves(self, keys: Any) -> list[Any]:
        """For each row with covers (token, its bytes past the prompt, flat node, log-prob), else None."""
        request = self.request
        rows = [Row(p.covers or _EMPTY, p.tree) for p in self.prompts]
        keep = None if request.constraint is None else self._allowed_leaves()
        nodes = self.filled.logits.shape[1]
        tables = leaf_tables(self.vocabulary, rows, nodes, keep)
        static = self._static(heals=False)
        if static.penalize:
            seen = np.zeros((len(rows), request.lm.vocab_size), bool)
            for b, row in enumerate(rows):
                seen[b, list(row.tree.trunk)] = True
            tables = tables._replace(seen=seen)
        known, ranks, _ = self._tables
        leaf, share, total, dropped = draw_leaf(
            self.filled.logits, known, ranks, tables, keys, self.settings.temperature, self.settings.truncation,
            self.settings.penalty, greedy=static.greedy, truncate=static.truncate, penalize=static.penalize,
        )  # fmt: skip
        leaf, share, total, dropped = (np.asarray(array) for array in (leaf, share, total, dropped))
        drawn: list[Any] = []
        for b, prompt in enumerate(self.prompts):
            if prompt.covers is None:
                drawn.append(None)
                continue
            if np.isnan(total[b]):
                raise InputError(f"the model's logits are NaN after the prompt of row {b}")
            if tables.nodes[b, leaf[b]] < 0 or not np.isfinite(share[b]):
                raise InputError(
                    f"nothing is allowed after the prompt of row {b}: the constraint or the model excludes all"
                )
            flat, token = int(tables.nodes[b, leaf[b]]), int(tables.leaves[b, leaf[b]])
            node = int(np.flatnonzero(prompt.tree.places == flat)[0])
            past = self.vocabulary.strings[token][prompt.covers.skip(node) :]
            path = [int(prompt.tree.tokens[f]) for f in prompt.tree.path(flat)]
            prompt.kept = (*prompt.tree.trunk, *path)
            spelled = sum(len(self.vocabulary.strings[t]) for t in prompt.covers.nodes[node].path)
            prompt.cut = prompt.covers.rest[spelled:]
            prompt.dropped, prompt.logprob, prompt.straddles = float(max(dropped[b], 0.0)), float(total[b]), 1
            drawn.append((token, past, flat, float(share[b])))
        return drawn

    def _allowed_leaves(self) -> list[np.ndarray]:
        constraint, state = self.request.constraint, self.constraint_state
        mask = constraints.checked_mask(constraint, state, len(self.prompts), self.request.lm.vocab_size)
        kept: list[np.ndarray] = []
        for b, prompt in enumerate(self.prompts):
            if prompt.covers is None:
                kept.append(np.zeros(0, bool))
                continue
            nodes, tokens = prompt.covers.leaves
            skips = [prompt.covers.skip(node) for node in range(len(prompt.covers.nodes))]
            pasts = [
                self.vocabulary.strings[t][skips[n] :] for n, t in zip(nodes.tolist(), tokens.tolist(), strict=True)
            ]
            kept.append(constraints.allowed(constraint, state, mask, self.vocabulary, b, pasts))
        return kept

    def _gathered(self, cache: Any, drawn: Sequence[Any]) -> Any:
        """The cache with only each row's trunk and path."""
        rows = np.full((len(self.prompts), self.capacity or 0), -1, np.int32)
        for b, prompt in enumerate(self.prompts):
            trunk = len(prompt.tree.trunk)
            slots = [*range(trunk)]
            if drawn[b] is not None:
                slots += [trunk + flat - 1 for flat in prompt.tree.path(drawn[b][2])]
            rows[b, : len(slots)] = slots
        return gatherer(self.request.lm)(cache, rows)

    # ---- constraints on the host ----

    def _host_mask(self, state: loop.State) -> np.ndarray:
        """bool [B, V]: what the constraint allows of each row's candidates."""
        constraint, size = self.request.constraint, self.request.lm.vocab_size
        mask = constraints.checked_mask(constraint, self.constraint_state, len(self.prompts), size).copy()
        offset = np.asarray(state.offset)
        base = mask.copy()
        for b, prompt in enumerate(self.prompts):
            rest = prompt.rest[offset[b] :]
            if not rest:
                continue
            lo, hi = self.vocabulary.range(rest)
            tokens = self.vocabulary.order[lo:hi]
            pasts = [self.vocabulary.strings[t][len(rest) :] for t in tokens.tolist()]
            mask[b] = False
            mask[b, self.vocabulary.prefixes(rest)] = True
            mask[b, tokens] = constraints.allowed(constraint, self.constraint_state, base, self.vocabulary, b, pasts)
        return mask

    def _feed(self, before: loop.State, after: loop.State) -> None:
        """Shows the constraint what the last step added past the prompt."""
        old, new, tokens = np.asarray(before.written), np.asarray(after.written), np.asarray(after.token)
        offset = np.asarray(before.offset)
        whole = np.full(len(self.prompts), -1, np.int32)
        pasts = [b""] * len(self.prompts)
        for b, prompt in enumerate(self.prompts):
            if new[b] == old[b]:
                continue
            rest = len(prompt.rest) - int(offset[b])
            if rest:
                pasts[b] = self.vocabulary.strings[tokens[b]][rest:]
            else:
                whole[b] = tokens[b]
        constraint = self.request.constraint
        self.constraint_state = constraints.fed(constraint, self.constraint_state, self.vocabulary, pasts)
        if (whole >= 0).any():
            self.constraint_state = constraint.advance(self.constraint_state, whole)

    # ---- decode ----

    def decode(self) -> None:
        """Runs to the end."""
        self._advance(self.size + 1)

    def _advance(self, until: int) -> None:
        request, constraint = self.request, self.request.constraint
        pure = constraint is not None and constraints.is_pure(constraint)
        while constraint is not None and self._running() and int(self.state.step) < until:
            if pure and all(len(p.rest) <= o for p, o in zip(self.prompts, np.asarray(self.state.offset), strict=True)):
                break
            before = on_host(self.state)
            mask = self._host_mask(before)
            run = loop.step(request.lm, self._static(heals=self.heals), self._slots())
            self.state = run(self.params, self.settings, on_device(self.state), mask)
            self._feed(before, self.state)
        if constraint is None or pure:
            heals = self.heals and any(
                len(p.rest) > o for p, o in zip(self.prompts, np.asarray(self.state.offset), strict=True)
            )
            settings = self.settings if heals or constraint is None else self.settings._replace(heal=None)
            static = self._static(heals=self.heals if constraint is None else False)
            state = on_device(self.state)
            if pure:
                state = state._replace(constraint=owned(self.constraint_state))
            run = loop.loop(request.lm, static, self._slots())
            self.state = run(self.params, settings, constraint if pure else None, state, jnp.int32(until))
            if pure:
                self.constraint_state = self.state.constraint
        self._check()

    def _slots(self) -> int:
        return self.capacity if self.capacity is not None else self.size

    def _running(self) -> bool:
        return bool((np.asarray(self.state.status) == loop.RUNNING).any())

    def _check(self) -> None:
        status = np.asarray(self.state.status)
        for b in np.flatnonzero(status == loop.NAN).tolist():
            raise InputError(f"the model's logits are NaN after {int(self.state.written[b])} tokens of row {b}")
        for b in np.flatnonzero(status == loop.EMPTY).tolist():
            raise InputError(
                f"nothing is allowed after {int(self.state.written[b])} tokens of row {b}: the constraint excludes all"
            )

    # ---- results ----

    def completions(self) -> list[Completion]:
        """The completions of all rows, as far as they are."""
        host = on_host(self.state)
        if self.request.reuse is not None:
            prompt, count = self.prompts[0], int(host.written[0])
            ids = (*prompt.kept, *host.ids[0, : max(0, count - 1)].tolist())
            self.request.reuse.put(self.state.cache, ids)
        return [self._completion(host, b) for b in range(len(self.prompts))]

    def _completion(self, host: loop.State, b: int) -> Completion:
        prompt = self.prompts[b]
        count = int(host.written[b])
        ids = tuple(host.ids[b, :count].tolist())
        data = self._data(ids, prompt)
        found = self.stops.find(data)
        data = data if found is None else data[:found]
        straddling = 0 if prompt.covers is not None else len(prompt.rest)
        logprobs = []
        for at, id in enumerate(ids):
            conditional = straddling > 0 or (prompt.covers is not None and at == 0)
            top = ()
            if self.request.logprobs and not (prompt.covers is not None and at == 0):
                pairs = zip(host.top[0][b, at].tolist(), host.top[1][b, at].tolist(), strict=True)
                top = tuple((other, value) for other, value in pairs if value > -np.inf)
            logprobs.append(TokenLogprob(id, float(host.logprobs[b, at]), conditional, top))
            straddling -= len(self.vocabulary.strings[id])
        return Completion(
            text=TextStream(prompt.context.tail).push(data),
            data=data,
            ids=ids,
            logprobs=tuple(logprobs),
            finish_reason="stop" if host.status[b] == loop.STOP else "length",
            usage=Usage(len(prompt.context.ids), int(host.counted[b])),
            boundary=self._report(prompt, b),
        )

    def _data(self, ids: Sequence[int], prompt: _Prompt) -> bytes:
        data = self.request.tok.decode_bytes(ids) if ids else b""
        return data[len(prompt.cut) :]

    def _report(self, prompt: _Prompt, b: int) -> BoundaryReport:
        filled: Prefilled = self.filled
        covers = prompt.covers
        return BoundaryReport(
            mode="exact" if covers is not None else "heal" if prompt.rest else "none",
            kept=prompt.kept,
            cut=prompt.cut,
            nodes=len(covers.nodes) if covers else 0,
            leaves=len(covers.leaves[0]) if covers else 0,
            dropped=prompt.dropped,
            logprob=prompt.logprob,
            extra_tokens=filled.forwarded[b] + filled.reused[b] - len(prompt.context.ids),
            extra_calls=filled.calls - 1 - (max(0, len(prompt.context.ids) - filled.reused[b] - 1) // CHUNK),
            padded=filled.padded,
            reused=filled.reused[b],
        )

    def events(self) -> Iterator[Event]:
        """An event a step and row that runs; the last one of a row has its completion."""
        streams = [TextStream(prompt.context.tail) for prompt in self.prompts]
        shown, sent = [0] * len(self.prompts), [0] * len(self.prompts)
        over: set[int] = set()
        until = 1
        self._check()
        while True:
            host = on_host(self.state._replace(cache=None))
            for b, prompt in enumerate(self.prompts):
                if b in over:
                    continue
                done = host.status[b] != loop.RUNNING
                ids = tuple(host.ids[b, : int(host.written[b])].tolist())
                data = self._data(ids, prompt)
                found = self.stops.find(data)
                end = found if found is not None else len(data) if done else len(data) - self.stops.held(data)
                text = streams[b].push(data[sent[b] : max(end, sent[b])])
                sent[b] = max(end, sent[b])
                completion = None
                if done:
                    over.add(b)
                    completion = self._completion(host, b)
                yield Event(text, ids[shown[b] :], completion.finish_reason if completion else None, b, completion)
                shown[b] = len(ids)
            if len(over) == len(self.prompts):
                self.completions()
                return
            until += 1
            self._advance(until)


_EMPTY = Covers(
    (), (), (np.zeros(0, np.int32), np.zeros(0, np.int32)),
    (np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.uint8)), None, b"",
)  # fmt: skip
