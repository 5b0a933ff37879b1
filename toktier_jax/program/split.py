"""Pre-tokenizers of a spec -> split stages: a plan, the masks of its atoms and the tables of both lowerings.

Every supported type is a pattern and a rule. Prefixes and replaced characters (`add_prefix_space`, Metaspace's
replacement) are rewrites, done elsewhere before these stages see the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import Alt, Atom, End, Look, Node, Repeat, Seq, SplitPlan
from toktier_jax.program.automaton import BEGIN, END, GAP_START, MATCH_START, Bimachine, compile_bimachine
from toktier_jax.program.classes import Mask, Probe, everything, first_seen, partition, probe, single
from toktier_jax.program.pattern import parse, parse_pattern
from toktier_jax.spec.types import (
    Behavior,
    BertPreTokenizer,
    ByteLevel,
    CharDelimiterSplit,
    Dialect,
    Digits,
    FixedLength,
    Metaspace,
    PreTokenizer,
    Punctuation,
    Split,
    Whitespace,
    WhitespaceSplit,
)
from toktier_jax.types import CONT, SplitTables

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What `ByteLevel` splits by when it uses its regex."""

MAX_FIXED_LENGTH = 64

Unit = Literal["char", "byte"]


@dataclass(frozen=True, eq=False)
class SplitStage:
    """One pass over the text.

    masks    bool [0x110000] for each atom of the plan; bool [256] over raw bytes where the plan's unit is "byte"
    rows     bool [C, atoms]: the classes that `machine` walks over, by the atoms that each satisfies
    machine  tables of the walk
    """

    plan: SplitPlan
    masks: tuple[Mask, ...]
    rows: np.ndarray
    machine: Bimachine


def split_stages(
    steps: Sequence[PreTokenizer], dialect: Dialect, *, probe: Probe = probe, unit: Unit = "char"
) -> list[SplitStage]:
    """The stages of `steps`, in order. `unit` is "byte" where a normalizer mapped bytes to the byte alphabet before.

    Raises UnsupportedError, naming the step, for what has no exact stage.
    """
    stages: list[SplitStage] = []
    for step in steps:
        found = _stage(step, dialect, probe)
        if found is not None:
            stages.append(_compile(*found, unit))
        if isinstance(step, ByteLevel):
            if unit == "byte":
                raise UnsupportedError("pre-tokenizer ByteLevel after text was already mapped to the byte alphabet")
            unit = "byte"
    return stages


def split_tables(stage: SplitStage, members: np.ndarray) -> SplitTables:
    """Tables of a stage for the symbols of a program: symbol s satisfies the stage's atom k where `members[s, k]`.

    All sizes are padded to powers of two, so that tokenizers with equal plans share executables.
    """
    classes = {row.tobytes(): code for code, row in enumerate(stage.rows)}
    count, machine = len(stage.rows), stage.machine
    codes = np.full(256, count + 1, np.uint8)  # code `count` goes on in a character, `count + 1` is past the text
    codes[: len(members)] = [classes[row.tobytes()] for row in members]
    codes[CONT] = count
    width = _power_of_two(count + 2)
    right, left = _with_marks(machine, count, width)
    tail = np.zeros((_power_of_two(len(machine.tail)), width), np.uint16)
    tail[: len(machine.tail), :count] = machine.tail
    tail[: len(machine.tail), count:] = np.arange(len(machine.tail))[:, None]
    return SplitTables(_atom_words(members), codes, right, left, tail, np.int32(machine.starts))


# ---- pre-tokenizer -> pattern and rule ----

_Found = tuple[Node, tuple[Mask, ...], Behavior, bool]


def _stage(step: PreTokenizer, dialect: Dialect, probe: Probe) -> _Found | None:
    """Root, masks of its atoms, behavior, invert; None where the step does not split."""
    match step:
        case Split(pattern, behavior, invert):
            parsed = parse_pattern(pattern, dialect)
            return parsed.root, tuple(probe(expression, dialect) for expression in parsed.classes), behavior, invert
        case ByteLevel(use_regex=use_regex):
            if not use_regex:
                return None
            parsed = parse(GPT2_PATTERN, "oniguruma")
            return parsed.root, tuple(probe(part, "oniguruma") for part in parsed.classes), "Isolated", False
        case Digits(individual):
            return Atom(0), (probe("Digits", "component"),), "Isolated" if individual else "Contiguous", False
        case Punctuation(behavior):
            return Atom(0), (probe("Punctuation", "component"),), behavior, False
        case WhitespaceSplit():
            return Atom(0), (probe("WhitespaceSplit", "component"),), "Removed", False
        case CharDelimiterSplit(delimiter):
            return Atom(0), (single(delimiter),), "Removed", False
        case Metaspace(replacement, _, split):
            return (Atom(0), (single(replacement),), "MergedWithNext", False) if split else None
        case Whitespace():
            word, space = probe("Whitespace.word", "component"), probe("Whitespace.space", "component")
            root = Alt((Repeat(Atom(0), 1, None), Repeat(Atom(1), 1, None)))
            return root, (word, everything() & ~word & ~space), "Removed", True
        case BertPreTokenizer():
            mark, space = probe("Bert.punctuation", "component"), probe("Bert.space", "component")
            root = Alt((Atom(0), Repeat(Atom(1), 1, None)))
            return root, (mark & ~space, everything() & ~mark & ~space), "Removed", True
        case FixedLength(length) if 1 <= length <= MAX_FIXED_LENGTH:
            return Repeat(Atom(0), 1, length), (everything(),), "Isolated", False
        case FixedLength(length):
            raise UnsupportedError(f"pre-tokenizer FixedLength of {length} (1 to {MAX_FIXED_LENGTH})")
    raise UnsupportedError(f"pre-tokenizer {type(step).__name__}")


def _compile(root: Node, masks: tuple[Mask, ...], behavior: Behavior, invert: bool, unit: Unit) -> SplitStage:
    if unit == "byte":
        alphabet = np.array([ord(char) for char in byte_alphabet()])
        masks = tuple(mask[alphabet] for mask in masks)
    numbers: dict[bytes, int] = {}
    distinct = [numbers.setdefault(mask.tobytes(), len(numbers)) for mask in masks]
    kept = tuple(masks[distinct.index(number)] for number in range(len(numbers)))
    root = _renumber(root, distinct)
    if isinstance(root, Atom) and behavior == "Contiguous":  # adjacent matches join: a run is one match
        root, behavior, invert = Repeat(root, 1, None), "Isolated", False
    rows = partition(kept).members if unit == "char" else first_seen(np.stack(kept, axis=1))[0]
    machine = compile_bimachine(root, rows)
    always = (machine.left[BEGIN, 1:] >= MATCH_START).all() and not (machine.right == END).any()
    if always and behavior != "Contiguous" and (behavior != "Removed" or invert):  # no gaps: nothing to merge or remove
        behavior = "Isolated"
    return SplitStage(SplitPlan(root, unit, behavior, invert and behavior != "Isolated"), kept, rows, machine)


def _renumber(node: Node, numbers: Sequence[int]) -> Node:
    match node:
        case Atom(index):
            return Atom(numbers[index])
        case Seq(items):
            return Seq(tuple(_renumber(item, numbers) for item in items))
        case Alt(items):
            return Alt(tuple(_renumber(item, numbers) for item in items))
        case Repeat(item, minimum, maximum, possessive):
            return Repeat(_renumber(item, numbers), minimum, maximum, possessive)
        case Look(item, negative):
            return Look(_renumber(item, numbers), negative)
        case End(newline):
            return End(Atom(numbers[newline.index]) if newline else None)


def byte_alphabet() -> str:
    """The character that `ByteLevel` maps each byte to (GPT-2's `bytes_to_unicode`)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return "".join(chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256))


# ---- tables ----


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _atom_words(members: np.ndarray) -> np.ndarray:
    """uint32 [256, W]: bit k of word k // 32 of row s says that symbol s satisfies atom k."""
    words = -(-members.shape[1] // 32)
    bits = np.zeros((256, words * 32), np.uint8)
    bits[: len(members), : members.shape[1]] = members
    return np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32)


def _with_marks(machine: Bimachine, count: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The machine's tables with two marks in the right state, so that a walk is nothing but table look-ups.

    Right states are r (of the machine's R states); R + r, a byte that continues a character; 2 R + r, a segment starts
    at this byte, so that the byte before sees END; 3 R, both. `right` has twice `width` columns, the second half for
    bytes at which a segment starts.
    """
    states, classes = machine.right.shape
    right = np.zeros((_power_of_two(3 * states + 1), 2 * width), np.int64)
    left = np.zeros((_power_of_two(len(machine.left)), len(right)), np.int64)
    seen = np.concatenate([np.arange(states), np.arange(states), np.full(states + 1, END)])  # by the byte before
    for start, columns in enumerate((right[: len(seen), :width], right[: len(seen), width:])):
        columns[:, :classes] = machine.right[seen] + 2 * states * start
        columns[:, count] = 3 * states if start else seen + states
        columns[:, count + 1] = END + states  # nothing begins past the text
    rows = slice(len(machine.left))
    left[rows, :states] = machine.left
    left[rows, states : 2 * states] = machine.inside[:, None]
    left[rows, 2 * states : 3 * states] = machine.left[BEGIN]
    left[rows, 3 * states] = GAP_START
    return _narrow(right), _narrow(left)


def _narrow(table: np.ndarray) -> np.ndarray:
    """uint8 where the states fit, else uint16."""
    return table.astype(np.uint8 if table.max() < 256 else np.uint16)
