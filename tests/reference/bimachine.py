"""The two walks of a bimachine (toktier_jax.program.automaton) over a list of classes, one character at a time."""

from __future__ import annotations

from collections.abc import Sequence

from toktier_jax.program.automaton import Bimachine
from toktier_jax.types import ANYTHING, BEGIN, COLLAPSED, END, GAP_START, MATCH_START


def matches(machine: Bimachine, classes: Sequence[int]) -> list[tuple[int, bool]]:
    """Where each match and each gap begins, and whether it is a match."""
    rights = [END]
    for number in reversed(classes):
        rights.append(int(machine.right[rights[-1], number]))
    found, left = [], BEGIN
    for at, right in enumerate(reversed(rights[1:])):
        left = int(machine.left[left, right])
        if GAP_START <= left < machine.starts:
            found.append((at, left >= MATCH_START))
    return found


def known(machine: Bimachine, classes: Sequence[int]) -> int:
    """Up to where beginnings stay what they are, whatever follows these classes."""
    at, tail = len(classes), ANYTHING
    while at > 0 and tail != COLLAPSED:
        at -= 1
        tail = int(machine.tail[tail, classes[at]])
    return at
