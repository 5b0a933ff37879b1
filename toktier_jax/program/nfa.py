"""A pattern as a position automaton with ordered, guarded options. No tables, no text.

Every occurrence of a class in the pattern (loops unrolled) is a node of its own: it consumes one character of its class
and then offers an ordered list of options, each a guard and a target (another node, or ACCEPT). Backtracking finds the
first option, by order, from which the rest can succeed: Frisch and Cardelli, Greedy Regular Expression Matching (ICALP
2004). Look-aheads, `$` and possessive loops of one class are guards: conditions on what stands next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import Alt, Atom, End, Look, Node, Repeat, Seq

ACCEPT = -1
MAX_NODES = 2048

Guard = tuple[tuple[int, bool], ...]
"""Condition indices and the truth that each must have, sorted."""

Option = tuple[Guard, int]

_Pending = list["tuple[Guard, int | _Pending]"]
"""Options whose targets may be lists that are still being filled: loops refer to their own entry."""


@dataclass(frozen=True)
class Condition:
    """What a guard asks of a position.

    "class": the next character has atom `index`; "end": the segment ends; "line": it ends or the next character has
    atom `index`; "look": a match of look-ahead `index` begins here.
    """

    kind: Literal["class", "end", "line", "look"]
    index: int = 0


@dataclass(frozen=True)
class Nfa:
    """`atoms[n]` is what node n consumes, `follow[n]` its options after it, `looks[j]` those that begin look-ahead j.

    An inner look-ahead comes before the one it is in, in `looks` and in `conditions`.
    """

    atoms: tuple[int, ...]
    follow: tuple[tuple[Option, ...], ...]
    start: tuple[Option, ...]
    looks: tuple[tuple[Option, ...], ...]
    conditions: tuple[Condition, ...]


def build(root: Node) -> Nfa:
    """The automaton of a pattern. Raises UnsupportedError beyond 2048 nodes."""
    builder = _Builder()
    start = builder.link(root, [((), ACCEPT)])
    return Nfa(
        tuple(builder.atoms),
        tuple(_flatten(options) for options in builder.follow),
        _flatten(start),
        tuple(_flatten(options) for options in builder.looks),
        tuple(builder.conditions),
    )


class _Builder:
    def __init__(self) -> None:
        self.atoms: list[int] = []
        self.follow: list[_Pending] = []
        self.looks: list[_Pending] = []
        self.conditions: list[Condition] = []

    def link(self, node: Node, after: _Pending) -> _Pending:
        """Adds the nodes of `node` when `after` follows it; returns the options that begin it."""
        match node:
            case Atom(index):
                if len(self.atoms) == MAX_NODES:
                    raise UnsupportedError(f"a pattern of more than {MAX_NODES} characters, loops unrolled")
                self.atoms.append(index)
                self.follow.append(after)
                return [((), len(self.atoms) - 1)]
            case Seq(items):
                options: _Pending = [((), after)]  # by reference: `after` may still be growing
                for item in reversed(items):
                    options = self.link(item, options)
                return options
            case Alt(items):
                return [option for item in items for option in self.link(item, after)]
            case Repeat(item, minimum, maximum, possessive):
                return self.repeat(item, minimum, maximum, self.leave(item, after) if possessive else after, after)
            case Look(item, negative):
                return [(self.guard(self.look(item), not negative), after)]
            case End(newline):
                condition = Condition("end") if newline is None else Condition("line", newline.index)
                return [(self.guard(condition, True), after)]

    def repeat(self, item: Node, minimum: int, maximum: int | None, leave: _Pending, full: _Pending) -> _Pending:
        """Greedy: one more first, then `leave`. After `maximum` times `full` follows."""
        if maximum is None:
            again: _Pending = []
            again += [*self.link(item, again), ((), leave)]
            # The loop's own nodes serve its last obligatory turn: its entry without the way out.
            options = again[:-1] if minimum else again
            missing = max(minimum - 1, 0)
        else:
            options = full
            for _ in range(maximum - minimum):
                options = [*self.link(item, options), ((), leave)]
            missing = minimum
        for _ in range(missing):
            options = self.link(item, options)
        return options

    def leave(self, item: Node, after: _Pending) -> _Pending:
        """A possessive loop is left only where it cannot go on."""
        assert isinstance(item, Atom), "the parser refuses possessive loops beyond one class"
        return [(self.guard(Condition("class", item.index), False), after)]

    def look(self, item: Node) -> Condition:
        if isinstance(item, Atom):
            return Condition("class", item.index)
        self.looks.append(self.link(item, [((), ACCEPT)]))
        return Condition("look", len(self.looks) - 1)

    def guard(self, condition: Condition, truth: bool) -> Guard:
        if condition not in self.conditions:
            self.conditions.append(condition)
        return ((self.conditions.index(condition), truth),)


def _flatten(options: _Pending) -> tuple[Option, ...]:
    """Resolves nested lists, joins guards, drops options that contradict themselves or repeat an earlier one."""
    flat: list[Option] = []

    def visit(pending: _Pending, above: frozenset[tuple[int, bool]]) -> None:
        for guard, target in pending:
            joined = above | frozenset(guard)
            if any((condition, not truth) in joined for condition, truth in joined):
                continue
            if isinstance(target, list):
                visit(target, joined)
            elif not any(goal == target and set(earlier) <= joined for earlier, goal in flat):
                flat.append((tuple(sorted(joined)), target))

    visit(options, frozenset())
    return tuple(flat)
