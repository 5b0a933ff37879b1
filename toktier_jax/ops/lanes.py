"""A table automaton along a text, walked in lanes: each lane a contiguous stretch, all lanes in step. For CPUs.

A lane's entry state is its neighbour's exit state. It is guessed by walking the neighbour's last bytes first, checked
afterwards, and walked again where it was wrong; if that does not settle, the exit of every lane for every entry is
computed, and these maps are composed (Mytkowicz et al., Data-Parallel Finite-State Machines, ASPLOS 2014). So the
result is exact and the work bounded.

Inputs and states of a lane are packed in 32-bit words, four of 8 or two of 16 bits. A step of the loop is one fused
kernel that looks up the states of a word of every lane, one after another, and writes a row of a buffer [rows, lanes].
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from toktier_jax.ops.blocks import take
from toktier_jax.ops.scan import some

_WARM_BYTES = 32
"""How far before a lane its entry is guessed from. Most states are forgotten within a few characters, some never."""
_RETRIES = 2
BLOCK = 1 << 15
"""Longer buffers are padded to a multiple of this, and walked up to their length only: the stretches follow it."""


class Automaton(NamedTuple):
    """A deterministic table, and what must be known of it to walk in lanes.

    table     uint8/uint16 [states, inputs]  the next state; `inputs` is a power of two
    same      int32 []  an input after which a state goes on as it did before; states that it leads to are canonical
    first     int32 []  the canonical state to begin with
    rest      int32 []  the other canonical states are numbered from here on
    others    int32 []  how many those are
    backward  the text is walked from its end
    """

    table: jax.Array
    same: jax.Array
    first: jax.Array
    rest: jax.Array
    others: jax.Array
    backward: bool


class Lanes(NamedTuple):
    """`rows` words a lane (static, or int32 [] where the stretches follow the length), at most `capacity`."""

    lanes: int
    capacity: int
    rows: int | jax.Array
    bits: int

    @property
    def per(self) -> int:
        """Values in a word."""
        return 32 // self.bits

    @property
    def total(self) -> int:
        """Values in all words."""
        return self.lanes * self.capacity * self.per


def lanes_for(size: int, length: jax.Array, dtype: np.dtype) -> Lanes:
    """The shape for walking `size` values uint8 or uint16, of which `length` matter."""
    bits = 8 * dtype.itemsize
    lanes = 1 << max(0, min(10, size.bit_length() - 9))  # of 256 bytes to begin with
    step = lanes * 32 // bits
    total = -(-size // step) * step if size <= BLOCK else -(-size // BLOCK) * BLOCK
    capacity = total // step
    rows = capacity if size <= BLOCK else jnp.clip(-(-length // step), 1, capacity)
    return Lanes(lanes, capacity, rows, bits)


def walk_lanes(automaton: Automaton, shape: Lanes, words: jax.Array) -> jax.Array:
    """The states of all words, uint32 [capacity + 1, lanes].

    `words` are the inputs, in the order of the text, or the states of an earlier walk in the other direction.
    """
    lanes, capacity, rows, bits = shape
    warm = _least(_WARM_BYTES * bits // 32, rows)

    def sweep(buffer: jax.Array, start: jax.Array | int, stop: jax.Array | int, entry: jax.Array):
        return _sweep(automaton, shape, words, buffer, start, stop, entry)

    def chained(exits: jax.Array) -> jax.Array:
        return _shift(exits, automaton.first, automaton.backward)

    buffer = jnp.zeros((capacity + 1, lanes), jnp.uint32)
    near = (0, warm) if automaton.backward else (rows - warm, rows)
    buffer, exits = sweep(buffer, *near, jnp.broadcast_to(automaton.first, (lanes,)))
    entry = chained(exits)
    buffer, exits = sweep(buffer, 0, rows, entry)

    def wrong(carry: tuple[jax.Array, ...]) -> jax.Array:
        _, entry, exits, _ = carry
        return some(chained(exits) != entry)

    def again(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        buffer, _, exits, tries = carry
        count = jnp.where(tries < _RETRIES, 0, automaton.others + 1)

        def one(number: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            buffer, maps = carry
            state = jnp.where(number == 0, automaton.first, automaton.rest + number - 1)
            buffer, exits = sweep(buffer, 0, rows, jnp.broadcast_to(state, (lanes,)))
            return buffer, lax.dynamic_update_slice(maps, exits[None], (state, 0))

        maps = jnp.zeros((automaton.table.shape[0], lanes), jnp.int32)
        buffer, maps = lax.fori_loop(0, count, one, (buffer, maps))
        entry = jnp.where(tries < _RETRIES, chained(exits), _composed(automaton, maps))
        buffer, exits = sweep(buffer, 0, rows, entry)
        return buffer, entry, exits, tries + 1

    return lax.while_loop(wrong, again, (buffer, entry, exits, jnp.int32(0)))[0]


def place_of(shape: Lanes, word: jax.Array) -> jax.Array:
    """Where in the flattened buffer of a forward walk the states of a word of the text are."""
    lanes, capacity, rows, _ = shape
    rows = jnp.asarray(rows, jnp.int32)
    return jnp.minimum((lax.rem(word, rows) + 1) * lanes + lax.div(word, rows), (capacity + 1) * lanes - 1)


def _sweep(
    automaton: Automaton,
    shape: Lanes,
    words: jax.Array,
    buffer: jax.Array,
    start: jax.Array | int,
    stop: jax.Array | int,
    entry: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Walks rows [start, stop) of every lane from `entry` int32 [lanes]; also the canonical states at the end of that.

    A backward walk writes row t of the buffer and has its entry at `stop`, a forward walk row t + 1 and at `start`.
    """
    lanes, _, rows, bits = shape
    table, backward = automaton.table, automaton.backward
    flat, width = table.reshape(-1), np.int32(table.shape[1].bit_length() - 1)
    mask = np.uint32(table.shape[1] - 1)
    places = range(0, 32, bits)
    base = lax.iota(jnp.int32, lanes) * rows

    def load(row: jax.Array) -> jax.Array:
        if words.ndim == 1:
            return take(words, base + row)
        return lax.dynamic_slice(words, (row, 0), (1, lanes)).reshape(-1)

    def step(number: jax.Array, buffer: jax.Array) -> jax.Array:
        row = stop - 1 - number if backward else start + number
        source, target = (row + 1, row) if backward else (row, row + 1)
        before = lax.dynamic_slice(buffer, (source, 0), (1, lanes)).reshape(-1)
        state = _first(before, bits) if backward else _last(before, bits)
        word = load(row)
        packed = jnp.zeros_like(word)
        for place in reversed(places) if backward else places:
            value = lax.shift_right_logical(word, np.uint32(place)) & mask
            state = take(flat, ((state << width) | value.astype(jnp.int32))).astype(jnp.int32)
            packed = packed | (state.astype(jnp.uint32) << np.uint32(place))
        return lax.dynamic_update_slice(buffer, packed[None], (target, 0))

    edge = entry.astype(jnp.uint32)
    edge = edge if backward else edge << np.uint32(32 - bits)
    buffer = lax.dynamic_update_slice(buffer, edge[None], (stop if backward else start, 0))
    buffer = lax.fori_loop(0, stop - start, step, buffer)
    end = lax.dynamic_slice(buffer, (start if backward else stop, 0), (1, lanes)).reshape(-1)
    state = _first(end, bits) if backward else _last(end, bits)
    return buffer, take(flat, (state << width) | automaton.same).astype(jnp.int32)


def _least(limit: int, rows: int | jax.Array) -> int | jax.Array:
    """Static where `rows` is."""
    return min(limit, rows) if isinstance(rows, int) else jnp.minimum(limit, rows)


def _first(words: jax.Array, bits: int) -> jax.Array:
    return (words & np.uint32((1 << bits) - 1)).astype(jnp.int32)


def _last(words: jax.Array, bits: int) -> jax.Array:
    return lax.shift_right_logical(words, np.uint32(32 - bits)).astype(jnp.int32)


def _shift(exits: jax.Array, first: jax.Array, backward: bool) -> jax.Array:
    """The entries that follow from the exits of all lanes."""
    edge = first.reshape(1)
    return jnp.concatenate([exits[1:], edge] if backward else [edge, exits[:-1]])


def _composed(automaton: Automaton, maps: jax.Array) -> jax.Array:
    """Entries from the exit of each lane for each canonical entry, int32 [states, lanes]."""
    lanes = maps.shape[1]

    def step(state: jax.Array, lane: jax.Array) -> tuple[jax.Array, jax.Array]:
        return maps[state, lane], state

    order = lax.iota(jnp.int32, lanes)
    return lax.scan(step, automaton.first, order, reverse=automaton.backward)[1]
