"""Covers and their weights by brute force: the prompt is encoded with many suffixes, every path is forwarded alone."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from toktier_jax import models
from toktier_jax.sampling.normal_form import normal_form
from toktier_jax.sampling.vocabulary import vocabulary_of

GOING_ON = ("", " ", "  ", "\n", " \n", "a", "s", "t", "'", "1", "12", ".", "中", " a", "'t", "ll", "<")
ENDINGS = tuple(
    bytes.fromhex(end)
    for end in "- 80 ad 85 a0 8080 b8ad a080 9f80 9a80 bfbfbf 908080 808080".replace("-", "").split(" ")
)


@functools.cache
def suffixes(tok: Any) -> tuple[bytes, ...]:
    """Every end of every token, characters completed in some ways, and what may follow."""
    strings = vocabulary_of(tok).by_bytes
    ends = {string[at:] for string in strings for at in range(len(string))} | {b""}
    going_on = [text.encode() for text in GOING_ON]
    return tuple(dict.fromkeys(end + more + text for end in ends for more in ENDINGS for text in going_on))


def covers(tok: Any, prompt: bytes, *, strict: bool) -> set[tuple[int, ...]]:
    """The covers C (or C+) that some suffix shows; ids of the prompt's text alone, without a template."""
    vocabulary, found, texts = vocabulary_of(tok), set(), []
    form = normal_form(tok.spec.normalizers)
    for suffix in suffixes(tok):
        with contextlib.suppress(UnicodeDecodeError):
            text = (prompt + suffix).decode()
            if form is None or form.holds(text):
                texts.append(text)
    for encoding in tok.reference.encode_batch_fast(texts, add_special_tokens=False):
        length, ids = 0, encoding.ids
        for at, id in enumerate(ids):
            if id in vocabulary.special:
                break
            length += len(vocabulary.strings[id])
            if length >= len(prompt) + strict:
                found.add(tuple(ids[: at + 1]))
                break
    return found


def logprobs(lm: models.CausalLM, paths: Iterable[Sequence[int]]) -> dict[tuple[int, ...], np.ndarray]:
    """float64 log-probs [V] after each path, all forwarded as plain rows of one causal batch."""
    rows = sorted({tuple(path) for path in paths})
    size = 1 << max(3, (max(map(len, rows)) - 1).bit_length())
    found = {}
    for begin in range(0, len(rows), 32):
        part = rows[begin : begin + 32]
        tokens = np.zeros((32, size), np.int32)
        for at, row in enumerate(part):
            tokens[at, : len(row)] = row
        lengths = jnp.array([len(row) for row in part] + [1] * (32 - len(part)), jnp.int32)
        positions, mask = models.causal_inputs(jnp.zeros(32, jnp.int32), lengths, size, size)
        logits, _ = _forward(lm)(lm.params, jnp.asarray(tokens), positions, lm.init_cache(32, size), mask)
        for at, row in enumerate(part):
            last = np.asarray(logits[at, len(row) - 1]).astype(np.float64)
            found[row] = last - last.max() - np.log(np.exp(last - last.max()).sum())
    return found


@functools.cache
def _forward(lm: models.CausalLM) -> Any:
    return jax.jit(lm.apply)


def masked(tok: Any, lm: models.CausalLM, rows: dict[tuple[int, ...], np.ndarray]) -> dict[tuple[int, ...], np.ndarray]:
    """The log-probs with the columns that have no token left out."""
    known = np.zeros(lm.vocab_size, bool)
    vocabulary = vocabulary_of(tok)
    known[[i for i, s in enumerate(vocabulary.strings) if s or i in vocabulary.special]] = True
    out = {}
    for path, row in rows.items():
        row = np.where(known, row, -np.inf)
        out[path] = row - np.log(np.exp(row).sum())
    return out


def weights(
    tok: Any, lm: models.CausalLM, start: tuple[int, ...], found: Iterable[tuple[int, ...]], temperature: float = 1.0
) -> dict[tuple[int, ...], float]:
    """log w of each cover after the ids `start`: the sum of the model's conditionals at a temperature."""
    found = list(found)
    prefixes = {(*start, *path[:end]) for path in found for end in range(len(path))}
    rows = masked(tok, lm, logprobs(lm, prefixes))
    if temperature != 1.0:
        for path, row in rows.items():
            row = row / temperature
            rows[path] = row - np.log(np.exp(row).sum())
    return {path: sum(rows[(*start, *path[:end])][path[end]] for end in range(len(path))) for path in found}
