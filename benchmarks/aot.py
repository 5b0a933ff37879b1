"""Compiles the encode for an H200 and a TPU v5e without either: kernels, temporaries, compile time, predicted time.

    python -m benchmarks.aot [--tokenizers NAME ...] [--what encode split] [--platforms cuda tpu] [--bytes N ...]

Runs in an environment of its own (`make aot`): XLA compiles to real executables on a machine that has neither. The
predicted time of a GPU is 3 us for each kernel launched, loops by the rounds that they take on English text, plus bytes
at 4.3 TB/s, plus look-ups in small tables at 3 a picosecond. It says what to look at; it is no measurement.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import hlo, report, rounds

Platform = Literal["cuda", "tpu"]
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # no CUDA libraries are there, and none are needed
    "CUDA_VISIBLE_DEVICES": "-1",
    "TPU_SKIP_MDS_QUERY": "1",
    "XLA_FLAGS": "--xla_gpu_autotune_level=0",  # tuning would run kernels
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
PACKAGES = {"cuda": ("jax_cuda12_plugin", "jax-cuda12-plugin and jax-cuda12-pjrt"), "tpu": ("libtpu", "jax[tpu]")}
TARGET = Path(__file__).parent / "h200_target.txtpb"
LAUNCH, BANDWIDTH, LOOKUPS = 3e-6, 4.3e12, 3e12
"""Seconds for a kernel, bytes a second, look-ups in cached tables a second (about 7 instructions each)."""
COLUMNS = (
    "tokenizer", "what", "platform", "bytes", "kernels", "a_round", "launched", "temp_a_byte", "compile_s", "cpu_s",
    "predicted_ms", "missed",
)  # fmt: skip
DETAILS = ("tokenizer", "what", "platform", "kernels_of", "loops", "rounds")
ROUNDS = {"merge_rounds.py", "merge_far.py"}
"""Source files of rounds of merges: the loops whose own kernels come from there."""
KERNELS = {"qwen-3": 120, "o200k_base": 150}
LIMITS = {"a_round": 6, "temp_a_byte": 40, "compile_s": 30, "predicted_ms": 0.87}
"""What the encode of 1 Mi bytes for an H200 is held to."""


@dataclass(frozen=True)
class Target:
    """A function to compile, its arguments' shapes, and arguments with English text to count its loops' rounds on."""

    function: Callable[..., Any]
    shapes: tuple[Any, ...]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Report:
    """One compiled function.

    module     its launches and loops
    temporary  bytes of memory besides arguments and results
    compile_s  seconds of XLA on this machine, and cpu_s of all its cores
    """

    platform: Platform
    module: hlo.Module
    temporary: int
    trace_s: float
    compile_s: float
    cpu_s: float

    @property
    def kernels(self) -> int:
        """Launches outside of loops."""
        return self.module.straight.launches

    @property
    def kernels_a_round(self) -> int:
        """Launches of the largest round of merges."""
        merging = [loop.round for loop in every(self.module.loops) if not ROUNDS.isdisjoint(loop.round.origins)]
        return max((round.launches for round in merging), default=0)

    def launches(self, loops: Sequence[rounds.Rounds]) -> int | None:
        """Launches where the function's loops take these rounds; None as for `predicted_s`."""
        inside = _in_loops(self.module.loops, loops, lambda cost: cost.launches)
        return None if inside is None else self.kernels + int(inside)

    def predicted_s(self, loops: Sequence[rounds.Rounds]) -> float | None:
        """Seconds on an H200 where the function's loops take these rounds. None: the compiler made other loops."""
        inside = _in_loops(self.module.loops, loops, seconds)
        return None if inside is None else seconds(self.module.straight) + inside


def every(loops: Sequence[hlo.Loop]) -> Iterator[hlo.Loop]:
    """All loops, each before those inside of it."""
    for loop in loops:
        yield loop
        yield from every(loop.loops)


def _in_loops(
    loops: Sequence[hlo.Loop], counted: Sequence[rounds.Rounds], price: Callable[[hlo.Cost], float]
) -> float | None:
    if len(loops) != len(counted):
        return None
    total = 0.0
    for loop, turns in zip(loops, counted, strict=True):
        inside = _in_loops(loop.loops, turns.loops, price)
        if inside is None:
            return None
        total += price(loop.round) * int(turns.count) + inside
    return total


def seconds(cost: hlo.Cost) -> float:
    return cost.launches * LAUNCH + cost.traffic / BANDWIDTH + cost.lookups / LOOKUPS


def missing(platform: Platform) -> str | None:
    """Why nothing can be compiled for a platform here; None where it can."""
    module, package = PACKAGES[platform]
    return None if importlib.util.find_spec(module) else f"{package} is not installed (make aot brings it)"


def compile_for(platform: Platform, function: Callable[..., Any], *shapes: Any) -> Report:
    """Compiles `function` for one device of a platform.

    `shapes` are its arguments as jax.ShapeDtypeStruct, in any pytree. ENVIRONMENT has to be set before JAX starts.
    """
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    sharding = NamedSharding(_mesh(platform), PartitionSpec())
    arguments = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes)
    start = time.perf_counter()
    lowered = jax.jit(function).lower(*arguments)
    traced, cpu = time.perf_counter(), time.process_time()
    compiled = lowered.compile()
    done, used = time.perf_counter(), time.process_time()
    memory = compiled.memory_analysis()
    return Report(
        platform=platform,
        module=hlo.read(compiled.as_text() or ""),
        temporary=0 if memory is None else memory.temp_size_in_bytes,
        trace_s=traced - start,
        compile_s=done - traced,
        cpu_s=used - cpu,
    )


@functools.cache
def _mesh(platform: Platform) -> Any:
    import jax
    from jax.experimental import topologies

    if platform == "tpu":
        topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    else:
        topology = topologies.get_topology_desc(platform="cuda", target_config=TARGET.read_text(), topology="1x1x1")
    return jax.sharding.Mesh(np.asarray(topology.devices[:1]), ("x",))


def split_target(tokenizer: str, size: int) -> Target:
    """Text to piece starts: classification and the splits."""
    from toktier_jax.ops.encode import cut, open_buffer
    from toktier_jax.plan import Plan, SplitPlan
    from toktier_jax.types import EncodeProgram

    program = _program(tokenizer)
    steps = [
        (plan, tables)
        for plan, tables in zip(program.plan.steps, program.tables.steps, strict=True)
        if isinstance(plan, SplitPlan)
    ]
    tables = program.tables._replace(steps=tuple(tables for _, tables in steps), model=())
    program = EncodeProgram(tables, Plan(tuple(plan for plan, _ in steps), program.plan.model))

    def starts(program: EncodeProgram, data: Any, length: Any) -> Any:
        return cut(program, open_buffer(program, data, length, None), at_end=True, lowering="arrays")[0].starts

    return _target(starts, program, size)


def encode_target(tokenizer: str, size: int) -> Target:
    """Text to ids, starts and ends."""
    from toktier_jax.ops.encode import encode_bytes

    def tokens(program: Any, data: Any, length: Any) -> Any:
        encoded = encode_bytes(program, data, length, lowering="arrays")
        return encoded.ids, encoded.byte_starts, encoded.byte_ends, encoded.count, encoded.status

    return _target(tokens, _program(tokenizer), size)


def _program(tokenizer: str) -> Any:
    from tests import artifacts

    return artifacts.load(tokenizer).tokenizer.program


def _target(function: Callable[..., Any], program: Any, size: int) -> Target:
    import jax

    from . import texts

    data = np.frombuffer(texts.make("english", size).encode()[:size], np.uint8)
    arguments = (program, data, np.int32(size))
    return Target(
        function, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments), arguments
    )


TARGETS: dict[str, Callable[[str, int], Target]] = {"split": split_target, "encode": encode_target}


def row(tokenizer: str, what: str, platform: Platform, size: int, target: Target, turns: Any) -> dict[str, Any]:
    """One line of the table."""
    compiled = compile_for(platform, target.function, *target.shapes)
    predicted = compiled.predicted_s(turns) if platform == "cuda" else None
    line: dict[str, Any] = {
        "tokenizer": tokenizer,
        "what": what,
        "platform": platform,
        "bytes": size,
        "kernels": compiled.kernels,
        "a_round": compiled.kernels_a_round,
        "launched": compiled.launches(turns) if platform == "cuda" else None,
        "temp_a_byte": compiled.temporary / size,
        "trace_s": compiled.trace_s,
        "compile_s": compiled.compile_s,
        "cpu_s": compiled.cpu_s,
        "predicted_ms": None if predicted is None else predicted * 1e3,
        "traffic_mb": compiled.module.straight.traffic / 1e6,
        "lookups_m": compiled.module.straight.lookups / 1e6,
        "kernels_of": dict(compiled.module.straight.origins.most_common()),
        "loops": [
            {
                "name": loop.name,
                "kernels": loop.round.launches,
                "kernels_of": dict(loop.round.origins.most_common()),
                "traffic_mb": loop.round.traffic / 1e6,
            }
            for loop in every(compiled.module.loops)
        ],
        "rounds": [dataclasses.asdict(loop) for loop in turns],
    }
    if what == "encode" and platform == "cuda" and size == 1 << 20:
        limits = {"kernels": KERNELS.get(tokenizer, max(KERNELS.values())), **LIMITS}
        missed = [name for name, limit in limits.items() if line[name] is None or line[name] > limit]
        line["missed"] = ", ".join(f"{name} > {limits[name]}" for name in missed) or "none"
    return line


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizers", nargs="+", default=list(KERNELS), metavar="NAME", help="of tests/artifacts.py")
    parser.add_argument("--what", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--platforms", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--bytes", nargs="+", type=int, default=[1 << 20], metavar="N", help="capacities")
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    parser.add_argument("--details", action="store_true", help="kernels by source file, loops and their rounds")
    arguments = parser.parse_args(argv)
    os.environ.update(ENVIRONMENT)
    reasons = {platform: missing(platform) for platform in arguments.platforms}
    rows: list[dict[str, Any]] = []
    for tokenizer in arguments.tokenizers:
        for what in arguments.what:
            for size in arguments.bytes:
                target = TARGETS[what](tokenizer, size)
                turns = rounds.count_rounds(target.function, *target.arguments)
                for platform in (platform for platform, reason in reasons.items() if reason is None):
                    rows.append(row(tokenizer, what, platform, size, target, turns))
                    print(report.table(rows[-1:], COLUMNS).splitlines()[-1], file=sys.stderr)
    print(report.table(rows, COLUMNS))
    if arguments.details:
        print(json.dumps([{key: line[key] for key in DETAILS} for line in rows], indent=1))
    skipped = [f"{platform}: {reason}" for platform, reason in reasons.items() if reason]
    for reason in skipped:
        print(f"SKIPPED {reason}")
    report.write("aot", {"rows": rows, "skipped": skipped}, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
