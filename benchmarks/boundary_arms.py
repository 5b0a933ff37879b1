"""The arms of boundary.py: the log of the probability that a sampler emits text beginning with a given continuation.

Summed over tokenizations, best first. Samplers are at temperature 1 without truncation. Every search is a generator
that yields the token paths whose log-probs it needs next and is sent them: what all searches of all prompts of a
context need in one round goes through the model in one call.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from toktier_jax.sampling import prefill
from toktier_jax.sampling.bytetree import PathTree
from toktier_jax.sampling.covers import CoverRules, Covers, cover_rules
from toktier_jax.sampling.healing import Healed, heal
from toktier_jax.sampling.tree import plant
from toktier_jax.sampling.vocabulary import Vocabulary, padded, vocabulary_of

from .boundary_cuts import WORD, Case

ARMS = ("none", "back-off", "heal 1", "heal auto", "exact", "oracle")
WITHOUT_COVERS = ARMS[:4]
MOST_NODES = 96
ENOUGH = 5e-4
"""The search ends where the unexplored mass is below this share of the found."""
TOGETHER = 16
"""Paths that one search asks for in a round at most."""
SLOTS, CHUNK = 512, 256

T = TypeVar("T")
Path = tuple[int, ...]
Asking = Generator[list[Path], list[np.ndarray], T]
Seed = tuple[float, Path, int]
"""(log weight, token path, bytes of the target that the path spells)"""


@dataclass(frozen=True)
class Score:
    """log p, and the mass that was not explored as a share of the found one."""

    logprob: float
    unexplored: float


@dataclass(frozen=True)
class Scored:
    """All arms on one case; `costs` and `calls` are what each arm forwards beyond "none".

    through, dropped, nodes  log p(b | P), and what the covers are; of arms without covers NaN and 0
    """

    scores: dict[str, Score]
    through: float
    costs: dict[str, int]
    calls: dict[str, int]
    greedy: dict[str, bool]
    dropped: float
    nodes: int


def forwarded(tree: PathTree, search: Asking[T]) -> T:
    """The result of a search, each of its rounds in one call where it fits."""
    rows: list[np.ndarray] | None = None
    while True:
        try:
            rows = tree.logprobs(search.send(rows))  # type: ignore[arg-type]  # None starts it
        except StopIteration as end:
            return end.value


def side_by_side(searches: Sequence[Asking[Any]]) -> Asking[list[Any]]:
    """Searches as one, which asks in each round for what any of them needs."""
    results: dict[int, Any] = {}
    asked: dict[int, list[Path]] = {}

    def go_on(number: int, rows: list[np.ndarray] | None) -> None:
        try:
            asked[number] = searches[number].send(rows)  # type: ignore[arg-type]  # None starts it
        except StopIteration as end:
            asked.pop(number, None)
            results[number] = end.value

    for number in range(len(searches)):
        go_on(number, None)
    while asked:
        waiting = list(asked.items())
        rows = iter((yield [path for _, paths in waiting for path in paths]))
        for number, paths in waiting:
            go_on(number, [next(rows) for _ in paths])
    return [results[number] for number in range(len(searches))]


def emit(
    vocabulary: Vocabulary,
    seeds: Sequence[Seed],
    target: bytes,
    found: float = 0.0,
    healed: int = 0,
    guess: Sequence[Path] = (),
) -> Asking[Score]:
    """log of found + the sum over paths from `seeds` that spell `target` or go beyond it.

    Within the first `healed` bytes of the target only tokens that agree with them are allowed, renormalized. `guess`
    are paths that are likely to be needed: they are asked for first, together.
    """
    known = dict(zip(guess, (yield list(guess)), strict=True)) if guess else {}
    waiting, nodes = list(seeds), 0
    while waiting and nodes < MOST_NODES:
        batch = [seed for seed in waiting if seed[1] in known] or _best(waiting, found)
        if not batch:
            break
        chosen = {path for _, path, _ in batch}
        waiting = [seed for seed in waiting if seed[1] not in chosen]
        paths = [path for _, path, _ in batch if path not in known]
        if paths:
            known |= zip(paths, (yield paths), strict=True)
        nodes += len(batch)
        for weight, path, at in batch:
            row, rest = known[path], target[at:]
            lo, hi = vocabulary.range(rest)
            shift = _healed_mass(row, vocabulary, target[at:healed]) if at < healed else 0.0
            found += float(np.exp(row[vocabulary.order[lo:hi]] + weight - shift).sum())
            for token in vocabulary.prefixes(rest):
                logprob = float(weight + row[token] - shift)
                if logprob > -60:
                    waiting.append((logprob, (*path, token), at + len(vocabulary.strings[token])))
        for _, path, _ in batch:
            del known[path]
    left = float(sum(np.exp(weight) for weight, _, _ in waiting))
    return Score(float(np.log(found)) if found > 0 else -np.inf, left / found if found else float("inf"))


def _best(waiting: Sequence[Seed], found: float) -> list[Seed]:
    """The heaviest seeds, so many that what stays is little of what was found."""
    order = sorted(waiting, key=lambda seed: -seed[0])
    left = np.cumsum([np.exp(weight) for weight, _, _ in reversed(order)])[::-1]
    return [seed for seed, mass in zip(order[:TOGETHER], left, strict=False) if mass >= ENOUGH * found or not found]


def _healed_mass(row: np.ndarray, vocabulary: Vocabulary, rest: bytes) -> float:
    lo, hi = vocabulary.range(rest)
    ids = [*vocabulary.order[lo:hi].tolist(), *vocabulary.prefixes(rest)]
    return float(np.log(np.exp(row[ids]).sum()))


def greedy_word(vocabulary: Vocabulary, path: Path, rest: bytes, case: Case, text: bytes = b"") -> Asking[bool]:
    """Whether greedy decoding from `path` goes on with the first word that really follows, `text` emitted already."""
    match = WORD.match(case.after)
    assert match is not None
    word, left = match[0].encode(), rest
    for _ in range(12):
        if len(text) > len(word):
            break
        if not word.startswith(text):
            return False
        row = (yield [path])[0]
        if left:
            lo, hi = vocabulary.range(left)
            ids = np.array([*vocabulary.order[lo:hi].tolist(), *vocabulary.prefixes(left)])
            token = int(ids[np.argmax(row[ids])])
        else:
            token = int(np.argmax(row))
        if not vocabulary.strings[token]:
            return text == word
        string = vocabulary.strings[token]
        text, left, path = text + string[len(left) :], left[len(string) :], (*path, token)
    following = text[len(word) : len(word) + 1]
    same = bool(following) and (following.isalnum() or following == b"_") and (word[-1:].isalnum() or word[-1:] == b"_")
    return text.startswith(word) and not same


@dataclass(frozen=True, eq=False)
class _Prompt:
    """A case with what every arm needs of it."""

    case: Case
    tok: Any
    vocabulary: Vocabulary
    ids: Path

    @property
    def target(self) -> bytes:
        return self.case.continuation.encode()

    def spelled(self, context: Path, text: bytes) -> list[Path]:
        """The paths of a text's own encoding after `context`, without its last token."""
        ids = self.tok.encode(text.decode("utf-8", "ignore"), False, route="reference").ids.tolist()
        return [(*context, *ids[:end]) for end in range(len(ids))]

    def after(self, healed: Healed) -> Asking[Score]:
        """The search of an arm that goes on from kept ids and has to spell the dropped bytes again."""
        whole, kept = healed.rest + self.target, healed.kept
        seeds, guess = [(0.0, kept, 0)], self.spelled(kept, whole)
        return emit(self.vocabulary, seeds, whole, healed=len(healed.rest), guess=guess)


@dataclass(frozen=True, eq=False)
class _Covered(_Prompt):
    """With what "exact" and "oracle" need, too."""

    covers: Covers
    paths: list[Path]  # of the covers' nodes
    extra: int
    border: Path  # the full text's ids up to its last border at or before the prompt's end


def _read(tok: Any, rules: CoverRules | None, case: Case, start: int) -> _Prompt:
    text = case.prompt.encode()
    ids = (start, *tok.encode(case.prompt, False, route="reference").ids.tolist())
    if rules is None:
        return _Prompt(case, tok, vocabulary_of(tok), ids)
    covers = rules.covers(ids, text)
    planted = plant(covers.trunk, covers.nodes)
    paths = [(*planted.trunk, *planted.tokens[planted.path(n)].tolist()) for n in planted.places]
    encoded = tok.encode(case.prompt + case.after, False, route="reference")
    count = int((encoded.byte_spans[:, 1] <= len(text)).sum())
    extra = len(planted.trunk) + planted.branches - len(ids)
    return _Covered(case, tok, rules.vocabulary, ids, covers, paths, extra, (start, *encoded.ids[:count].tolist()))


def score(lm: Any, tok: Any, cases: Sequence[Case], start: int, arms: Sequence[str] = ARMS) -> list[Scored]:
    """Scores the prompts of one context; one prefill is shared by all prompts and arms."""
    vocabulary, rules = vocabulary_of(tok), cover_rules(tok) if "exact" in arms else None
    known = [bool(string) or id in vocabulary.special for id, string in enumerate(vocabulary.strings)]
    tree = PathTree(lm, padded(np.array(known), lm.vocab_size, False), SLOTS, chunk=CHUNK)
    prompts = [_read(tok, rules, case, start) for case in cases]
    searches: dict[tuple[int, str, str], Asking[Any]] = {}
    costs: list[dict[str, int]] = []
    for number, prompt in enumerate(prompts):
        kept = {"none": Healed(prompt.ids, b"")}
        kept["heal 1"], kept["heal auto"] = (heal(vocabulary, prompt.ids, tokens=n) for n in (1, "auto"))
        for arm in kept.keys() & set(arms):
            searches[number, arm, "score"] = prompt.after(kept[arm])
            searches[number, arm, "greedy"] = greedy_word(vocabulary, kept[arm].kept, kept[arm].rest, prompt.case)
        if "back-off" in arms:
            rest = vocabulary.strings[prompt.ids[-1]] + prompt.target
            guess = prompt.spelled(prompt.ids[:-1], rest)
            searches[number, "back-off", "score"] = emit(vocabulary, [(0.0, prompt.ids[:-1], 0)], rest, guess=guess)
        found = {arm: len(kept[arm].kept) - len(prompt.ids) for arm in kept}
        if isinstance(prompt, _Covered):
            searches[number, "exact", "covers"] = _exact(prompt, "oracle" in arms)
            found["exact"] = prompt.extra
        costs.append({arm: cost for arm, cost in (found | {"back-off": -1, "oracle": 0}).items() if arm in arms})
    results = dict(zip(searches, forwarded(tree, side_by_side(list(searches.values()))), strict=True))
    scored = []
    for number, prompt in enumerate(prompts):
        scores = {arm: results[number, arm, "score"] for arm in arms if (number, arm, "score") in results}
        greedy = {arm: results[number, arm, "greedy"] for arm in arms if (number, arm, "greedy") in results}
        size, cost = len(prompt.ids), costs[number]
        calls = {arm: prefill.calls(size + tokens) - prefill.calls(size) for arm, tokens in cost.items()}
        through, dropped, nodes = float("nan"), 0.0, 0
        if isinstance(prompt, _Covered):
            exact = results[number, "exact", "covers"]
            scores |= dict(zip(("exact", "oracle"), exact.scores, strict=False))
            greedy["exact"] = exact.greedy
            through, dropped, nodes = exact.through, exact.dropped, len(prompt.covers.nodes)
        scored.append(Scored(scores, through, cost, calls, greedy, dropped, nodes))
    return scored


@dataclass(frozen=True)
class _Exact:
    scores: list[Score]
    through: float
    dropped: float
    greedy: bool


def _exact(prompt: _Covered, oracle: bool) -> Asking[_Exact]:
    """The covers' leaves, then searches from those that agree with the target: all, and those through the border."""
    vocabulary, covers, paths, target = prompt.vocabulary, prompt.covers, prompt.paths, prompt.target
    shared = min(map(len, paths))
    above = {path[:end] for path in paths for end in range(shared, len(path) + 1)}  # from what all paths share on
    guess = [path for path in prompt.spelled(prompt.border, _after(prompt)) if len(path) > len(prompt.border)]
    asked = list(dict.fromkeys([*sorted(above), *guess]))
    rows = dict(zip(asked, (yield asked), strict=True))
    ways = np.array([sum(float(rows[p[:end]][p[end]]) for end in range(shared, len(p))) for p in paths])
    nodes, tokens = covers.leaves
    scores = ways[nodes] + np.stack([rows[path] for path in paths])[nodes, tokens]
    total = np.logaddexp.reduce(scores)
    every = []
    for node, path, way in zip(covers.nodes, paths, ways, strict=True):
        if node.at < len(covers.rest):
            lo, hi = vocabulary.range(covers.rest[node.at :])
            every.append(way + np.log(np.exp(rows[path][vocabulary.order[lo:hi]]).sum()))
    dropped = 1.0 - float(np.exp(total - np.logaddexp.reduce(every))) if every else 0.0
    shares, border = scores - total, prompt.border
    leaves = [(*paths[n], t) for n, t in zip(nodes.tolist(), tokens.tolist(), strict=True)]
    inside = np.array([leaf[: len(border)] == border for leaf in leaves])
    through = float(np.logaddexp.reduce(shares[inside])) if inside.any() else -np.inf
    pasts = [vocabulary.strings[leaf[-1]][covers.skip(n) :] for n, leaf in zip(nodes.tolist(), leaves, strict=True)]
    best = int(np.argmax(shares))
    searches = []
    for keep, scale in ((np.ones(len(leaves), bool), 0.0), (inside, through))[: 1 + oracle]:
        seeds, beyond = [], 0.0
        for at in np.flatnonzero(keep).tolist():
            if pasts[at].startswith(target):
                beyond += float(np.exp(shares[at] - scale))
            elif target.startswith(pasts[at]):
                seeds.append((float(shares[at] - scale), leaves[at], len(pasts[at])))
        searches.append(emit(vocabulary, seeds, target, beyond, guess=guess))
    word = greedy_word(vocabulary, leaves[best], b"", prompt.case, pasts[best])
    *found, greedy = yield from side_by_side([*searches, word])
    return _Exact(found, through, dropped, greedy)


def _after(prompt: _Covered) -> bytes:
    """The bytes from the border to the continuation's end."""
    spelled = sum(len(prompt.vocabulary.strings[id]) for id in prompt.border[1:])
    return prompt.case.prompt.encode()[spelled:] + prompt.target
