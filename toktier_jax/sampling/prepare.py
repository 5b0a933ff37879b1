"""A request checked as a whole before the model is called: its prompts' boundaries, how much room it needs, tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toktier_jax.errors import InputError
from toktier_jax.sampling import loop, stops
from toktier_jax.sampling.healing import heal_tables
from toktier_jax.sampling.placement import device_tables, token_bytes
from toktier_jax.sampling.prefill import bucket, slots_needed
from toktier_jax.sampling.prompt import read_prompts
from toktier_jax.sampling.repair import Boundary, repair
from toktier_jax.sampling.request import Request, divisor
from toktier_jax.sampling.vocabulary import check_decoder, check_model, padded, vocabulary_of


@dataclass(frozen=True, eq=False)
class Prepared:
    """A request whose arguments fit together.

    rows            the boundary of each prompt
    batch           whether a list of prompts was given
    room            slots a row that generated tokens take at most
    size            tokens a row that can be generated at most: a power of two
    context_length  positions that the model has
    """

    request: Request
    stops: stops.Stops
    rows: list[Boundary]
    batch: bool
    room: int
    size: int
    context_length: int
    settings: loop.Settings


def prepare(request: Request) -> Prepared:
    """Checks what can be known without a model call.

    Raises InputError and UnsupportedError as `generate` does, and CapacityError for a prefix cache that is too short.
    """
    tok, lm, reuse = request.tok, request.lm, request.reuse
    check_model(tok, lm)
    if request.logprobs > lm.vocab_size:
        raise InputError(f"logprobs={request.logprobs}: the model has {lm.vocab_size} logits")
    strings = stops.check_stops(request.stop)
    if strings.strings:
        check_decoder(tok, "stop strings", "use stop_ids")
    contexts, batch = read_prompts(tok, request.prompt, request.boundary, request.context_start)
    for mode in {context.mode for context in contexts} - {"none"}:
        check_decoder(tok, f'boundary="{mode}"', 'use boundary="none"')
    if reuse is not None and (len(contexts) > 1 or reuse.lm is not lm):
        raise InputError("reuse: a PrefixCache holds one row of the model that it was made for")
    limit = getattr(lm, "context_length", None) or 1 << 30
    rows = [repair(request, context, limit) for context in contexts]
    most = min(request.max_tokens + max(len(row.rest) for row in rows) + 1, limit)
    room = max(1, min(most, limit - 1))
    slots_needed([row.tree for row in rows], room, reuse)
    return Prepared(request, strings, rows, batch, room, bucket(most), limit, _settings(request, strings, rows, limit))


def _settings(request: Request, strings: stops.Stops, rows: Sequence[Boundary], limit: int) -> loop.Settings:
    vocabulary, size = vocabulary_of(request.tok), request.lm.vocab_size
    known, ranks, lengths, spans = device_tables(vocabulary, size)
    ends = vocabulary.end_ids if request.stop_ids is None else tuple(request.stop_ids)
    rests = [row.rest for row in rows]
    tables: Any = heal_tables(vocabulary, rests) if any(rests) else None
    return loop.Settings(
        temperature=np.float32(divisor(request.temperature)),
        truncation=(np.int32(request.top_k), np.float32(request.top_p), np.float32(request.min_p)),
        penalty=np.float32(request.repetition_penalty),
        max_tokens=np.int32(request.max_tokens),
        context=np.int32(limit),
        stop_ids=padded(np.array(ends, np.int32), bucket(len(ends)), -1),
        known=known,
        ranks=ranks,
        lengths=lengths,
        spans=spans,
        heal=None if tables is None else (tables.ranges, tables.barred, tables.left),
        automaton=strings.automaton.table if strings.strings else None,
        token_bytes=token_bytes(vocabulary, size) if strings.strings else None,
    )
