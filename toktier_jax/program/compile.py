"""A whole TokenizerSpec -> EncodeProgram: every step's plan and tables, over one partition of the characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import Plan, QuickCheckPlan, Step
from toktier_jax.program.added import AddedStage, added_stage, added_tables, effective_tokens, special_as_text
from toktier_jax.program.bpe import compile_bpe
from toktier_jax.program.classes import Mask, partition
from toktier_jax.program.split import SplitStage, split_stages, split_tables
from toktier_jax.spec import types as spec
from toktier_jax.types import AddedTables, EncodeProgram, ProgramTables


def compile_program(of: spec.TokenizerSpec) -> EncodeProgram:
    """The program of a tokenizer, with numpy tables. Raises UnsupportedError, naming what only the reference can do."""
    if of.host_only:
        raise UnsupportedError("; ".join(of.host_only))
    stages = _stages(of)
    masks = [mask for stage in stages if _over_characters(stage) for mask in stage.masks]
    parts = partition(masks) if masks else None
    plans: list[Step] = []
    tables: list[Any] = []
    taken = 0
    for stage in stages:
        members = None
        if parts is not None and _over_characters(stage):
            members = parts.members[:, taken : taken + len(stage.masks)]
            taken += len(stage.masks)
        plans.append(stage.plan)
        tables.append(_tables(stage, members))
    model_plan, model_tables = _model(of)
    return EncodeProgram(
        ProgramTables(
            pages=None if parts is None else parts.pages,
            table=None if parts is None else parts.table,
            codes=None if parts is None else np.zeros(8, np.uint8),
            steps=tuple(tables),
            model=model_tables,
        ),
        Plan(tuple(plans), model_plan),
    )


def as_text(program: EncodeProgram) -> EncodeProgram:
    """The program for which special tokens in the text are ordinary text: other tables, the same executables."""
    steps = tuple(special_as_text(part) if isinstance(part, AddedTables) else part for part in program.tables.steps)
    return EncodeProgram(program.tables._replace(steps=steps), program.plan)


@dataclass(frozen=True, eq=False)
class CheckStage:
    """Whether a text is surely in a normal form: no character lies in the mask."""

    plan: QuickCheckPlan
    masks: tuple[Mask, ...]


def _quick_check(normalizer: spec.Unicode) -> CheckStage:
    import unicodedata

    form = normalizer.form
    flags = np.array([not unicodedata.is_normalized(form, c) or unicodedata.combining(c) != 0 or unicodedata.category(c)=="Cn" for c in map(chr, range(0x110000))])
    return CheckStage(QuickCheckPlan(form), (flags,))


_Stage = AddedStage | SplitStage | CheckStage


def _over_characters(stage: _Stage) -> bool:
    return not (isinstance(stage, SplitStage) and stage.plan.unit == "byte")


def _tables(stage: _Stage, members: np.ndarray | None) -> Any:
    if isinstance(stage, SplitStage):
        return split_tables(stage, members)
    if isinstance(stage, CheckStage):
        flags = np.zeros(256, bool)
        flags[: len(members)] = members[:, 0]
        return flags
    return added_tables(stage, np.zeros((0, 0), bool) if members is None else members)


def _stages(of: spec.TokenizerSpec) -> list[_Stage]:
    added = effective_tokens(of.added_tokens)
    stages: list[_Stage | None] = [added_stage([token for token in added if not token.normalized])]
    for normalizer in of.normalizers:
        if not isinstance(normalizer, spec.Unicode):
            raise UnsupportedError(f"normalizer {type(normalizer).__name__}")
        stages.append(_quick_check(normalizer))
    stages.append(added_stage([token for token in added if token.normalized]))
    stages += split_stages(of.pre_tokenizers, of.dialect)
    return [stage for stage in stages if stage is not None]


def _model(of: spec.TokenizerSpec) -> tuple[Any, Any]:
    if isinstance(of.model, spec.BPE | spec.BytePairRanks):
        return compile_bpe(of.model, byte_level=of.byte_level)
    raise UnsupportedError(f"model {type(of.model).__name__}")
