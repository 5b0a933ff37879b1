"""The arms of boundary.py: the log of the probability that a sampler emits text beginning with a given continuation.

Summed over tokenizations, best first. Samplers are at temperature 1 without truncation.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toktier_jax.sampling.bytetree import PathTree
from toktier_jax.sampling.covers import Covers, cover_rules
from toktier_jax.sampling.healing import heal
from toktier_jax.sampling.tree import plant
from toktier_jax.sampling.vocabulary import Vocabulary, padded, vocabulary_of

from .boundary_cuts import Case

ARMS = ("none", "back-off", "heal 1", "heal auto", "exact", "oracle")
MOST_NODES = 96
ENOUGH = 5e-4
"""The search ends where the unexplored mass is below this share of the found."""
TOGETHER = 16

Seed = tuple[float, tuple[int, ...], int]
"""(log weight, token path, bytes of the target that the path spells)"""


@dataclass(frozen=True)
class Score:
    """log p, and the mass that was not explored as a share of the found one."""

    logprob: float
    unexplored: float
    nodes: int


def emit(
    tree: PathTree,
    vocabulary: Vocabulary,
    seeds: Sequence[Seed],
    target: bytes,
    found: float = 0.0,
    healed: int = 0,
    guess: Sequence[tuple[int, ...]] = (),
) -> Score:
    """log of found + the sum over paths from `seeds` that spell `target` or go beyond it.

    Within the first `healed` bytes of the target only tokens that agree with them are allowed, renormalized. `guess`
    are paths that are likely to be needed: they are forwarded together.
    """
    heap = [(-weight, path, at) for weight, path, at in seeds]
    heapq.heapify(heap)
    if guess:
        tree.logprobs(list(guess))
    nodes = 0
    while heap and nodes < MOST_NODES:
        waiting = sum(np.exp(-weight) for weight, _, _ in heap)
        if found and waiting < ENOUGH * found:
            break
        batch = [heapq.heappop(heap) for _ in range(min(TOGETHER if nodes else 1, len(heap)))]
        rows = tree.logprobs([path for _, path, _ in batch])
        nodes += len(batch)
        for (weight, path, at), row in zip(batch, rows, strict=True):
            rest = target[at:]
            lo, hi = vocabulary.range(rest)
            shift = _healed_mass(row, vocabulary, target[at:healed]) if at < healed else 0.0
            mass = np.exp(row[vocabulary.order[lo:hi]] - weight - shift).sum()
            found += float(mass)
            for id in vocabulary.prefixes(rest):
                logprob = -weight + row[id] - shift
                if logprob > -60:
                    heapq.heappush(heap, (-float(logprob), (*path, id), at + len(vocabulary.strings[id])))
    waiting = float(sum(np.exp(-weight) for weight, _, _ in heap))
    logprob = float(np.log(found)) if found > 0 else -np.inf
    return Score(logprob, waiting / found if found else float("inf"), nodes)


def _healed_mass(row: np.ndarray, vocabulary: Vocabulary, rest: bytes) -> float:
    lo, hi = vocabulary.range(rest)
    ids = [*vocabulary.order[lo:hi].tolist(), *vocabulary.prefixes(rest)]
    return float(np.log(np.exp(row[ids]).sum()))


def spelled(tok: Any, context: tuple[int, ...], text: bytes) -> list[tuple[int, ...]]:
    """The paths of a text's own encoding after `context`, without its last token."""
    ids = tok.encode(text.decode(), False, route="reference").ids.tolist()
    return [(*context, *ids[:end]) for end in range(len(ids))]


@dataclass(frozen=True)
class Scored:
    """All arms on one case; `through` is log p(b | P), `costs` the extra forwarded tokens of each arm."""

    scores: dict[str, Score]
    through: float
    costs: dict[str, int]
    greedy: dict[str, bool]
    dropped: float
    nodes: int


def score(lm: Any, tok: Any, case: Case, start: int, arms: Sequence[str] = ARMS) -> Scored:
    """Scores a case; one prefill is shared by all arms."""
    vocabulary, rules = vocabulary_of(tok), cover_rules(tok)
    known = [bool(string) or id in vocabulary.special for id, string in enumerate(vocabulary.strings)]
    tree = PathTree(lm, padded(np.array(known), lm.vocab_size, False), 1024)
    prompt, target = case.prompt.encode(), case.continuation.encode()
    ids = (start, *tok.encode(case.prompt, False, route="reference").ids.tolist())
    covers = rules.covers(ids, prompt)
    planted = plant(covers.trunk, covers.nodes)
    paths = [(*planted.trunk, *planted.tokens[planted.path(n)].tolist()) for n in planted.places]
    found: dict[str, Score] = {}
    costs: dict[str, int] = {}
    greedy: dict[str, bool] = {}
    tree.logprobs([ids, ids[:-1], *paths])
    if "none" in arms:
        found["none"] = emit(tree, vocabulary, [(0.0, ids, 0)], target, guess=spelled(tok, ids, target))
        costs["none"] = 0
        greedy["none"] = _greedy(tree, vocabulary, ids, b"", case)
    if "back-off" in arms:
        rest = vocabulary.strings[ids[-1]]
        guess = spelled(tok, ids[:-1], rest + target)
        found["back-off"] = emit(tree, vocabulary, [(0.0, ids[:-1], 0)], rest + target, guess=guess)
        costs["back-off"] = -1
    for name, tokens in (("heal 1", 1), ("heal auto", "auto")):
        if name in arms:
            healed = heal(vocabulary, ids, tokens=tokens)  # type: ignore[arg-type]
            if name == "heal auto" and found.get("heal 1") and len(healed.kept) - len(ids) == costs["heal 1"]:
                found[name], costs[name], greedy[name] = found["heal 1"], costs["heal 1"], greedy["heal 1"]
                continue
            whole = healed.rest + target
            guess = spelled(tok, healed.kept, whole)
            found[name] = emit(tree, vocabulary, [(0.0, healed.kept, 0)], whole, healed=len(healed.rest), guess=guess)
            costs[name] = len(healed.kept) - len(ids)
            greedy[name] = _greedy(tree, vocabulary, healed.kept, healed.rest, case)
    seeds, masses, through, dropped, best = _leaves(tree, vocabulary, covers, paths, target, _border(tok, ids, case))
    costs["exact"] = len(planted.trunk) + planted.branches - len(ids)
    guess = [path for _, path, _ in sorted(seeds, reverse=True)[:TOGETHER]]
    guess = [p for path in guess[:1] for p in spelled(tok, path, target[_consumed(seeds, path) :])] + guess
    found["exact"] = emit(tree, vocabulary, [s[:3] for s in seeds], target, masses[0], guess=guess)
    path, past = best
    greedy["exact"] = _greedy(tree, vocabulary, path, b"", case, past)
    if "oracle" in arms:
        inside = [
            (w - through, path, at) for (w, path, at), in_border in zip(seeds, masses[2], strict=True) if in_border
        ]
        found["oracle"] = emit(tree, vocabulary, inside, target, masses[1] / np.exp(through))
        costs["oracle"] = 0
    return Scored(found, through, costs, greedy, dropped, len(covers.nodes))


def _consumed(seeds: Sequence[Seed], path: tuple[int, ...]) -> int:
    return next(at for _, other, at in seeds if other == path)


def _border(tok: Any, ids: tuple[int, ...], case: Case) -> tuple[int, ...]:
    """The full text's ids up to its last border at or before the prompt's end, with what stands before the text."""
    encoded = tok.encode(case.prompt + case.after, False, route="reference")
    count = int((encoded.byte_spans[:, 1] <= len(case.prompt.encode())).sum())
    return (ids[0], *encoded.ids[:count].tolist())


def _leaves(
    tree: PathTree,
    vocabulary: Vocabulary,
    covers: Covers,
    paths: Sequence[tuple[int, ...]],
    target: bytes,
    border: tuple[int, ...],
) -> tuple[list[Seed], tuple[float, float, list[bool]], float, float, tuple[tuple[int, ...], bytes]]:
    """C(P) as seeds that agree with the target; the mass that goes beyond it, all and through the border; log of the
    border's share; the dropped share; the best leaf."""
    rows = tree.logprobs(list(paths))
    shared = min(map(len, paths))
    ways = []
    for path in paths:  # from what all paths share on
        prefixes = [path[:end] for end in range(shared, len(path))]
        before = tree.logprobs(prefixes) if prefixes else []
        ways.append(sum(float(row[path[len(prefix)]]) for prefix, row in zip(prefixes, before, strict=True)))
    nodes, tokens = covers.leaves
    scores = np.array(ways)[nodes] + np.stack(rows)[nodes, tokens]
    total = np.logaddexp.reduce(scores)
    every = []
    for node, row, way in zip(covers.nodes, rows, ways, strict=True):
        if node.at < len(covers.rest):
            lo, hi = vocabulary.range(covers.rest[node.at :])
            every.append(way + np.log(np.exp(row[vocabulary.order[lo:hi]]).sum()))
    dropped = 1.0 - float(np.exp(total - np.logaddexp.reduce(every)))
    shares = scores - total
    inside = np.array(
        [(*paths[n], t)[: len(border)] == border for n, t in zip(nodes.tolist(), tokens.tolist(), strict=True)]
    )
    through = float(np.logaddexp.reduce(shares[inside])) if inside.any() else -np.inf
    seeds: list[Seed] = []
    kept: list[bool] = []
    beyond = [0.0, 0.0]
    for n, t, share, within in zip(nodes.tolist(), tokens.tolist(), shares.tolist(), inside.tolist(), strict=True):
        past = vocabulary.strings[t][covers.skip(n) :]
        if past.startswith(target):
            beyond[0] += np.exp(share)
            beyond[1] += np.exp(share) * within
        elif target.startswith(past):
            seeds.append((share, (*paths[n], t), len(past)))
            kept.append(within)
    first = int(np.argmax(shares))
    best = (*paths[int(nodes[first])], int(tokens[first]))
    return (
        seeds,
        (beyond[0], beyond[1], kept),
        through,
        dropped,
        (best, vocabulary.strings[best[-1]][covers.skip(int(nodes[first])) :]),
    )


def _greedy(
    tree: PathTree, vocabulary: Vocabulary, path: tuple[int, ...], rest: bytes, case: Case, text: bytes = b""
) -> bool:
    """Whether greedy decoding goes on with the first word that really follows."""
    match = re.match(r"\s*(\w+|[^\w\s]+)", case.after)
    assert match is not None
    word = match[0].encode()
    left = rest
    for _ in range(12):
        if len(text) > len(word):
            break
        if not (word.startswith(text)):
            return False
        row = tree.logprobs([path])[0]
        if left:
            lo, hi = vocabulary.range(left)
            ids = np.array([*vocabulary.order[lo:hi].tolist(), *vocabulary.prefixes(left)])
            token = int(ids[np.argmax(row[ids])])
        else:
            token = int(np.argmax(row))
        if not vocabulary.strings[token]:
            return text == word
        string = vocabulary.strings[token]
        text += string[len(left) :]
        left = left[len(string) :]
        path = (*path, token)
    following = text[len(word) : len(word) + 1]
    same = bool(following) and (following.isalnum() or following == b"_") and (word[-1:].isalnum() or word[-1:] == b"_")
    return text.startswith(word) and not same
