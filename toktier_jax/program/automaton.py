"""A pattern as a bimachine: two deterministic tables whose walks cut any text as backtracking would.

The walk from right to left (subset construction) knows at each position which nodes can still lead to a match and which
conditions hold there. The walk from left to right takes at each position the first option that the other one allows:
leftmost-first matching in two passes (Frisch and Cardelli, ICALP 2004), a bimachine after Schuetzenberger (1961).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import Node
from toktier_jax.program.nfa import ACCEPT, Nfa, Option, build
from toktier_jax.types import ANYTHING, BEGIN, COLLAPSED, GAP, GAP_START, IN_MATCH, MATCH_START

MAX_STATES = 4096


@dataclass(frozen=True, eq=False)
class Bimachine:
    """Transitions over the classes of one pattern. States below END, BEGIN, COLLAPSED and ANYTHING are numbered above.

    right   int [R, C]  right[state at i + 1, class at i] = state at i
    left    int [L, R]  left[state after i - 1, right state at i] = state after i; a piece begins at i if that is in
                        [GAP_START, starts), and it is a match if that is in [MATCH_START, starts)
    starts  int
    inside  int [L]     the left state after a byte that continues a character
    tail    int [T, C]  as `right`, over the sets of right states that are possible when the text may go on
    """

    right: np.ndarray
    left: np.ndarray
    starts: int
    inside: np.ndarray
    tail: np.ndarray


def compile_bimachine(root: Node, members: np.ndarray) -> Bimachine:
    """Tables of the pattern `root` over classes, of which class c satisfies atom k where `members[c, k]`.

    Raises UnsupportedError beyond 4096 states on either side.
    """
    nfa = build(root)
    right, states = _right_table(nfa, members)
    left, outputs, inside = _left_table(nfa, states)
    left_block = _minimize(left, outputs)
    order = _first_of_each(left_block)
    left, outputs, inside = left_block[left[order]], outputs[order], left_block[inside[order]]
    right_block = _minimize(right, [column.tobytes() for column in left.T])
    order = _first_of_each(right_block)
    right, left = right_block[right[order]], left[:, order]
    return Bimachine(right, left, int((outputs <= MATCH_START).sum()), inside, _tail_table(right))


# ---- right to left ----

_RightState = tuple[int, tuple[bool, ...]]
"""Alive nodes (a bit each: their character stands here and a match can follow), and the truth of each condition."""


def _right_table(nfa: Nfa, members: np.ndarray) -> tuple[np.ndarray, list[_RightState]]:
    of_class = [sum(1 << node for node, atom in enumerate(nfa.atoms) if row[atom]) for row in members]
    states: dict[_RightState, int] = {}
    rows: list[list[int]] = []

    def number(alive: int, row: np.ndarray | None) -> int:
        state = (alive, _conditions(nfa, alive, row))
        return states.setdefault(state, len(states))

    number(0, None)
    while len(rows) < len(states):
        state = list(states)[len(rows)]
        ready = sum(1 << node for node, options in enumerate(nfa.follow) if _choose(options, state) is not None)
        rows.append([number(ready & here, row) for here, row in zip(of_class, members, strict=True)])
        if len(states) > MAX_STATES:
            raise UnsupportedError(f"a pattern that needs more than {MAX_STATES} states")
    return np.array(rows), list(states)


def _conditions(nfa: Nfa, alive: int, row: np.ndarray | None) -> tuple[bool, ...]:
    """The truth of each condition where the character has the atoms `row` (None: the segment ends)."""
    truth: list[bool] = []
    for condition in nfa.conditions:
        match condition.kind:
            case "class":
                truth.append(row is not None and bool(row[condition.index]))
            case "end":
                truth.append(row is None)
            case "line":
                truth.append(row is None or bool(row[condition.index]))
            case "look":
                truth.append(_choose(nfa.looks[condition.index], (alive, tuple(truth))) is not None)
    return tuple(truth)


def _choose(options: Sequence[Option], state: _RightState) -> int | None:
    """The target of the first option that can succeed."""
    alive, truth = state
    for guard, target in options:
        if all(truth[condition] == value for condition, value in guard) and (target == ACCEPT or alive >> target & 1):
            return target
    return None


# ---- left to right ----


def _left_table(nfa: Nfa, states: list[_RightState]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows by left state; the kind of each: BEGIN, GAP, GAP_START, MATCH_START or IN_MATCH; the state inside it."""
    begun = [_choose(nfa.start, state) for state in states]
    left: dict[tuple[int, int], int] = {(kind, 0): kind for kind in (BEGIN, GAP, GAP_START)}  # (kind, node): number
    rows: list[list[int]] = []
    inside: list[int] = []
    while len(rows) < len(left):
        kind, node = list(left)[len(rows)]
        within = (IN_MATCH if kind >= MATCH_START else GAP, node)
        inside.append(left.setdefault(within, len(left)))
        row: list[int] = []
        for state, first in zip(states, begun, strict=True):
            target = _choose(nfa.follow[node], state) if kind >= MATCH_START else ACCEPT
            if target is not None and target != ACCEPT:
                after = (IN_MATCH, target)
            elif first is not None:
                after = (MATCH_START, first)
            else:  # nothing matches here: a gap goes on, or begins after a match or with the segment
                after = (GAP if kind in (GAP, GAP_START) else GAP_START, 0)
            row.append(left.setdefault(after, len(left)))
        rows.append(row)
        if len(left) > MAX_STATES:
            raise UnsupportedError(f"a pattern that needs more than {MAX_STATES} states")
    kinds = np.array([kind for kind, _ in left])
    order = np.argsort(kinds, kind="stable")
    number = np.argsort(order)
    return number[np.array(rows)[order]], kinds[order], number[np.array(inside)[order]]


# ---- both ----


def _minimize(table: np.ndarray, outputs: Iterable[Hashable]) -> np.ndarray:
    """Moore's algorithm: the block of each row of `table` (transitions among rows, whatever `table` they index).

    Blocks are numbered by their first state, so that an order of states by output stays one.
    """
    numbers: dict[Hashable, int] = {}
    block = np.array([numbers.setdefault(output, len(numbers)) for output in outputs])
    while True:
        seen: dict[bytes, int] = {}
        signatures = np.concatenate([block[:, None], block[table]], axis=1)
        refined = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in signatures])
        if refined.max() == block.max():
            return refined
        block = refined


def _first_of_each(block: np.ndarray) -> np.ndarray:
    return np.unique(block, return_index=True)[1]


def _tail_table(right: np.ndarray) -> np.ndarray:
    """Subset construction over `right`, from the set of all its states; every set of one is COLLAPSED."""
    sets: dict[frozenset[int], int] = {frozenset(): COLLAPSED, frozenset(range(len(right))): ANYTHING}
    if len(right) == 1:
        return np.zeros((2, right.shape[1]), int)
    rows: list[list[int]] = []
    while len(rows) < len(sets):
        members = list(list(sets)[len(rows)])
        reached = [frozenset(column) for column in right[members].T.tolist()]
        rows.append([COLLAPSED if len(set_) <= 1 else sets.setdefault(set_, len(sets)) for set_ in reached])
        if len(sets) > MAX_STATES:
            raise UnsupportedError(f"a pattern whose end needs more than {MAX_STATES} states")
    return np.array(rows)
