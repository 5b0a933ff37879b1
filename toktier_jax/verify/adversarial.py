"""Texts made to break a tokenizer, from its own classes, patterns, literals and tokens. campaign.py uses them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import Alt, Atom, End, Look, Node, Repeat, Seq
from toktier_jax.program.classes import partition, probe, single
from toktier_jax.program.pattern import Parsed, parse_pattern
from toktier_jax.spec import types as spec_types
from toktier_jax.spec.types import GPT2_PATTERN, Pattern, TokenizerSpec

HARD = (
    "\0\t\n\r\x1f\x7f\x85\xa0\xad\u1680\u2003\u200b\u200d\u2028\u2029\u202f\u205f\u3000\ufeff\ufffd\ufffe\uffff"
    "\u0300\u0301\u0323\u0327\u0345\u064b\u093c\u0e33\u1100\u1161\u11a8\uac00\uac01\u302a\ufe0f\U0001f3fd"
    "ſKåÅßẞİıǅﬁﬆΣςéñ①½٣७Ⅷ々ーｱ゙、。·’“…¿€₹√▁Ġ\ue000\U0001f469\U0001f1e9\U00020000\U000e0041\U0010ffff"
)
"""Characters that normalizers, case folding, class definitions and UTF-8 treat in ways of their own."""

_COMPONENTS: dict[type, tuple[str, ...]] = {
    spec_types.Digits: ("Digits",),
    spec_types.Punctuation: ("Punctuation",),
    spec_types.Whitespace: ("Whitespace.word", "Whitespace.space"),
    spec_types.WhitespaceSplit: ("WhitespaceSplit",),
    spec_types.BertPreTokenizer: ("Bert.space", "Bert.punctuation"),
}
_CONTEXTS = ("{}", "a{}", "{}a", " {}", "{} ", "{}\n", "'{}", "1{}1")
_SAMPLES = 4


@dataclass(frozen=True)
class Alphabet:
    """What the texts of one tokenizer are built of.

    classes   a few characters of every class that the tokenizer tells apart, those of each UTF-8 length
    patterns  its patterns, to draw matching strings from, each with the characters of its own classes
    literals  contents of added tokens
    tokens    some strings of the vocabulary
    """

    classes: tuple[str, ...]
    patterns: tuple[tuple[Node, tuple[str, ...]], ...]
    literals: tuple[str, ...]
    tokens: tuple[str, ...]


def alphabet(spec: TokenizerSpec, token_strings: Sequence[str] = ()) -> Alphabet:
    """The alphabet of a tokenizer; `token_strings` are strings that encode to one token each."""
    parsed = list[Parsed]()
    for pattern in _patterns(spec):
        try:
            parsed.append(parse_pattern(pattern, spec.dialect))
        except UnsupportedError:  # the reference then runs; the other sources still make texts
            continue
    masks = [probe(expression, spec.dialect) for each in parsed for expression in each.classes]
    owners = list(itertools.accumulate([len(each.classes) for each in parsed], initial=0))
    for step in spec.pre_tokenizers:
        masks += [probe(name, "component") for name in _COMPONENTS.get(type(step), ())]
    masks += [probe(r"\s", "oniguruma"), probe(r"\w", "oniguruma"), single("'")]
    cut = partition(masks)
    class_of = cut.lookup(np.arange(0x110000))
    members = [_representatives(np.flatnonzero(class_of == k)) for k in range(cut.count)]
    of_mask = ["".join(members[k] for k in np.flatnonzero(column)) for column in cut.members.T]
    literals = tuple(token.content for token in spec.added_tokens)
    patterns = [(each.root, tuple(of_mask[owners[i] : owners[i + 1]])) for i, each in enumerate(parsed)]
    return Alphabet(tuple(filter(None, members)), tuple(patterns), literals, tuple(token_strings))


def systematic(letters: Alphabet) -> Iterator[str]:
    """Every class, every ordered pair of classes, every literal with its prefixes and neighbours: short texts."""
    yield ""
    for char in (*itertools.chain(*letters.classes), *HARD):
        yield from (context.format(char) for context in _CONTEXTS)
    for first, second in itertools.product(letters.classes, repeat=2):
        pair = first[0] + second[-1]
        yield from (pair, pair * 2, f"{pair} {pair}")
    for literal in letters.literals[:60]:
        yield from (literal[:stop] for stop in range(1, len(literal)))
        yield from (literal[start:] for start in range(1, len(literal)))
        yield from (context.format(literal) for context in _CONTEXTS)
        yield from (literal * 2, literal + literal[:-1], literal.upper(), literal.lower(), f"a {literal} \n b")
        for members in letters.classes:
            yield from (members[0] + literal + members[-1], literal[:-1] + members[0])
    for first, second in itertools.product(letters.literals[:12], repeat=2):
        yield from (first + second, f"{first} {second}", first + second[1:])


def snippet(letters: Alphabet, rng: random.Random) -> str:
    """One random piece: a run, a matching string of a pattern or a torn one, a literal or a part of it, some tokens."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(rng.choice(letters.classes)) * rng.choice((1, 1, 1, 2, 3, 4, 7, 40))
    if kind == 1:
        return "".join(rng.choice(rng.choice(letters.classes)) for _ in range(rng.randint(1, 8)))
    if kind == 2 and letters.patterns:
        root, members = rng.choice(letters.patterns)
        match = _sample(root, members, rng)
        return match[: rng.randint(0, len(match))] if rng.random() < 0.3 else match
    if kind == 3 and letters.literals:
        literal = rng.choice(letters.literals)
        at = rng.randrange(len(literal))
        return rng.choice((literal, literal, literal[:at], literal[at:]))
    if kind == 4 and letters.tokens:
        return "".join(rng.choices(letters.tokens, k=rng.randint(1, 4)))
    if kind == 5:
        return "".join(rng.choices(" \n\t\r\xa0\u3000", weights=(8, 3, 1, 1, 1, 1), k=rng.choice((1, 1, 2, 3, 9))))
    if kind == 6:
        return rng.choice(HARD) * rng.choice((1, 1, 2))
    return "".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9)))


def adversarial_text(letters: Alphabet, rng: random.Random, size: int) -> str:
    """About `size` characters of snippets."""
    parts, have = list[str](), 0
    while have < size:
        parts.append(snippet(letters, rng))
        have += len(parts[-1]) + 1  # + 1: snippets can be empty
    return "".join(parts)


def mutated(text: str, letters: Alphabet, rng: random.Random) -> str:
    """`text` with some places cut out, doubled, changed in case, or overwritten by snippets."""
    parts, at = list[str](), 0
    while at < len(text):
        step = rng.randint(1, 200)
        part = text[at : at + step]
        at += step
        changed = (part[1:], part[:-1], part + part[-3:], part.upper(), part.swapcase(), part + snippet(letters, rng))
        parts.append(rng.choice((part, part, *changed)))
    return "".join(parts)


def _patterns(spec: TokenizerSpec) -> Iterator[Pattern]:
    for step in (*spec.normalizers, *spec.pre_tokenizers):
        if isinstance(step, spec_types.Split | spec_types.Replace):
            yield step.pattern
        elif isinstance(step, spec_types.ByteLevel) and step.use_regex:
            yield Pattern(GPT2_PATTERN, regex=True)


def _representatives(code_points: np.ndarray) -> str:
    """A few characters: the first, the last and some between of each UTF-8 length; no surrogates."""
    chosen = list[int]()
    for low, high in ((0, 0x80), (0x80, 0x800), (0x800, 0x10000), (0x10000, 0x110000)):
        inside = code_points[(code_points >= low) & (code_points < high)]
        inside = inside[(inside < 0xD800) | (inside >= 0xE000)]
        if len(inside):
            chosen += inside[np.linspace(0, len(inside) - 1, min(_SAMPLES, len(inside))).astype(int)].tolist()
    return "".join(map(chr, dict.fromkeys(chosen)))


def _sample(node: Node, members: tuple[str, ...], rng: random.Random) -> str:
    """A string that `node` is likely to match, what its look-aheads want included."""
    match node:
        case Atom(index):
            return rng.choice(members[index]) if members[index] else ""
        case Seq(items):
            return "".join(_sample(item, members, rng) for item in items)
        case Alt(items):
            return _sample(rng.choice(items), members, rng)
        case Repeat(item, minimum, maximum):
            most = minimum + 4 if maximum is None else maximum + 1
            return "".join(_sample(item, members, rng) for _ in range(rng.randint(minimum, max(most, minimum))))
        case Look(item, negative):
            return "" if negative else _sample(item, members, rng)
        case End():
            return ""
