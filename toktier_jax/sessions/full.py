"""Records made by one encode of the whole text: of a new text, and by the reference where ids were found wrong."""

from __future__ import annotations

from toktier_jax.sessions.engine import Engine
from toktier_jax.sessions.record import Record, flagged


def encode_record(engine: Engine, text: str) -> tuple[Record, str]:
    """The record of a new text, and by what it was encoded."""
    record = Record(leading=engine.info.leading)
    if not text:
        return record, "empty"
    window = engine.encode_full(text.encode())
    record.text.append(text)
    record.tokens.splice(0, 0, flagged(window, 0), 0)
    record.resume = window.decided
    return record, f"by the {window.where}"


def encode_by_reference(engine: Engine, record: Record, reason: str) -> Record:
    """The record as the reference makes it, and for the reason given never otherwise from now on."""
    text = str(record.text)
    fresh = Record(record.leading, revision=record.revision + 1, distrust=reason)
    fresh.text = record.text
    if text:
        fresh.tokens.splice(0, 0, flagged(engine.encode_reference(text.encode()), 0), 0)
    return fresh
