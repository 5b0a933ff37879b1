"""The jitted executables of programs, for each capacity: one cuts a block into pieces, one makes tokens of them.

Programs that differ only in what an executable does not read share it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax

from toktier_jax.ops.encode import Encoded, Pieces, cut_pieces, encode_pieces
from toktier_jax.ops.scan import Lowering
from toktier_jax.plan import ModelPlan
from toktier_jax.types import EncodeProgram, ModelTables

TRACES: Counter[str] = Counter()
"""Executables traced so far in this process, by kind and capacity."""


@functools.cache
def cutter(lowering: Lowering) -> Callable[..., Pieces]:
    """The jitted cut of a block into pieces; its traces are counted.

    Whether a text ends with its block decides nothing but what `decided` is, so one executable does for both.
    """

    def cut(program: EncodeProgram, data: Any, length: Any, at_start: Any, checked: Any, starts: Any = None) -> Pieces:
        TRACES[f"pieces of {data.shape[0]} bytes{'' if starts is None else ', packed'}"] += 1
        how = {"at_start": at_start, "checked": checked, "segment_starts": starts}
        return cut_pieces(program, data, length, **how, at_end=False, lowering=lowering)

    return jax.jit(cut, compiler_options=options())


@functools.cache
def encoder(lowering: Lowering, plan: ModelPlan) -> Callable[..., Encoded]:
    """The jitted encode of a block's pieces; its traces are counted."""

    def encode(tables: ModelTables, pieces: Pieces) -> Encoded:
        TRACES[f"tokens of {pieces.buffer.data.shape[0]} bytes"] += 1
        return encode_pieces(plan, tables, pieces, lowering=lowering)

    return jax.jit(encode, compiler_options=options())


@functools.cache
def options() -> dict[str, bool | str]:
    """XLA's own emitters for CPUs compile these programs in two thirds of the time of its MLIR ones, as fast code.

    Blocks run side by side: operations of a few microseconds that are parted among threads only wait for each other.
    """
    options = {"xla_cpu_use_fusion_emitters": False, "xla_disable_hlo_passes": "cpu-parallel-task-assigner"}
    return {name: value for name, value in options.items() if jax.default_backend() == "cpu" and _has(name, value)}


def _has(name: str, value: bool | str) -> bool:
    """Whether this version of XLA offers the choice."""
    try:
        jax.jit(lambda: 0, compiler_options={name: value})()
    except jax.errors.JaxRuntimeError:
        return False
    return True
