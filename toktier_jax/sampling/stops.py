"""Stop strings over bytes: an automaton that the decode loop walks, and the same search on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32

from toktier_jax.errors import InputError
from toktier_jax.sampling.vocabulary import Vocabulary


@dataclass(frozen=True)
class Stops:
    """The stop strings of a call, as bytes."""

    strings: tuple[bytes, ...]

    def find(self, data: bytes) -> int | None:
        """Where the stop string that ends first begins (the longest of those that end there), or None."""
        found = [(data.find(s) + len(s), data.find(s)) for s in self.strings if s in data]
        return min(found)[1] if found else None

    def held(self, data: bytes) -> int:
        """How many of the last bytes may be the beginning of a stop string."""
        longest = max(map(len, self.strings), default=1) - 1
        return next(
            (k for k in range(min(longest, len(data)), 0, -1) if any(s.startswith(data[-k:]) for s in self.strings)), 0
        )


def check_stops(stop: str | bytes | Sequence[str | bytes]) -> Stops:
    """Stop strings as given; raises InputError for an empty one."""
    strings = [stop] if isinstance(stop, str | bytes) else list(stop)
    for string in strings:
        if not isinstance(string, str | bytes):
            raise InputError(f"stop: {string!r} is neither str nor bytes")
        if not string:
            raise InputError("stop: an empty stop string would end every text at once; leave it out")
    return Stops(tuple(s.encode() if isinstance(s, str) else s for s in strings))


def automaton(stops: Stops) -> np.ndarray:
    """int32 [A, 257]: the next state by byte (Aho and Corasick, 1975), and in the last column whether one was found.

    A is a power of two; a found string stays found.
    """
    prefixes = [b"", *dict.fromkeys(s[:k] for s in stops.strings for k in range(1, len(s) + 1))]
    number = {prefix: state for state, prefix in enumerate(prefixes)}
    size = max(8, 1 << (len(prefixes) - 1).bit_length())
    table = np.zeros((size, 257), np.int32)
    for prefix, state in number.items():
        if any(prefix.endswith(s) for s in stops.strings):
            table[state] = state
            table[state, 256] = 1
            continue
        for byte in range(256):
            text = prefix + bytes([byte])
            table[state, byte] = next(number[text[k:]] for k in range(len(text) + 1) if text[k:] in number)
    return table


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
