"""The figures that the encode is held to, each measured in a process of its own.

A figure missed is printed as missed; its check stays. `run_all` returns rows {figure, value, limit, ok, detail}.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tests import artifacts
from toktier_jax.errors import UnsupportedError

from . import peers, report, texts, worker

CAPACITIES = tuple(1 << shift for shift in range(10, 23, 2))
"""Bytes: 1 Ki, 4 Ki, ... 4 Mi. A backend compiles those up to its largest block."""


# ---- tasks: each runs in a child, through benchmarks.worker ----


def device_engine(tokenizer: str) -> peers.Engine:
    """Ours, held to the device path: a text that would go to the reference fails instead of being timed."""
    loaded = artifacts.load(tokenizer).tokenizer

    def encode(text: str) -> Any:
        try:
            return loaded.encode(text, add_special_tokens=False, route="xla")
        except UnsupportedError as error:
            raise RuntimeError(f"not on the device path: {error}") from None

    return peers.Engine(encode, lambda out: out.ids, loaded)


def against_reference(tokenizer: str, text: str, size: int, repeats: int = report.REPEATS) -> dict[str, Any]:
    """Our time and the reference's on one text, in turn in one process."""
    ours, reference = device_engine(tokenizer), peers.load(peers.REFERENCE, artifacts.load(tokenizer))
    content = texts.make(text, size)
    out, expected = ours.encode(content), reference.encode(content)
    require_equal(ours.ids(out), reference.ids(expected), f"{tokenizer}, {text}, {size}")
    our_times, reference_times = [], []
    for _ in range(repeats):
        our_times += report.seconds_of(lambda: ours.encode(content), 1)
        reference_times += report.seconds_of(lambda: reference.encode(content), 1)
    mine, theirs = report.median(our_times), report.median(reference_times)
    return {
        "ratio": theirs / mine,
        "ours_ms": mine * 1e3,
        "reference_ms": theirs * 1e3,
        "mb_s": len(content.encode()) / mine / 1e6,
    }


def two_texts(tokenizer: str, contents: tuple[str, str], sizes: tuple[int, int]) -> dict[str, Any]:
    """Our time on the second text over that on the first, in turn in one process. Sizes in bytes of ASCII text."""
    engine = device_engine(tokenizer)
    pair = [ascii_text(name, size) for name, size in zip(contents, sizes, strict=True)]
    for content in pair:
        engine.encode(content)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(report.REPEATS):
        for content, measured in zip(pair, times, strict=True):
            measured += report.seconds_of(lambda content=content: engine.encode(content), 1)
    first, second = map(report.median, times)
    return {"ratio": second / first, "first_ms": first * 1e3, "second_ms": second * 1e3}


def growth(tokenizer: str, text: str, sizes: list[int], repeats: int = 3) -> dict[str, Any]:
    """Our time at each size; ids are compared with the reference's at every size."""
    ours, reference = device_engine(tokenizer), peers.load(peers.REFERENCE, artifacts.load(tokenizer))
    times = []
    for size in sizes:
        content = texts.make(text, size)
        require_equal(ours.ids(ours.encode(content)), reference.ids(reference.encode(content)), f"{text}, {size}")
        times.append(report.median(report.seconds_of(lambda content=content: ours.encode(content), repeats)))
    per_character = [seconds / size for seconds, size in zip(times, sizes, strict=True)]
    return {"sizes": sizes, "ms": [seconds * 1e3 for seconds in times], "ratio": per_character[-1] / per_character[0]}


def recompiles(tokenizer: str, lengths: int) -> dict[str, Any]:
    """XLA compilations during `lengths` encodes of random lengths after warmup()."""
    import jax

    count = 0

    def listen(event: str, duration_secs: float, **kwargs: Any) -> None:
        nonlocal count
        count += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    engine = device_engine(tokenizer)
    engine.tokenizer.warmup()
    warm, count = count, 0
    content, draw = texts.make("mixed", 1 << 20), random.Random(0)
    for _ in range(lengths):
        size = int(2 ** draw.uniform(0, 18))
        start = draw.randrange(len(content) - size)
        engine.encode(content[start : start + size])
    return {"compiles": count, "warmup_compiles": warm}


def memory(tokenizer: str, size: int) -> dict[str, Any]:
    """Growth of the peak of resident memory over the warmed process, a byte of input."""
    engine = device_engine(tokenizer)
    content = ascii_text("code", size)
    engine.tokenizer.warmup()
    engine.encode(ascii_text("english", size))
    try:
        Path("/proc/self/clear_refs").write_text("5")  # sets the peak to what is resident now
    except OSError as error:
        raise UnsupportedError(f"this system does not reset the peak of resident memory: {error}") from None
    before = resident("VmHWM")
    result = engine.encode(content)
    after = resident("VmHWM")
    return {"bytes_a_byte": (after - before) / size, "before_mb": before / 1e6, "tokens": len(engine.ids(result))}


def compile_times(tokenizer: str) -> dict[str, Any]:
    """Seconds that the first encode in a capacity takes beyond the second, for each that the backend compiles: longer
    texts are cut into blocks of the largest."""
    engine = device_engine(tokenizer)
    capacities, seconds = list[int](), list[float]()
    for capacity in CAPACITIES:
        content = ascii_text("english", capacity - capacity // 8)
        known = engine.tokenizer.explain().compiles
        first, second = report.seconds_of(lambda content=content: engine.encode(content), 2)
        if engine.tokenizer.explain().compiles != known:
            capacities.append(capacity)
            seconds.append(first - second)
    return {"capacities": capacities, "seconds": seconds, "worst": max(seconds)}


def loading(tokenizer: str) -> dict[str, Any]:
    """Seconds to construct the Tokenizer from its file, after `import jax`."""
    artifact = artifacts.load(tokenizer)
    import jax  # noqa: F401  imported before the clock starts

    import toktier_jax as tt

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "tokenizer.json"
        path.write_bytes(artifact.file)
        start = time.perf_counter()
        loaded = tt.Tokenizer.from_file(path)
        explained = loaded.program  # whatever is put off until it is needed
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "program": type(explained).__name__}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "against_reference": against_reference,
    "two_texts": two_texts,
    "growth": growth,
    "recompiles": recompiles,
    "memory": memory,
    "compile_times": compile_times,
    "loading": loading,
}


def require_equal(ids: np.ndarray, expected: np.ndarray, what: str) -> None:
    if not np.array_equal(ids, expected):
        at = next((at for at, pair in enumerate(zip(ids, expected, strict=False)) if pair[0] != pair[1]), -1)
        raise AssertionError(f"{what}: ids differ from the reference's, first at {at}")


def ascii_text(name: str, size: int) -> str:
    """`size` bytes of a text, its other characters left out."""
    return texts.make(name, size * 2).encode("ascii", "ignore").decode()[:size]


def resident(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


# ---- the list ----


def run_all(*, small: bool = False, say: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """Every figure; `small` shrinks texts and counts so that the code, not the machine, is tested."""
    million = 20_000 if small else 1_000_000
    rows = []
    for figure, limit, at_least, task, arguments, key in _list(million, small):
        environment = {}
        if task == "loading":
            environment = {"TOKTIER_JAX_CACHE": arguments.pop("cache")}
        if task == "compile_times":  # else it would read what a child before it compiled
            environment = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        row: dict[str, Any] = {"figure": figure, "value": None, "sign": ">=" if at_least else "<=", "limit": limit}
        try:
            measured = worker.call(task, arguments, environment)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            row |= {
                "ok": f"FAILED: {str(error).strip().splitlines()[-1]}",
                "detail": str(error).replace(f"{report.ROOT}/", ""),
            }
        else:
            value = row["value"] = measured.get(key)
            if "capacities" in measured:
                row["figure"] = f"{figure} of {len(measured['capacities'])} capacities"
            if value is None:
                row |= {"ok": f"SKIPPED: {measured['skipped']}"}
            else:
                row |= {"ok": "yes" if (value >= limit if at_least else value <= limit) else "MISSED"}
            row["detail"] = measured
        rows.append(row)
        say(f"{row['figure']}: {report.table([row], ('value', 'limit', 'ok')).splitlines()[-1]}")
    return rows


def _list(million: int, small: bool) -> Iterable[tuple[str, float, bool, str, dict[str, Any], str]]:
    """(figure, limit, at least?, task, arguments, key of the value)."""
    qwen = {"tokenizer": "qwen-3"}
    speed = "against_reference"
    mixed = {**qwen, "text": "mixed", "size": million}
    yield "1 M characters of mixed text, x reference", 12, True, speed, mixed, "ratio"
    chat = {**qwen, "contents": ("code", "chat"), "sizes": (million, million)}
    yield "chat transcript over plain text", 1.3, False, "two_texts", chat, "ratio"
    llama = {"tokenizer": "mistral-v1", "text": "mixed", "size": million}
    yield "no pre-tokenizer (Llama-2 style), x reference", 5, True, speed, llama, "ratio"
    for text in texts.PATHOLOGICAL:
        arguments = {**qwen, "text": text, "size": million, "repeats": 3}
        yield f"a million of '{text}', x reference", 4, True, speed, arguments, "ratio"
    for text in texts.PATHOLOGICAL:
        sizes = [million, 2 * million] if small else [million, 2 * million, 4 * million, 8 * million]
        arguments = {**qwen, "text": text, "sizes": sizes}
        yield f"'{text}' to 8 M, time a character over that at 1 M", 1.5, False, "growth", arguments, "ratio"
    sizes = (million, million * 105 // 100)
    step = {**qwen, "contents": ("english", "english"), "sizes": sizes}
    yield "1.05 MB over 1.00 MB", 1.2, False, "two_texts", step, "ratio"
    lengths = {**qwen, "lengths": 20 if small else 1000}
    yield "compiles in 1,000 random lengths", 0, False, "recompiles", lengths, "compiles"
    yield "peak memory growth at 4 MB, bytes a byte", 60, False, "memory", {**qwen, "size": 4 * million}, "bytes_a_byte"
    yield "compile seconds, worst", 5, False, "compile_times", qwen, "worst"
    with tempfile.TemporaryDirectory() as cache:
        yield "Qwen3 from nothing, seconds", 5, False, "loading", {**qwen, "cache": cache}, "seconds"
        yield "Qwen3 from the cache, seconds", 0.3, False, "loading", {**qwen, "cache": cache}, "seconds"
