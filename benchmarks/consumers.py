"""What takes most of a figure that is missed, as profiles found it. The pages print it beside the miss."""

from __future__ import annotations

from collections.abc import Mapping

CONSUMERS: Mapping[str, str] = {
    "temp_a_byte": "the rows of symbols to be merged (merge_arrays.py), 15 of the bytes",
    "predicted_ms": "starting kernels, at 3 us each, is most of it",
    "a million of": "merging the one long piece, six sevenths of the encode; cutting is the rest",
    "compile seconds": "XLA's own passes, over three quarters; of these the executable that makes tokens over half",
    "Qwen3 from nothing": "asking the reference about every code point (classes, normal form), nearly half",
    " / ours at": "encoding the window, over half of an append",
    "slowest of": "encoding the window, over half of an append at every size; nothing in it grows with the text",
    "update at 1 M": "comparing old and new text; one that is not ASCII has its chunks copied narrow, about 0.5 ms",
    "sessions / stateless": "the Python of an append, under one interpreter lock",
    "mean of exact - none": "the probability of tokens that cross the prompt's end: it is log p(b|P), within 0.01",
}
"""By a part of the figure's name."""
UNKNOWN = "not profiled"


def verdict(figure: str, missed: bool) -> str:
    """Nothing where a figure is met; else that it is missed, and its largest consumer."""
    return f"MISSED: {largest(figure)}" if missed else ""


def largest(figure: str) -> str:
    return next((text for part, text in CONSUMERS.items() if part in figure), UNKNOWN)
