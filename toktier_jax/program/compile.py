"""A whole TokenizerSpec -> EncodeProgram: every step's plan and tables, over one partition of the characters."""

from __future__ import annotations

from typing import Any

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import ModelPlan, Plan, Step
from toktier_jax.program.added import AddedStage, added_stage, added_tables, effective_tokens
from toktier_jax.program.bpe import compile_bpe
from toktier_jax.program.classes import Partition, partition
from toktier_jax.program.rewrite import (
    QuickCheckStage,
    RewriteStage,
    codes_of,
    literals_in_text,
    normalizer_stages,
    prefix_stages,
    quick_check_flags,
    rewrite_tables,
)
from toktier_jax.program.split import SplitStage, Unit, split_stages, split_tables
from toktier_jax.program.wordpiece import compile_words
from toktier_jax.spec import types as spec
from toktier_jax.types import EncodeProgram, ProgramTables

_Stage = AddedStage | QuickCheckStage | RewriteStage | SplitStage


def compile_program(of: spec.TokenizerSpec) -> EncodeProgram:
    """The program of a tokenizer, with numpy tables. Raises UnsupportedError, naming what only the reference can do."""
    if of.host_only:
        raise UnsupportedError("; ".join(of.host_only))
    codes = codes_of(of)
    stages = _stages(of)
    masks = [mask for stage in stages if _over_characters(stage) for mask in stage.masks]
    parts = partition(masks) if masks else None
    plans: list[Step] = []
    tables: list[Any] = []
    taken = 0
    for stage in stages:
        members = np.zeros((0, 0), bool)
        if parts is not None and _over_characters(stage):
            members = parts.members[:, taken : taken + len(stage.masks)]
            taken += len(stage.masks)
        plans.append(stage.plan)
        tables.append(_tables(stage, members))
    model_plan, model_tables = _model(of, codes)
    return EncodeProgram(
        ProgramTables(
            pages=None if parts is None else parts.pages,
            table=None if parts is None else parts.table,
            codes=None if parts is None else _code_classes(parts, codes),
            steps=tuple(tables),
            model=model_tables,
        ),
        Plan(tuple(plans), model_plan),
    )


def _stages(of: spec.TokenizerSpec) -> list[_Stage]:
    """All stages before the model, in the order of the reference."""
    added = effective_tokens(of.added_tokens)
    unit: Unit = "byte" if any(isinstance(step, spec.ByteLevelNormalizer) for step in of.normalizers) else "char"
    looking = [each for each in added if each.normalized and (each.lstrip or each.rstrip or each.single_word)]
    if unit == "byte" and looking:  # for the reference a space is a letter by then, here it is a space
        name = looking[0].content
        raise UnsupportedError(f"added token {name!r} looks at its neighbours after a ByteLevel normalizer")
    raw = added_stage([token for token in added if not token.normalized])
    normalized = added_stage([token for token in added if token.normalized], literals_in_text(of))
    stages: list[_Stage | None] = [raw, *normalizer_stages(of), normalized]
    for index, step in enumerate(of.pre_tokenizers):
        stages += prefix_stages(of, index)
        stages += split_stages([step], of.dialect, unit=unit)
        if isinstance(step, spec.ByteLevel):
            unit = "byte"
    return [stage for stage in stages if stage is not None]


def _over_characters(stage: _Stage) -> bool:
    """Whether a stage's masks are over characters; those of a byte-unit split are over bytes."""
    return not (isinstance(stage, SplitStage) and stage.plan.unit == "byte")


def _tables(stage: _Stage, members: np.ndarray) -> Any:
    match stage:
        case AddedStage():
            return added_tables(stage, members)
        case QuickCheckStage():
            return quick_check_flags(stage, members)
        case RewriteStage():
            return rewrite_tables(stage, members)
        case SplitStage():
            return split_tables(stage, members if _over_characters(stage) else None)


def _code_classes(parts: Partition, codes: tuple[str, ...]) -> np.ndarray:
    """Classes of the characters that internal codes stand for: uint8 [8]."""
    classes = np.zeros(8, np.uint8)
    classes[: len(codes)] = parts.lookup(np.array([ord(code) for code in codes], np.int64))
    return classes


def _model(of: spec.TokenizerSpec, codes: tuple[str, ...]) -> tuple[ModelPlan, Any]:
    if isinstance(of.model, spec.BPE | spec.BytePairRanks):
        return compile_bpe(of.model, byte_level=of.byte_level, codes=codes)
    if isinstance(of.model, spec.WordPiece | spec.WordLevel):
        return compile_words(of.model, byte_level=of.byte_level, codes=codes)
    raise UnsupportedError(f"model {type(of.model).__name__}")
