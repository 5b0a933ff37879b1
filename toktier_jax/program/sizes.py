"""Table sizes in a few steps, so that most tokenizers have tables of equal shapes and share executables."""

from __future__ import annotations


def stepped(size: int, least: int = 1, factor: int = 4) -> int:
    """The first of least, least * factor, least * factor**2, … that is at least `size`."""
    step = least
    while step < size:
        step *= factor
    return step
