"""Covers: the canonical token sequences whose last token begins inside a prompt and reaches its end. No model.

After Hayase and others, Sampling from Your Language Model One Byte at a Time (arXiv 2506.14123), with pieces that are
still undecided taken in all their splits. A node is a token path that ends inside the prompt; a leaf is a node and one
more token. `C` leaves end at or past the prompt's end (its probability, sampling); `C+` leaves strictly past it (the
next byte). Never mix them: the prompt's own encoding would be counted twice.
"""

from __future__ import annotations

import bisect
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.sampling.canonical import Canonical
from toktier_jax.sampling.characters import unfinished
from toktier_jax.sampling.merges import merges_of
from toktier_jax.sampling.normal_form import NormalForm, normal_form
from toktier_jax.sampling.splits import Open, Splitter
from toktier_jax.sampling.vocabulary import TokenizerLike, Vocabulary, decoder_types, vocabulary_of
from toktier_jax.spec import types

LONGEST_PAST = 1 << 10
"""Bytes of an undecided end after which C+ is found, at most. Every token may follow there, and each has a row of all
these bytes: with 32,768 tokens, and 104,401 rows, 1,024 bytes take 22 s of one core and 0.4 GB."""

_CACHED = 256
_NONE = np.zeros(0, np.int32)


class Node(NamedTuple):
    """Tokens from the open end's start on, and how many bytes of the open end they spell."""

    path: tuple[int, ...]
    at: int


@dataclass(frozen=True, eq=False)
class Covers:
    """The covers of one prompt.

    trunk     ids before the open end, which all covers share (special tokens included)
    nodes     the nodes that have leaves, shortest first
    leaves    (number of the node int32 [n], token int32 [n]) of C
    strict    the same of C+, with the bytes after the prompt's end that each leaf begins with: uint8 [n]
    end       the node that is the prompt's own encoding, from which the end of the text hangs; None inside a character
    rest      bytes from the open end's start to the prompt's end
    """

    trunk: tuple[int, ...]
    nodes: tuple[Node, ...]
    leaves: tuple[np.ndarray, np.ndarray]
    strict: tuple[np.ndarray, np.ndarray, np.ndarray]
    end: Node | None
    rest: bytes

    def skip(self, number: int) -> int:
        """How many bytes of a leaf of nodes[number] are the prompt's."""
        return len(self.rest) - self.nodes[number].at


@dataclass(eq=False)
class CoverRules:
    """What covers need of a tokenizer, made once: see `cover_rules`."""

    vocabulary: Vocabulary
    canonical: Canonical
    plain: np.ndarray  # int32 [n]: places in vocabulary.order of tokens that are no added tokens, ascending
    holding: np.ndarray  # bool [V]: tokens whose bytes hold the literal of an added token
    literals: tuple[tuple[bytes, int], ...]  # of added tokens that can be found in a text as they are written
    free: np.ndarray | None  # bool [V]: tokens after which a text in the normal form stays in it; None without a form
    stripping: frozenset[int]  # added tokens that take white space behind them (rstrip)
    _known: OrderedDict[Any, Any] = field(default_factory=OrderedDict)

    def covers(self, ids: Sequence[int], text: bytes, *, strict: bool = False) -> Covers:
        """The covers of a context: `ids`, whose last tokens spell `text`, the bytes after the last added token.

        `strict` makes the leaves of C+ too, otherwise they are empty.

        Raises InputError for bytes that cannot become UTF-8, or a text in the tokenizer's normal form; UnsupportedError
        for what the vocabulary cannot spell, right after a special token that takes the white space behind it, and for
        an undecided end of more than `splits.LONGEST` bytes, or LONGEST_PAST if `strict`.
        """
        self.check_form(text)
        if ids and ids[-1] in self.stripping and not self.whole(text):
            raise UnsupportedError(
                f"no exact covers right after the special token of id {ids[-1]}, which takes the white space behind it"
            )
        pending = self._pending(text)
        begin = self.canonical.splitter.open(text, min((at for at, _ in pending), default=None))
        rest = begin.data
        if strict and len(rest) > LONGEST_PAST:
            raise UnsupportedError(
                f"no next byte where the last {len(rest)} bytes are undecided, of at most {LONGEST_PAST}: each "
                "token of the vocabulary is tried after them"
            )
        nodes = self._nodes(begin)
        found = {node: self._leaves(begin, node, text, past=False) for node in nodes}
        past = {node: self._leaves(begin, node, text, past=True) if strict else _NONE for node in nodes}
        part = unfinished(text)
        end = None if part else self._encoded(begin, len(rest))
        for at, id in pending:
            node = self._encoded(begin, at - begin.start)
            if at < len(text):
                found[node] = np.append(found.get(node, _NONE), np.int32(id))
            if strict:
                past[node] = np.append(past.get(node, _NONE), np.int32(id))
        kept = [
            node
            for node in sorted({*found, *past}, key=lambda node: (node.at, node.path))
            if len(found.get(node, _NONE)) or len(past.get(node, _NONE))
        ]
        if end is not None and strict and end not in kept:
            kept.append(end)
        firsts = [self._firsts(past.get(node, _NONE), len(rest) - node.at) for node in kept]
        return Covers(
            trunk=self.before(ids, len(text) - len(part) - begin.start),
            nodes=tuple(kept),
            leaves=_flat([found.get(node, _NONE) for node in kept]),
            strict=(*_flat([past.get(node, _NONE) for node in kept]), np.concatenate([*firsts, np.zeros(0, np.uint8)])),
            end=end,
            rest=rest,
        )

    def check_form(self, text: bytes) -> None:
        """Raises InputError for bytes with which no text in the tokenizer's normal form begins."""
        form = self.canonical.splitter.form
        if form is not None and not text.isascii() and not form.begins(text):
            raise InputError(f"no text in the tokenizer's normal form, {form.name}, has the bytes {form.end(text)!r}")

    @staticmethod
    def whole(text: bytes) -> bytes:
        """`text` without the first bytes of a character at its end."""
        return text[: len(text) - len(unfinished(text))]

    def encode(self, text: bytes) -> tuple[int, ...]:
        """Ids of a text without added tokens, which may end inside a character, by pieces and merges."""
        return self.canonical.encoded(Open(0, text, self.canonical.splitter.begin))

    def _pending(self, text: bytes) -> list[tuple[int, int]]:
        """(byte, id) of added tokens, none special, whose literal may begin at that byte and go on after the end.

        Without those that begin inside another, earlier one which whatever completes them completes before: the
        leftmost is taken. None begins inside a character.
        """
        last = len(text) - bool(unfinished(text))
        begun = [
            (at, literal, id)
            for literal, id in self.literals
            for at in range(max(0, len(text) - len(literal) + 1), last + 1)
            if literal.startswith(text[at:])
        ]

        inside = [(at, literal) for at, literal, _ in begun if at < len(text)]

        def first(at: int, literal: bytes) -> bool:
            rest = literal[len(text) - at :]
            return not any(
                before < at < before + len(other) and rest.startswith(other[len(text) - before :])
                for before, other in inside
            )

        special = self.vocabulary.special
        return [(at, id) for at, literal, id in begun if id not in special and first(at, literal)]

    def before(self, ids: Sequence[int], open_bytes: int) -> tuple[int, ...]:
        """The ids without those that spell the last `open_bytes` bytes."""
        count = len(ids)
        while open_bytes > 0 and count:
            count -= 1
            open_bytes -= len(self.vocabulary.strings[ids[count]])
        if open_bytes:
            raise UnsupportedError("no exact covers for ids that are not what the tokenizer gives")
        return tuple(ids[:count])

    # ---- nodes ----

    def _nodes(self, begin: Open) -> list[Node]:
        """The paths that some split allows and that a token can go on from to the prompt's end."""
        rest = begin.data
        splits = np.unique(self.canonical.splitter.rows(begin, [b""])[1], axis=0)
        found: dict[Node, None] = {}
        for at in range(len(rest) + 1):
            lo, hi = self.vocabulary.range(rest[at:])
            if hi > lo:
                for split in splits:
                    found[Node(self.canonical.path(rest[:at], split), at)] = None
        return list(found)

    def _encoded(self, begin: Open, at: int) -> Node:
        """The node that is the encoding of the first `at` open bytes as a whole text."""
        return Node(self.canonical.encoded(begin.upto(at)), at)

    # ---- leaves ----

    def _leaves(self, begin: Open, node: Node, text: bytes, *, past: bool) -> np.ndarray:
        """Tokens of a node's leaves, int32: those that reach the prompt's end, or (`past`) go beyond it."""
        remaining = begin.data[node.at :]
        if not remaining and not past:
            return _NONE
        lo, hi = self.vocabulary.range(remaining)
        places = self.plain[bisect.bisect_left(self.plain, lo) : bisect.bisect_left(self.plain, hi)]
        tokens = self.vocabulary.order[places]
        if past:
            tokens = tokens[self.vocabulary.lengths[tokens] > len(remaining)]
        tails = self._tails(text)
        key = begin, node, past, tails
        if (known := self._known.get(key)) is None:
            tokens = self._without_literals(tokens, tails, len(remaining))
            tokens = self._in_form(tokens, begin.data, len(remaining))
            known = self._known[key] = self.canonical.following(begin, node.path, node.at, tokens)
            if len(self._known) > _CACHED:
                self._known.popitem(last=False)
        return known

    def _tails(self, text: bytes) -> tuple[bytes, ...]:
        """What would complete an added token's literal that the text's end begins."""
        return tuple(
            literal[begun:]
            for literal, _ in self.literals
            for begun in range(1, len(literal))
            if text.endswith(literal[:begun])
        )

    def _without_literals(self, tokens: np.ndarray, tails: tuple[bytes, ...], skip: int) -> np.ndarray:
        """Without those that complete an added token's literal, which the encode would take for that token."""
        tokens = tokens[~self.holding[tokens]]
        if not tails:
            return tokens
        more = [self.vocabulary.strings[token][skip:] for token in tokens.tolist()]
        return tokens[np.array([not string.startswith(tails) for string in more], bool)]

    def _in_form(self, tokens: np.ndarray, data: bytes, skip: int) -> np.ndarray:
        """Those with which a text that goes on from `data` can be in the normal form."""
        form = self.canonical.splitter.form
        if form is None or self.free is None:
            return tokens
        end, kept = form.end(data), self.free[tokens]
        for at in np.flatnonzero(~kept).tolist():
            kept[at] = form.begins(end + self.vocabulary.strings[tokens[at]][skip:])
        return tokens[kept]

    def _firsts(self, tokens: np.ndarray, skip: int) -> np.ndarray:
        strings = self.vocabulary.strings
        return np.array([strings[token][skip] for token in tokens.tolist()], np.uint8)


_rules: weakref.WeakKeyDictionary[Any, CoverRules] = weakref.WeakKeyDictionary()


def cover_rules(tok: TokenizerLike) -> CoverRules:
    """The CoverRules of a tokenizer, made once. Raises UnsupportedError, by name, for what has no exact covers."""
    if (found := _rules.get(tok)) is None:
        spec, vocabulary = tok.spec, vocabulary_of(tok)
        form = normal_form(spec.normalizers)
        if "WordPiece" in decoder_types(spec):
            raise UnsupportedError("no exact covers with the decoder WordPiece")
        for step in spec.pre_tokenizers:
            if isinstance(step, types.Metaspace) or getattr(step, "add_prefix_space", False):
                raise UnsupportedError("no exact covers with a prefix before the text")
        for token in spec.added_tokens:
            if form is not None and not _keeps(form, token):
                raise UnsupportedError(f"no exact covers with {form.name} and the added token {token.content!r}")
            if token.single_word or (not token.special and (token.lstrip or token.rstrip)):
                raise UnsupportedError(
                    f"no exact covers with the added token {token.content!r} (lstrip, rstrip or single_word)"
                )
        if (pair := _nested(vocabulary)) is not None:
            raise UnsupportedError(f"no exact covers with the added token {pair[0]!r}, which holds {pair[1]!r}")
        if (pair := _found_later(spec.added_tokens)) is not None:
            raise UnsupportedError(
                f"no exact covers with the added tokens {pair[0]!r} (normalized) and {pair[1]!r} (not), of which the "
                "second is found first also where it begins in the other"
            )
        canonical = Canonical(vocabulary, merges_of(spec, vocabulary.strings), Splitter(spec))
        plain = np.array([p for p, id in enumerate(vocabulary.order.tolist()) if id not in vocabulary.added], np.int32)
        literals = tuple(sorted(vocabulary.literals.items()))
        free = None if form is None else np.array([_free(form, string) for string in vocabulary.strings], bool)
        stripping = frozenset(token.id for token in spec.added_tokens if token.rstrip)
        found = _rules[tok] = CoverRules(vocabulary, canonical, plain, _holding(vocabulary), literals, free, stripping)
    return found


def _keeps(form: NormalForm, token: types.AddedToken) -> bool:
    """Whether an added token is found in texts in the form alone, and whatever is before and after it.

    One that is looked for after the normalizer could compose with what follows.
    """
    content = token.content
    return not token.normalized and form.holds(content) and not (content and form.contextual[ord(content[0])])


def _free(form: NormalForm, string: bytes) -> bool:
    """Whether the bytes are characters that each may come after any text in the form."""
    try:
        codes = [ord(char) for char in string.decode()]
    except UnicodeDecodeError:
        return False
    return string.isascii() or bool(form.free[codes].all())


def _found_later(added: Sequence[types.AddedToken]) -> tuple[str, str] | None:
    """A normalized token and one that is not and begins inside it, not both special: the second is looked for first."""
    ends = {
        (token.content[at:], token.special): token.content
        for token in added
        if token.normalized
        for at in range(1, len(token.content))
    }
    for token in added:
        for size in range(1, len(token.content)) if not token.normalized else ():
            for special in (False, True):
                other = ends.get((token.content[:size], special))
                if other is not None and not (special and token.special):
                    return other, token.content
    return None


def _holding(vocabulary: Vocabulary) -> np.ndarray:
    """bool [V]: tokens whose bytes hold the literal of an added token. One search a literal, over all tokens joined."""
    joined = b"\xff".join(vocabulary.strings)  # a byte that no literal has
    ends = np.cumsum([len(string) + 1 for string in vocabulary.strings])
    found = np.zeros(len(vocabulary.strings), bool)
    for literal in vocabulary.literals:
        at = joined.find(literal)
        while at >= 0:
            found[np.searchsorted(ends, at, side="right")] = True
            at = joined.find(literal, at + 1)
    return found


def _nested(vocabulary: Vocabulary) -> tuple[str, str] | None:
    """An added token and another in it: which of them a text holds only what follows tells.

    Not two special ones of which the inner begins later: whatever completes it completes the outer one, or neither.
    """
    literals = vocabulary.literals
    for outer, id in literals.items():
        for at in range(len(outer)):
            for end in range(at + 1, len(outer) + (at > 0)):
                inner = literals.get(outer[at:end])
                if inner is not None and not (at and {id, inner} <= vocabulary.special):
                    return outer.decode(), outer[at:end].decode()
    return None


def _flat(found: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(number of the node, token) of the leaves of each node in turn."""
    numbers = np.repeat(np.arange(len(found), dtype=np.int32), [len(tokens) for tokens in found])
    return numbers, np.concatenate([*found, np.zeros(0, np.int32)]).astype(np.int32)
