"""Variants of a program: without what an executable does not read, so that it is shared; special tokens as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from toktier_jax.ops.scan import Lowering
from toktier_jax.plan import Plan, SplitPlan
from toktier_jax.types import SPECIAL, AddedTables, EncodeProgram, RewriteTables, SplitTables


def for_lowering(program: EncodeProgram, lowering: Lowering) -> EncodeProgram:
    """The program without the tables that only the other lowering reads: their shapes would tell executables apart."""
    unused = {"functions": None} if lowering == "walk" else {"walk": None}

    def stripped(part: Any) -> Any:
        if isinstance(part, RewriteTables) and part.split is not None:
            return part._replace(split=stripped(part.split))
        return part._replace(**unused) if isinstance(part, SplitTables) else part

    return EncodeProgram(program.tables._replace(steps=tuple(map(stripped, program.tables.steps))), program.plan)


def without_model(program: EncodeProgram) -> EncodeProgram:
    """The steps before the model alone: tokenizers that differ in their models share these executables.

    Where no step cuts a text, the model says where it may be cut, and stays.
    """
    if not any(isinstance(step, SplitPlan) for step in program.plan.steps):
        return program
    return EncodeProgram(program.tables._replace(model=None), Plan(program.plan.steps, None))


def as_text(program: EncodeProgram) -> EncodeProgram:
    """The program for which special tokens in the text are ordinary text: other tables, the same executables."""
    steps = tuple(special_as_text(part) if isinstance(part, AddedTables) else part for part in program.tables.steps)
    return EncodeProgram(program.tables._replace(steps=steps), program.plan)


def special_as_text(tables: AddedTables) -> AddedTables:
    """The tables with which special tokens in the text are ordinary text (the reference's `encode_special_tokens`).

    A special token's literal still uses up its text: no other token is found in it. Shapes stay: nothing is compiled.
    """
    return tables._replace(rejected=(np.asarray(tables.tokens)[2] & SPECIAL) != 0)
