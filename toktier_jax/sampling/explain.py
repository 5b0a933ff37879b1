"""The covers of a prompt's end in words: nodes, leaves and, with a model, their probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from toktier_jax.errors import InputError
from toktier_jax.sampling.covers import Covers, cover_rules
from toktier_jax.sampling.distribution import ByteWalk
from toktier_jax.sampling.prompt import read_prompts
from toktier_jax.sampling.tree import plant
from toktier_jax.sampling.vocabulary import TokenizerLike, Vocabulary, vocabulary_of


def explain_boundary(
    tok: TokenizerLike, prompt: Any, lm: Any = None, *, context_start: int | None = None, top: int = 5
) -> str:
    """A few lines a node: its path, how many leaves it has, and the `top` of them (by probability, with a model)."""
    vocabulary, rules = vocabulary_of(tok), cover_rules(tok)
    contexts, batch = read_prompts(tok, prompt, "exact", context_start)
    if batch:
        raise InputError("prompt: one text at a time, not a list")
    context = contexts[0]
    covers = rules.covers(context.ids, context.text)
    tree = plant(covers.trunk, covers.nodes)
    own = context.ids
    extra = len(tree.trunk) + tree.branches - len(own)
    lines = [
        f"prompt     {context.text!r}",
        f"its ids    {len(own)}: ... {_spell(vocabulary, own[-6:])}",
        f"open end   {covers.rest!r}, {len(covers.nodes)} nodes, {len(covers.leaves[0])} leaves",
        f"forwarded  {len(tree.trunk)} trunk + {tree.branches} branch tokens, {extra:+d} against the prompt's own ids",
    ]
    shares = None
    if lm is not None:
        shares, mass = _shares(ByteWalk(lm, tok, prompt, context_start=context_start), covers)
        lines.append(f"log p(end) {mass:.4f}: the covers' share of all texts that begin as the trunk does")
    for number, node in enumerate(covers.nodes):
        inside = covers.leaves[0] == number
        tokens = covers.leaves[1][inside]
        here = None if shares is None else shares[inside]
        order = np.arange(len(tokens)) if here is None else np.argsort(-here)
        total = "" if here is None else f", {here.sum():.4f} of the mass"
        lines.append(f"\nnode {_spell(vocabulary, node.path) or '(the trunk)'}: {len(tokens)} leaves{total}")
        for at in order[:top].tolist():
            past = vocabulary.strings[tokens[at]][covers.skip(number) :]
            share = "" if here is None else f"{here[at]:.4f}  "
            lines.append(f"  {share}{vocabulary.strings[tokens[at]]!r} goes on with {past!r}")
        if len(tokens) > top:
            lines.append(f"  ... {len(tokens) - top} more")
    return "\n".join(lines)


def _shares(walk: ByteWalk, covers: Covers) -> tuple[np.ndarray, float]:
    rows, ways = walk.nodes(covers)
    nodes, tokens = covers.leaves
    scores = ways[nodes] + np.stack(rows)[nodes, tokens]
    total = float(np.logaddexp.reduce(scores))
    return np.exp(scores - total), total


def _spell(vocabulary: Vocabulary, ids: Any) -> str:
    return " ".join(repr(vocabulary.strings[id] or f"<id {id}>") for id in ids)
