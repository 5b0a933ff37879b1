"""Pre-tokenizers of a spec -> split stages: a plan, the masks of its atoms and a bimachine over their classes.

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
from toktier_jax.program.automaton import Bimachine, compile_bimachine
from toktier_jax.program.classes import Mask, Probe, everything, first_seen, partition, probe, single
from toktier_jax.program.functions import function_tables
from toktier_jax.program.pattern import parse, parse_pattern
from toktier_jax.program.walk import walk_tables
from toktier_jax.spec.byte_alphabet import ALPHABET
from toktier_jax.spec.types import (
    GPT2_PATTERN,
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
from toktier_jax.types import BEGIN, END, MATCH_START, SplitTables

MAX_FIXED_LENGTH = 64

Unit = Literal["char", "byte"]


@dataclass(frozen=True, eq=False)
class SplitStage:
    """One pass over the text.

    plan     unit and rule
    masks    bool [0x110000] for each distinct atom of the pattern; bool [256] over bytes where the unit is "byte"
    rows     bool [C, atoms]: the classes that `machine` walks over, by the atoms that each satisfies
    machine  cuts a text of such classes; `split_tables` makes the lowerings' tables of it
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
        found = pattern_of(step, dialect, probe=probe)
        if found is not None:
            stages.append(_compile(*found, unit))
        if isinstance(step, ByteLevel):
            if unit == "byte":
                raise UnsupportedError("pre-tokenizer ByteLevel after text was already mapped to the byte alphabet")
            unit = "byte"
    return stages


def split_tables(stage: SplitStage, members: np.ndarray | None) -> SplitTables:
    """Tables of a stage for the symbols of a program: symbol s satisfies the stage's atom k where `members[s, k]`.

    A stage whose unit is "byte" has symbols of its own and takes no `members`.
    """
    symbols = np.zeros(256, np.uint8)
    if stage.plan.unit == "byte":
        members, of_byte = first_seen(np.stack(stage.masks, axis=1))
        symbols = of_byte.astype(np.uint8)
    assert members is not None, "a stage over characters is compiled for the classes of its program"
    classes = {row.tobytes(): code for code, row in enumerate(stage.rows)}
    codes = np.array([classes[row.tobytes()] for row in members])
    return SplitTables(walk_tables(stage.machine, codes), function_tables(stage.machine, codes), symbols)


# ---- pre-tokenizer -> pattern and rule ----

Found = tuple[Node, tuple[Mask, ...], Behavior, bool]
"""A pattern, the masks of its atoms (bool [0x110000]), behavior and invert."""


def pattern_of(step: PreTokenizer, dialect: Dialect, *, probe: Probe = probe) -> Found | None:
    """What a step splits by; None where it does not split."""
    found = _stage(step, dialect, probe)
    if found and isinstance(found[0], Atom) and found[2] == "Contiguous":  # adjacent matches join: a run is one match
        return Repeat(found[0], 1, None), found[1], "Isolated", False
    return found


def _stage(step: PreTokenizer, dialect: Dialect, probe: Probe) -> Found | None:
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
        alphabet = np.array([ord(char) for char in ALPHABET])
        masks = tuple(mask[alphabet] for mask in masks)
    numbers: dict[bytes, int] = {}
    distinct = [numbers.setdefault(mask.tobytes(), len(numbers)) for mask in masks]
    kept = tuple(masks[distinct.index(number)] for number in range(len(numbers)))
    root = _renumber(root, distinct)
    rows = partition(kept).members if unit == "char" else first_seen(np.stack(kept, axis=1))[0]
    machine = compile_bimachine(root, rows)
    always = (machine.left[BEGIN, 1:] >= MATCH_START).all() and not (machine.right == END).any()
    if always and behavior != "Contiguous" and (behavior != "Removed" or invert):  # no gaps: nothing to merge or remove
        behavior = "Isolated"
    return SplitStage(SplitPlan(unit, behavior, invert and behavior != "Isolated"), kept, rows, machine)


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
