"""The model's distribution over text: of the next byte, of a prompt, of a continuation; and sampling byte by byte."""

from __future__ import annotations

from typing import Any

import numpy as np

from toktier_jax.errors import InputError
from toktier_jax.sampling.bytetree import PathTree
from toktier_jax.sampling.characters import unfinished
from toktier_jax.sampling.covers import Covers, cover_rules
from toktier_jax.sampling.normal_form import normalized
from toktier_jax.sampling.prompt import NO_CONTEXT, TEXTS, Context, read_prompts, utf8
from toktier_jax.sampling.request import check_number, divisor
from toktier_jax.sampling.tree import plant
from toktier_jax.sampling.vocabulary import TokenizerLike, check_model, padded, vocabulary_of

END = 256
"""The index of the end of text: every special token, whole."""


def next_byte_distribution(lm: Any, tok: TokenizerLike, prompt: Any, *, context_start: int | None = None) -> np.ndarray:
    """Probabilities of what follows in texts that begin with `prompt`: np.float64 [257], its sum 1.

    Element b is that of the byte b, element 256 that of the text's end (any special token, whole). The covers C+ of the
    prompt (arXiv 2506.14123) have the model's own weights at temperature 1, normalized once.

    prompt         one text as str or bytes (it may end inside a character), or a list of ids
    context_start  an id that every context begins with; needed where the tokenizer adds no BOS

    Raises UnsupportedError, by name, for tokenizers that have no exact covers, and for ids that the tokenizer does not
    give; InputError for a list of prompts, bytes that cannot become UTF-8 or that the vocabulary cannot spell, a text
    without context, one longer than the model's context, a model that does not fit the tokenizer, and NaN logits.
    """
    walk = ByteWalk(lm, tok, prompt, context_start=context_start)
    return np.exp(walk.next())


def sample_bytes(
    lm: Any,
    tok: TokenizerLike,
    prompt: Any,
    *,
    max_bytes: int = 64,
    temperature: float = 1.0,
    seed: int = 0,
    context_start: int | None = None,
) -> bytes:
    """Bytes past `prompt`, each drawn from the next-byte distribution, until the text ends or there are `max_bytes`.

    They may end inside a character. The same seed gives the same bytes.

    max_bytes    from 0 on
    temperature  acts on the model's conditionals, once; 0 takes the most probable byte at temperature 1, the least is
                 1e-6
    seed         a whole number of 64 bits
    prompt, context_start  as in `next_byte_distribution`

    Raises what `next_byte_distribution` raises, and InputError for numbers out of range.
    """
    max_bytes = check_number("max_bytes", max_bytes, (0, 1 << 24))
    temperature, seed = check_number("temperature", temperature), check_number("seed", seed)
    walk = ByteWalk(lm, tok, prompt, context_start=context_start, temperature=divisor(temperature))
    random, data = np.random.default_rng(seed % (1 << 64)), b""
    while len(data) < max_bytes:
        shares = np.exp(walk.next())
        byte = int(np.argmax(shares)) if temperature == 0 else int(random.choice(257, p=shares / shares.sum()))
        if byte == END:
            break
        data += bytes([byte])
        walk.push(byte)
    return data


def prompt_logprob(lm: Any, tok: TokenizerLike, text: Any, *, context_start: int | None = None) -> float:
    """log p, in nats, of the texts that begin with `text`, given BOS or `context_start`: the sum over its covers C.

    `text` is str, bytes (it may end inside a character) or a list of ids, whose first is not scored if it is special.
    An empty text has 0.0.

    Raises what `next_byte_distribution` raises. InputError, too, where no first id is given: ids that begin with no
    special token, or a tokenizer that adds no BOS, without `context_start`.
    """
    return ByteWalk(lm, tok, text, context_start=context_start).logprob()


def score(
    lm: Any, tok: TokenizerLike, prompt: Any, continuation: str | bytes, *, context_start: int | None = None
) -> float:
    """log p(the text goes on with `continuation` | it begins with `prompt`), in nats, whatever the boundary's tokens.

    The difference of two `prompt_logprob`. `prompt` and `continuation` are str or bytes, which may be cut inside a
    character: bytes are joined first.

    Raises what `prompt_logprob` raises, and InputError for ids: a continuation begins at a byte.
    """
    for what, text in (("prompt", prompt), ("continuation", continuation)):
        if not isinstance(text, TEXTS):
            raise InputError(f"{what}: {type(text).__name__} is neither text nor bytes, which score needs")
    begin = utf8(prompt, "the prompt")
    whole = begin + utf8(continuation, "the continuation")
    vocabulary = vocabulary_of(tok)
    for literal, id in vocabulary.literals.items():
        if id in vocabulary.special and _straddles(literal, begin, whole):
            raise InputError(
                f"the continuation ends the special token {literal.decode()!r}, which the prompt begins: texts that "
                "spell one have no probability. Put all of it into the continuation, or into the prompt"
            )
    unfinished(whole, what="the prompt with the continuation")
    if not normalized(tok.spec, whole).startswith(normalized(tok.spec, begin)):
        raise InputError(
            "the continuation composes with the prompt's end, or changes places with it, in the tokenizer's normal "
            "form: the prompt is another text then. Put all of the character into the continuation, or into the prompt"
        )
    return prompt_logprob(lm, tok, whole, context_start=context_start) - prompt_logprob(
        lm, tok, prompt, context_start=context_start
    )


def _straddles(literal: bytes, begin: bytes, whole: bytes) -> bool:
    """Whether `whole` has the literal at a place that lies on both sides of the end of `begin`."""
    first = max(0, len(begin) - len(literal) + 1)
    return whole.find(literal, first, len(begin) + len(literal) - 1) >= 0


class ByteWalk:
    """A text that grows byte by byte, with the covers of its end and the model's log-probs of their nodes.

    tree  how many calls and tokens that took
    """

    def __init__(
        self, lm: Any, tok: TokenizerLike, prompt: Any, *, context_start: int | None = None, temperature: float = 1.0
    ) -> None:
        check_model(tok, lm)
        contexts, batch = read_prompts(tok, prompt, "exact", context_start)
        if batch:
            raise InputError("prompt: one text at a time, not a list")
        if not temperature > 0:
            raise InputError(f"temperature={temperature}: expected a number above 0")
        self.rules, self.vocabulary = cover_rules(tok), vocabulary_of(tok)
        context: Context = contexts[0]
        self.text, self.ids = context.text, context.ids
        self.before = self.rules.before(self.ids, len(self.text) - len(context.tail))  # the ids before those of `text`
        special = bool(self.ids) and self.ids[0] in self.vocabulary.special
        self.given = special or context_start is not None  # whether the first id is not scored
        known = padded(self.vocabulary.known, lm.vocab_size, False)
        self.tree = PathTree(lm, known, 2 * len(self.ids) + 128, temperature)

    def next(self) -> np.ndarray:
        """log of the next-byte distribution, float64 [257]."""
        covers = self.rules.covers(self.ids, self.text, strict=True)
        logprobs, ways = self.nodes(covers)
        nodes, tokens, firsts = covers.strict
        scores = ways[nodes] + _picked(logprobs, nodes, tokens)
        ends = np.zeros(0)
        if covers.end is not None:
            at = covers.nodes.index(covers.end)
            ends = ways[at] + logprobs[at][sorted(self.vocabulary.special)]
        every = np.concatenate([scores, ends])
        if not len(every):
            raise InputError("no token sequence of this vocabulary goes on with this text")
        top = every.max()
        groups = np.concatenate([firsts.astype(np.int64), np.full(len(ends), END)])
        mass = np.bincount(groups, np.exp(every - top), 257)
        with np.errstate(divide="ignore"):
            return np.log(mass / mass.sum())

    def push(self, byte: int) -> None:
        """The text goes on with `byte`. What it completes of an added token is that token.

        Raises InputError for a byte with which no text in the tokenizer's normal form goes on, and for one that
        completes a special token: texts that spell one have no probability.
        """
        text = self.text + bytes([byte])
        self.rules.check_form(text)
        found = [(literal, id) for literal, id in self.rules.literals if text.endswith(literal)]
        for literal, id in found:
            if id in self.vocabulary.special:
                raise InputError(f"the byte {byte:#04x} completes the special token {literal.decode()!r}")
        self.text = text
        for literal, id in found:
            if self.text.endswith(literal):
                self.before = (*self.before, *self.rules.encode(self.text[: -len(literal)]), id)
                self.text = b""
        self.ids = (*self.before, *self.rules.encode(self.rules.whole(self.text)))

    def logprob(self) -> float:
        """log of the covers' mass after the first id (BOS or `context_start`)."""
        covers = self.rules.covers(self.ids, self.text)
        if not self.given:
            raise InputError(NO_CONTEXT)
        total = self.tree.chain(plant(covers.trunk, covers.nodes).trunk)
        if not len(covers.leaves[0]):
            return total
        logprobs, ways = self.nodes(covers)
        nodes, tokens = covers.leaves
        return total + float(_logsumexp(ways[nodes] + _picked(logprobs, nodes, tokens)))

    def nodes(self, covers: Covers) -> tuple[list[np.ndarray], np.ndarray]:
        """Log-probs after each node of the covers, and float64 of the way to it from what all nodes share."""
        tree = plant(covers.trunk, covers.nodes)
        if not tree.trunk:
            raise InputError(NO_CONTEXT)
        paths = [tree.tokens[tree.path(node)].tolist() for node in range(len(tree.tokens))]
        rows = self.tree.logprobs(paths, tree.trunk)
        self.tree.forget()
        ways = np.zeros(len(paths))
        for node in range(1, len(paths)):
            parent = int(tree.parents[node])
            ways[node] = ways[parent] + rows[parent][tree.tokens[node]]
        return [rows[place] for place in tree.places], ways[tree.places]


def _picked(rows: list[np.ndarray], nodes: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return np.stack(rows)[nodes, tokens] if len(nodes) else np.zeros(0)


def _logsumexp(values: np.ndarray) -> np.floating:
    top = values.max()
    return top + np.log(np.exp(values - top).sum())
