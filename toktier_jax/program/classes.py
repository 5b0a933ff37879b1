r"""Which characters a class expression matches, asked of the reference engine itself, and the partition they make.

Membership is never taken from another Unicode library: versions differ on thousands of code points, case folding puts
U+017F into `(?i:s)`, and `Digits` or `Punctuation` are not `\p{N}` or `\p{P}`. A mask is bool [0x110000], False for
surrogates. Probes are cached on disk by engine version and expression.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from toktier_jax.errors import SpecError, UnsupportedError
from toktier_jax.program import cache
from toktier_jax.program.pattern import literal_class, long_folds
from toktier_jax.spec.types import Dialect

CODE_POINTS = 0x110000
MAX_CLASSES = 250
"""Symbols from here on have a meaning of their own (CONT, PAD): see docs/architecture.md."""

Mask = np.ndarray
Probe = Callable[[str, "Dialect | Literal['component']"], Mask]


def probe(expression: str, dialect: Dialect | Literal["component"]) -> Mask:
    """The code points that `expression` matches: bool [0x110000].

    `expression` is a class of the dialect's own syntax, or with "component" a predicate of the `tokenizers` library:
    "Digits", "Punctuation", "WhitespaceSplit", "Whitespace.word", "Whitespace.space", "Bert.space",
    "Bert.punctuation". Raises SpecError where the engine rejects it, UnsupportedError where it can match two
    characters at once.
    """
    if dialect != "component" and (mask := _literal(expression)) is not None:
        return mask
    engine = "tiktoken" if dialect == "tiktoken" else "tokenizers"
    key = "\0".join((dialect, importlib.metadata.version(engine), cache.source(__file__), expression))
    entry = f"classes/{hashlib.sha256(key.encode()).hexdigest()}"
    if (stored := cache.load(entry)) is not None:
        return np.repeat(stored[1]["values"], np.diff(stored[1]["edges"]))
    ask = {"oniguruma": _ask_oniguruma, "tiktoken": _ask_tiktoken, "component": _ask_component}[dialect]
    mask = ask(expression)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(mask)) + 1, [CODE_POINTS]]).astype(np.int32)
    cache.store(entry, expression, {"edges": edges, "values": mask[edges[:-1]]})
    return mask


def single(char: str) -> Mask:
    """The mask of one character."""
    mask = np.zeros(CODE_POINTS, bool)
    mask[ord(char)] = True
    return mask


def everything() -> Mask:
    """The mask of all characters."""
    mask = np.ones(CODE_POINTS, bool)
    mask[0xD800:0xE000] = False
    return mask


# ---- the engines ----


@functools.cache
def all_characters() -> str:
    """Every code point but the surrogates, in order."""
    return "".join(map(chr, (*range(0xD800), *range(0xE000, CODE_POINTS))))


def _members(text: str) -> Mask:
    mask = np.zeros(CODE_POINTS, bool)
    mask[np.frombuffer(text.encode("utf-32-le"), np.uint32)] = True
    return mask


def _literal(expression: str) -> Mask | None:
    """A lone character needs no engine."""
    if expression.startswith("\\x{"):
        char = chr(int(expression[3:-1], 16))
        return single(char) if literal_class(char) == expression else None
    return single(expression) if len(expression) == 1 and literal_class(expression) == expression else None


@functools.cache
def _normalized_characters():  # the reference's own string type, built once: it costs more than a probe
    from tokenizers import NormalizedString

    return NormalizedString(all_characters())


def _ask_oniguruma(expression: str) -> Mask:
    from tokenizers import NormalizedString, Regex

    try:
        regex = Regex(f"(?:{expression})+")
    except Exception as error:
        raise SpecError(f"the reference rejects the expression {expression!r}: {error}") from None
    # Under (?i: a class can match a whole case folding (`(?i:[ﬆ])` matches `st`); no class of characters can say that.
    fence = "\U0010fffe"
    folds = NormalizedString(fence + fence.join(_long_folds()) + fence)
    folds.replace(Regex(f"{fence}(?:{expression})(?={fence})"), "")
    if len(folds.normalized) != len(folds.original):
        raise UnsupportedError(f"the class {expression!r} can match more than one character at once")
    gaps = _normalized_characters().split(regex, "removed")
    return everything() & ~_members("".join(gap.normalized for gap in gaps))


@functools.cache
def _long_folds() -> tuple[str, ...]:
    """Every case folding of more than one character, as folded and as upper case."""
    folds = long_folds()
    return tuple(sorted(folds | {fold.upper() for fold in folds if len(fold.upper()) > 1}))


def _ask_tiktoken(expression: str) -> Mask:
    import tiktoken

    ranks = {bytes([byte]): byte for byte in range(256)}
    try:
        encoding = tiktoken.Encoding("probe", pat_str=f"(?:{expression})+", mergeable_ranks=ranks, special_tokens={})
    except Exception as error:
        raise SpecError(f"tiktoken rejects the expression {expression!r}: {error}") from None
    # Characters outside every match are dropped, and each byte is its own token.
    return _members(bytes(encoding.encode_ordinary(all_characters())).decode())


def _ask_component(name: str) -> Mask:
    from tokenizers import pre_tokenizers

    letter, hyphen = "a", "-"
    if name == "Digits":
        return _alone(pre_tokenizers.Digits(individual_digits=True), letter)
    if name == "Punctuation":
        return _alone(pre_tokenizers.Punctuation("isolated"), letter)
    if name == "Bert.punctuation":
        return _alone(pre_tokenizers.BertPreTokenizer(), letter)
    if name == "Whitespace.word":  # between hyphens a word character stands alone, others join them
        return _alone(pre_tokenizers.Whitespace(), hyphen) | single(letter)
    dropped = {
        "Bert.space": pre_tokenizers.BertPreTokenizer(),
        "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(),
        "Whitespace.space": pre_tokenizers.Whitespace(),
    }
    if name not in dropped:
        raise SpecError(f"no predicate {name!r}")
    return everything() & ~_members("".join(_pieces(dropped[name], all_characters())))


def _pieces(component, text: str) -> list[str]:
    from tokenizers import PreTokenizedString

    string = PreTokenizedString(text)
    component.pre_tokenize(string)
    return [split[0] for split in string.get_splits(offset_referential="normalized", offset_type="byte")]


def _alone(component, sentinel: str) -> Mask:
    """Characters that `component` cuts off on both sides from a sentinel that is not one of them."""
    pieces = _pieces(component, sentinel + sentinel.join(all_characters()) + sentinel)
    return _members("".join(piece for piece in pieces if len(piece) == 1 and piece != sentinel))


# ---- the partition ----


@dataclass(frozen=True, eq=False)
class Partition:
    """Code points in classes that no mask tells apart, numbered by their first code point.

    pages    uint8 or uint16 [0x1100]   page of `code point >> 8`
    table    uint8 [P, 256]             class of a page's code points; P is padded to a power of two
    members  bool [count, masks]        whether a class lies in a mask
    """

    pages: np.ndarray
    table: np.ndarray
    members: np.ndarray

    @property
    def count(self) -> int:
        return len(self.members)

    def lookup(self, code_points: np.ndarray) -> np.ndarray:
        """Class uint8 [...] of code points int [...]."""
        return self.table[self.pages[code_points >> 8], code_points & 255]


def partition(masks: Sequence[Mask]) -> Partition:
    """The coarsest partition that respects every mask. Raises UnsupportedError beyond 250 classes."""
    changes = [np.flatnonzero(mask[1:] != mask[:-1]) + 1 for mask in masks]
    starts = np.unique(np.concatenate([[0, 0xE000], *changes]))
    starts = starts[starts != 0xD800]  # surrogates never occur: they join what stands before them
    rows, run_class = first_seen(np.array([mask[starts] for mask in masks], bool).reshape(len(masks), -1).T)
    if len(rows) > MAX_CLASSES:
        raise UnsupportedError(f"{len(rows)} character classes; at most {MAX_CLASSES} fit")
    classes = np.repeat(run_class.astype(np.uint8), np.diff(np.append(starts, CODE_POINTS)))
    distinct: dict[bytes, int] = {}
    pages = np.array([distinct.setdefault(page.tobytes(), len(distinct)) for page in classes.reshape(-1, 256)])
    table = np.zeros((1 << (len(distinct) - 1).bit_length(), 256), np.uint8)
    table[: len(distinct)] = np.frombuffer(b"".join(distinct), np.uint8).reshape(-1, 256)
    return Partition(pages.astype(np.uint8 if len(table) <= 256 else np.uint16), table, rows)


def first_seen(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows in order of first appearance, and the index of each row among them."""
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return rows[np.sort(first)], np.argsort(order)[inverse.reshape(-1)]
