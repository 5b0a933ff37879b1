"""What appends are held to."""

from __future__ import annotations

from typing import Any

from benchmarks import append


def row(context: int, milliseconds: float, engine: str = "append") -> dict[str, Any]:
    return {"context": context, "engine": engine, "delta": append.APPEND, "p50_ms": milliseconds}


def test_the_slowest_size_is_held_to_the_limit() -> None:
    """Not the longest alone."""
    times = {100_000: 0.6, 500_000: 0.6, 1_000_000: 0.7, 2_000_000: 0.9, 4_400_000: 0.75, 8_000_000: 0.65}
    found = append.figures([row(context, time) for context, time in times.items()])
    assert [(each["figure"], round(each["value"], 3), each["ok"]) for each in found] == [
        ("ours, slowest of 6 sizes / at 100 K", 1.5, "MISSED")
    ]
    times[2_000_000] = 0.7
    assert append.figures([row(context, time) for context, time in times.items()])[0]["ok"] == "ok"


def test_what_was_not_measured_is_no_figure() -> None:
    assert append.figures([row(500_000, 0.6), row(1_000_000, 0.9)]) == []
    assert append.figures([row(100_000, 0.6)]) == []
    assert append.figures([]) == []
