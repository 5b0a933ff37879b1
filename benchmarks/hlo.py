"""What an optimized XLA module would launch: kernels, loops, bytes moved and look-ups, read from its text.

A kernel is a fusion or another instruction that XLA's GPU backend runs by itself; views of buffers, tuples and
constants are none. Loops are counted for one round. Bytes are an upper bound: what is looked up in a large table counts
as a whole sector, although neighbours often share it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_BITS = {"pred": 8, "token": 0, "opaque": 0}
_SHAPE = re.compile(r"\b(pred|token|opaque|[a-z]+\d+\w*)\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.~-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.~-]+) = (.*)$")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_VIEWS = frozenset(("bitcast", "reshape", "get-tuple-element"))
_NO_KERNEL = _VIEWS | frozenset(
    (
        "parameter",
        "constant",
        "tuple",
        "after-all",
        "async-start",
        "async-done",
        "copy-start",
        "copy-done",
        "partition-id",
    )
)
_SMALL_TABLE = 128 << 10
"""Tables up to here stay in a multiprocessor's own cache (256 KiB on H100 and H200)."""
_SECTOR = 32
"""Bytes that memory moves at least, for one element too."""


@dataclass
class Cost:
    """Launches and what they move.

    kernels  by opcode; origins: by the source file that they come from
    traffic  bytes read and written; lookups: in small tables
    """

    kernels: Counter[str] = field(default_factory=Counter)
    origins: Counter[str] = field(default_factory=Counter)
    traffic: float = 0.0
    lookups: float = 0.0

    @property
    def launches(self) -> int:
        return self.kernels.total()

    def __iadd__(self, other: Cost) -> Cost:
        self.kernels.update(other.kernels)
        self.origins.update(other.origins)
        self.traffic += other.traffic
        self.lookups += other.lookups
        return self


@dataclass
class Loop:
    """A `while`: one round of it, its condition included, how many rounds where the module knows, and loops inside."""

    name: str
    round: Cost
    trips: int | None
    loops: list[Loop]


class Module(NamedTuple):
    """What is launched once, and the loops."""

    straight: Cost
    loops: list[Loop]


@dataclass(frozen=True)
class _Instruction:
    name: str
    shape: str
    opcode: str
    arguments: str
    attributes: str
    root: bool

    @property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.~-]+)", self.arguments)


_Computation = dict[str, _Instruction]


class _Text(NamedTuple):
    """A module by computation; the source file of each stack frame."""

    computations: dict[str, _Computation]
    files: dict[str, str]


def read(text: str) -> Module:
    """The costs of a module, from `compiled.as_text()`."""
    computations: dict[str, _Computation] = {}
    entry, current = "", dict[str, _Instruction]()
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            current = computations.setdefault(head[2], {})
            entry = head[2] if head[1] else entry
        elif found := _INSTRUCTION.match(line):
            current[found[2]] = _instruction(found[2], found[3], bool(found[1]))
    return _cost(_Text(computations, _files(text)), entry)


def _files(text: str) -> dict[str, str]:
    """The name of the source file of each stack frame, from the tables at the head of the module."""
    names = {number: Path(name).name for number, name in re.findall(r'^(\d+) "([^"]*\.py)"$', text, re.MULTILINE)}
    places = dict(re.findall(r"^(\d+) \{file_name_id=(\d+) ", text, re.MULTILINE))
    frames = re.findall(r"^(\d+) \{file_location_id=(\d+) ", text, re.MULTILINE)
    return {frame: names.get(places.get(place, ""), "") for frame, place in frames}


def _instruction(name: str, text: str, root: bool) -> _Instruction:
    split = _closing(text[1:]) + 2 if text.startswith("(") else text.index(" ")
    opcode, _, rest = text[split:].lstrip().partition("(")
    stop = _closing(rest)
    return _Instruction(name, text[:split], opcode, rest[:stop], rest[stop:], root)


def _closing(text: str) -> int:
    """Where the bracket closes that is open before `text`."""
    depth = 1
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if not depth:
            return at
    return len(text)


def _cost(module: _Text, name: str) -> Module:
    cost, loops = Cost(), list[Loop]()
    for instruction in module.computations[name].values():
        match instruction.opcode:
            case "while":
                body = _cost(module, _called(instruction, "body"))
                body.straight.__iadd__(_cost(module, _called(instruction, "condition")).straight)
                trips = _TRIPS.search(instruction.attributes)
                loops.append(Loop(_label(instruction), body.straight, int(trips[1]) if trips else None, body.loops))
            case "conditional":
                dearest = max(
                    (_cost(module, branch) for branch in _branches(instruction)),
                    key=lambda branch: branch.straight.launches,
                )
                cost += dearest.straight
                loops += dearest.loops
            case "call":
                inner = _cost(module, _called(instruction, "to_apply"))
                cost += inner.straight
                loops += inner.loops
            case opcode if opcode not in _NO_KERNEL:
                cost += _kernel(module, module.computations[name], instruction)
    return Module(cost, loops)


def _kernel(module: _Text, outside: _Computation, instruction: _Instruction) -> Cost:
    """One launch. Results are written and operands read whole, but for what is only sliced, updated or looked up."""
    if "calls=" in instruction.attributes:
        body = module.computations[_called(instruction, "calls")]
        parameters = {i.name: int(i.arguments) for i in body.values() if i.opcode == "parameter"}
    else:  # an instruction that stands alone is its own body
        body = {name: outside[name] for name in instruction.operands if name in outside} | {
            instruction.name: instruction
        }
        parameters = {name: at for at, name in enumerate(instruction.operands)}
    frame = re.search(r"stack_frame_id=(\d+)", instruction.attributes)
    origin = module.files.get(frame[1], "") if frame else ""
    cost = Cost(Counter([instruction.opcode]), Counter([origin or "the compiler"]))
    for name in parameters:
        if name in body:
            cost.traffic += _read(body, name, body[name].shape)
    inside = [i for i in body.values() if i.name not in parameters]
    for member in inside:
        if member.opcode == "gather":
            taken = math.prod(_numbers(member.attributes, "slice_sizes"))
            count = _elements(member.shape) // max(taken, 1)
            table = body[member.operands[0]].shape
            if _bytes(table) <= _SMALL_TABLE:
                cost.lookups += count
            else:
                cost.traffic += count * max(taken * _bytes(table) / max(_elements(table), 1), _SECTOR)
    roots = [i for i in inside if i.root or i is instruction]
    cost.traffic += sum(_written(body, root) for root in roots)
    return cost


def _read(body: _Computation, name: str, shape: str) -> float:
    """Bytes that a kernel reads of one operand, look-ups apart."""
    total = 0.0
    for user in body.values():
        if user.name == name or name not in user.operands:
            continue
        first = user.operands[0] == name
        if user.opcode in ("slice", "dynamic-slice") and first:
            total += _bytes(user.shape)
        elif user.opcode in _VIEWS:
            total += _read(body, user.name, user.shape)
        elif not (user.opcode in ("gather", "dynamic-update-slice", "scatter") and first):
            return float(_bytes(shape))
    return min(total, _bytes(shape))


def _written(body: _Computation, root: _Instruction) -> float:
    """Bytes that a kernel writes; updates are done in place."""
    match root.opcode:
        case "tuple":
            return sum(_written(body, body[name]) for name in root.operands)
        case "dynamic-update-slice":
            return _bytes(body[root.operands[1]].shape) if root.operands[1] in body else _bytes(root.shape)
        case "scatter":
            count = (len(root.operands) - 1) // 2
            return sum(_elements(body[name].shape) * _SECTOR for name in root.operands[-count:] if name in body)
        case opcode if opcode in _VIEWS and root.operands[0] in body:
            return _written(body, body[root.operands[0]])
    return _bytes(root.shape)


def _called(instruction: _Instruction, key: str) -> str:
    found = re.search(rf"\b{key}=%?([\w.~-]+)", instruction.attributes)
    assert found, f"{instruction.opcode} without {key}"
    return found[1]


def _branches(instruction: _Instruction) -> Iterator[str]:
    listed = re.search(r"branch_computations=\{([^}]*)\}", instruction.attributes)
    if listed:
        yield from re.findall(r"%?([\w.~-]+)", listed[1])
    else:
        yield _called(instruction, "true_computation")
        yield _called(instruction, "false_computation")


def _label(instruction: _Instruction) -> str:
    """The name that JAX gave an instruction, without the jit around it."""
    found = re.search(r'op_name="(?:jit\([^)]*\)/)*([^"]*)"', instruction.attributes)
    return found[1] if found else instruction.name


def _numbers(attributes: str, key: str) -> list[int]:
    found = re.search(rf"{key}=\{{([\d,]*)\}}", attributes)
    return [int(number) for number in found[1].split(",") if number] if found else []


def _elements(shape: str) -> int:
    return sum(math.prod(int(size) for size in sizes.split(",") if size) for _, sizes in _SHAPE.findall(shape))


def _bytes(shape: str) -> int:
    return sum(_bits(kind) * _elements(f"{kind}[{sizes}]") // 8 for kind, sizes in _SHAPE.findall(shape))


def _bits(kind: str) -> int:
    if kind in _BITS:
        return _BITS[kind]
    return int(re.findall(r"\d+", kind)[0])
