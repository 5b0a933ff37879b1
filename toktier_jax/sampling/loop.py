"""The decode loop: one jitted `while_loop` that forwards, masks, samples and stops, for a batch of ragged rows.

The state is a pytree of fixed arrays; ids stay on the device. A row that is done forwards padding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from toktier_jax.sampling import stops
from toktier_jax.sampling.draw import choose, in_ranges, penalized
from toktier_jax.sampling.per_model import per_model

RUNNING, LENGTH, STOP, NAN, EMPTY, CONTEXT = range(6)
"""Why a row is done: `max_tokens`, a stop id or string, logits NaN or +inf, nothing allowed, the context is full."""


@dataclass(frozen=True)
class Static:
    """What decides the executable, beside shapes."""

    greedy: bool
    truncate: bool
    penalize: bool
    logprobs: int
    heals: bool
    stops: bool


class Settings(NamedTuple):
    """Numbers of a call, and tables of the vocabulary. V logits, B rows."""

    temperature: Any  # float32 []
    truncation: Any  # (int32 [], float32 [], float32 []): top_k, top_p, min_p
    penalty: Any  # float32 []
    max_tokens: Any  # int32 []
    context: Any  # int32 []: positions that the model has
    stop_ids: Any  # int32 [S], filled up with -1
    known: Any  # bool [V]: logit columns with a token
    ranks: Any  # int32 [V]
    lengths: Any  # int32 [V]: bytes of each token
    spans: Any  # int32 [V]: tokens that begin with each token's bytes, from its rank on
    heal: Any  # None, or (ranges [B, K, 3], barred [B, K, D], left [B, K]): HealTables
    automaton: Any  # None or int32 [A, 257]
    token_bytes: Any  # None or uint8 [V, longest]


class State(NamedTuple):
    """Where each row is."""

    cache: Any
    token: Any  # int32 [B]: sampled last, not yet forwarded
    position: Any  # int32 [B]: its position
    written: Any  # int32 [B]: tokens in `ids`
    counted: Any  # int32 [B]: those of them with bytes past the prompt
    status: Any  # int32 [B]
    offset: Any  # int32 [B]: bytes of the rest that are spelled
    stop: Any  # int32 [B]: state of the stop automaton
    ids: Any  # int32 [B, N]
    logprobs: Any  # float32 [B, N]
    top: Any  # None, or (int32 [B, N, L], float32 [B, N, L])
    seen: Any  # None, or bool [B, V]
    constraint: Any  # state of a pure constraint, or None
    keys: Any  # [B] typed keys
    step: Any  # int32 []


def sample(
    static: Static, settings: Settings, constraint: Any, state: State, logits: Array, host_mask: Array | None
) -> State:
    """One token a row from its logits [B, V]; the masks come before temperature and truncation."""
    batch = logits.shape[0]
    rows = jnp.arange(batch, dtype=jnp.int32)
    bad = jnp.any(settings.known[None, :] & ~(logits < jnp.inf), axis=1)  # NaN, too
    allowed = jnp.broadcast_to(settings.known[None, :], logits.shape)
    left = jnp.zeros((batch,), jnp.int32)
    if static.heals:
        ranges, barred, remaining = settings.heal
        here = rows, state.offset
        left = remaining[here]
        healing = in_ranges(settings.ranks, settings.spans, ranges[here], barred[here])
        allowed &= healing | (left == 0)[:, None]
    if host_mask is not None:
        allowed &= host_mask
    elif constraint is not None:
        allowed &= constraint.mask(state.constraint)
    logits = jnp.where(allowed, logits, -jnp.inf)
    empty = ~jnp.any(logits > -jnp.inf, axis=1)  # what the model itself excludes is not drawn either
    logprobs = jax.nn.log_softmax(logits, axis=-1)
    scores = penalized(logits, state.seen, settings.penalty) if static.penalize else logits
    scores = jnp.where(allowed, scores, -jnp.inf)
    keys = jax.vmap(lambda key: jax.random.fold_in(key, state.step))(state.keys)
    truncation = settings.truncation if static.truncate else None
    token = choose(scores, keys, settings.temperature, truncation, greedy=static.greedy)
    return _accept(static, settings, constraint, state, token, logprobs, left, bad, empty)


def _accept(
    static: Static,
    settings: Settings,
    constraint: Any,
    state: State,
    token: Array,
    logprobs: Array,
    left: Array,
    bad: Array,
    empty: Array,
) -> State:
    """Writes the tokens of the rows that still run, and says which are done."""
    rows = jnp.arange(token.shape[0], dtype=jnp.int32)
    running = state.status == RUNNING
    length = jnp.take(settings.lengths, token)
    ends = jnp.any(token[:, None] == settings.stop_ids[None, :], axis=1) & ((left == 0) | (length > left))
    good = running & ~bad & ~empty
    writes = good & ~(ends & (left == 0))  # one that spells the prompt's end, too, stays
    at = jnp.where(writes, state.written, state.ids.shape[1])
    ids = state.ids.at[rows, at].set(token, mode="drop")
    chosen = jnp.take_along_axis(logprobs, token[:, None], axis=1)[:, 0]
    recorded = state.logprobs.at[rows, at].set(chosen, mode="drop")
    top = state.top
    if static.logprobs:
        values, best = jax.lax.top_k(logprobs, static.logprobs)
        top = (
            state.top[0].at[rows, at].set(best.astype(jnp.int32), mode="drop"),
            state.top[1].at[rows, at].set(values, mode="drop"),
        )
    past = writes & ((length > left) | (left == 0))
    counted = state.counted + past.astype(jnp.int32)
    offset = jnp.where(writes, state.offset + jnp.minimum(length, left), state.offset)
    matched = jnp.zeros_like(running)
    stop = state.stop
    if static.stops:
        moved = stops.advance(settings.automaton, settings.token_bytes, settings.lengths, state.stop, token, left)
        stop = jnp.where(writes, moved, state.stop)
        matched = stops.found(settings.automaton, stop)
    position = jnp.where(writes, state.position + 1, state.position)
    status = jnp.where(running & (position >= settings.context), CONTEXT, state.status)
    status = jnp.where(running & (counted >= settings.max_tokens), LENGTH, status)
    status = jnp.where(running & (matched | ends), STOP, status)
    status = jnp.where(running & empty, EMPTY, status)
    status = jnp.where(running & bad, NAN, status)
    seen = state.seen
    if static.penalize:
        seen = seen.at[rows, jnp.where(writes, token, seen.shape[1])].set(True, mode="drop")
    after = state.constraint
    if constraint is not None:
        after = constraint.advance(after, jnp.where(writes & past & (left == 0), token, -1))
    return State(
        cache=state.cache,
        token=jnp.where(writes, token, state.token),
        position=position,
        written=state.written + writes.astype(jnp.int32),
        counted=counted,
        status=status.astype(jnp.int32),
        offset=offset,
        stop=stop,
        ids=ids,
        logprobs=recorded,
        top=top,
        seen=seen,
        constraint=after,
        keys=state.keys,
        step=state.step + 1,
    )


def forward(lm: Any, params: Any, state: State, capacity: int) -> tuple[Array, Any]:
    """The logits after each row's last token [B, V], and the cache with it."""
    running = state.status == RUNNING
    positions = jnp.where(running, state.position, -1)[:, None]
    slots = jnp.arange(capacity, dtype=jnp.int32)[None, None, :]
    logits, cache = lm.apply(
        params, state.token[:, None], positions, state.cache, slots <= state.position[:, None, None]
    )
    return logits[:, 0].astype(jnp.float32), cache


@functools.lru_cache(maxsize=64)
def first(static: Static) -> Callable[..., State]:
    """jit of `sample` for the logits of a prefill: (settings, constraint, state, logits, host_mask) -> state."""
    return jax.jit(functools.partial(sample, static))


@per_model
def loop(lm: Any, static: Static, capacity: int) -> Callable[..., State]:
    """The jitted loop: (params, settings, constraint, state, until) -> state, the state donated.

    It ends when every row is done or `state.step` reaches `until`.
    """

    def run(params, settings, constraint, state, until):
        def going(state: State) -> Array:
            return jnp.any(state.status == RUNNING) & (state.step < until)

        def body(state: State) -> State:
            logits, cache = forward(lm, params, state, capacity)
            return sample(static, settings, constraint, state._replace(cache=cache), logits, None)

        return jax.lax.while_loop(going, body, state)

    return jax.jit(run, donate_argnums=3)


@per_model
def step(lm: Any, static: Static, capacity: int) -> Callable[..., State]:
    """One jitted step with a mask from the host: (params, settings, state, mask) -> state, the state donated."""

    def run(params, settings, state, mask):
        logits, cache = forward(lm, params, state, capacity)
        return sample(static, settings, None, state._replace(cache=cache), logits, mask)

    return jax.jit(run, donate_argnums=2)
