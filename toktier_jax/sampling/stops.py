"""Stop strings over bytes: an automaton that the decode loop walks, and the same search on the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32

from toktier_jax.errors import InputError
from toktier_jax.sampling.vocabulary import Vocabulary


class Automaton(NamedTuple):
    """Finds strings byte by byte (Aho and Corasick, 1975). State 0 is the first.

    table    int32 [A, 257]  the next state by byte, and in the last column whether a string was found; a found one
                             stays found. A is a power of two
    begun    of each state, how many of the last bytes may begin a string; means nothing once one was found
    """

    table: np.ndarray
    begun: tuple[int, ...]

    def after(self, state: int, data: bytes | bytearray) -> int:
        """The state after more bytes."""
        for byte in data:
            state = int(self.table[state, byte])
        return state

    def found(self, state: int) -> bool:
        """Whether a string was found."""
        return bool(self.table[state, 256])


@dataclass(frozen=True)
class Stops:
    """The stop strings of a call, as bytes."""

    strings: tuple[bytes, ...]

    @property
    def memory(self) -> int:
        """How many bytes before new ones can matter: those of a stop string that the new ones end."""
        return max(map(len, self.strings), default=1) - 1

    @cached_property
    def automaton(self) -> Automaton:
        return _automaton(self.strings)

    def find(self, data: bytes | bytearray, start: int = 0) -> int | None:
        """Where the stop string that ends first begins (the longest of those that end there), from `start` on; or
        None."""
        found = [(at + len(s), at) for s in self.strings if (at := data.find(s, start)) >= 0]
        return min(found)[1] if found else None


def check_stops(stop: str | bytes | Sequence[str | bytes]) -> Stops:
    """Stop strings as given; raises InputError for an empty one, and for what is none."""
    if not isinstance(stop, str | bytes | bytearray | Iterable):
        raise InputError(f"stop={stop!r}: expected str, bytes, or a list of these, () for none")
    strings = [stop] if isinstance(stop, str | bytes | bytearray) else list(stop)
    for string in strings:
        if not isinstance(string, str | bytes | bytearray):
            raise InputError(f"stop: {string!r} is neither str nor bytes")
        if not string:
            raise InputError("stop: an empty stop string would end every text at once; leave it out")
    try:
        return Stops(tuple(s.encode() if isinstance(s, str) else bytes(s) for s in strings))
    except UnicodeEncodeError as error:
        raise InputError(f"stop: {error.object!r} holds a lone surrogate at character {error.start}") from None


def _automaton(strings: Sequence[bytes]) -> Automaton:
    children: list[dict[int, int]] = [{}]
    depths, ends = [0], set[int]()
    for string in strings:
        state = 0
        for depth, byte in enumerate(string, 1):
            if byte not in children[state]:
                children[state][byte] = len(children)
                children.append({})
                depths.append(depth)
            state = children[state][byte]
        ends.add(state)
    table = np.zeros((max(8, 1 << (len(children) - 1).bit_length()), 257), np.int32)
    shorter = [0] * len(children)  # the longest proper end of a state's bytes that is a state
    states = [0]
    for state in states:  # the shortest first
        if state in ends or table[shorter[state], 256]:
            table[state] = state
            table[state, 256] = 1
            continue
        table[state] = table[shorter[state]]
        for byte, child in children[state].items():
            shorter[child] = int(table[state, byte]) if state else 0
            table[state, byte] = child
            states.append(child)
    return Automaton(table, tuple(depths))


def byte_table(vocabulary: Vocabulary, size: int) -> np.ndarray:
    """uint8 [size, longest]: the bytes of each token."""
    strings = [*vocabulary.strings, *[b""] * (size - len(vocabulary.strings))]
    width = max(1, vocabulary.longest)
    return np.frombuffer(b"".join(s.ljust(width, b"\0") for s in strings), np.uint8).reshape(size, width)


def advance(
    table: Int32[Array, "states 257"],
    token_bytes: Array,
    lengths: Int32[Array, " vocab"],
    state: Int32[Array, " batch"],
    token: Int32[Array, " batch"],
    skip: Int32[Array, " batch"],
) -> Int32[Array, " batch"]:
    """The states after the bytes of one token a row from byte `skip` on."""
    row = jnp.take(token_bytes, token, axis=0).astype(jnp.int32)
    length = jnp.take(lengths, token)

    def step(at: Array, state: Array) -> Array:
        after = table[state, lax.dynamic_index_in_dim(row, at, axis=1, keepdims=False)]
        return jnp.where((at >= skip) & (at < length), after, state)

    return lax.fori_loop(jnp.int32(0), jnp.max(length), step, state)


def found(table: Int32[Array, "states 257"], state: Int32[Array, " batch"]) -> jax.Array:
    """bool [B]: whether a stop string was found."""
    return table[state, 256] > 0
