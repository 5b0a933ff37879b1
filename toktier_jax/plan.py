"""The static side of an EncodeProgram: small frozen values that decide what is traced. No arrays, no algorithm.

A plan is hashable; two tokenizers with equal plans (and equal table shapes) share one executable. `program/` writes
plans next to the numpy tables they index, `ops/` reads both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# ---- a pattern after its classes were resolved: every leaf is a bit of the step's atom table ----


@dataclass(frozen=True)
class Atom:
    """One character whose class has bit `index` in the step's `atoms` table."""

    index: int


@dataclass(frozen=True)
class Seq:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Alt:
    """Ordered choice: the first alternative with which the whole pattern matches wins."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """Greedy `item{minimum,maximum}`; `maximum=None` is unbounded. A possessive loop gives nothing back."""

    item: Node
    minimum: int
    maximum: int | None
    possessive: bool = False


@dataclass(frozen=True)
class Look:
    """Look-ahead."""

    item: Node
    negative: bool


@dataclass(frozen=True)
class End:
    r"""`$`: the end of the segment, or also before any newline (Oniguruma; `newline` is its atom)."""

    newline: Atom | None


Node = Atom | Seq | Alt | Repeat | Look | End


@dataclass(frozen=True)
class SplitPlan:
    """Cuts every open segment by a pattern and a rule. Tables: see program/split.py."""

    unit: Literal["char", "byte"]
    behavior: Literal["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    invert: bool


@dataclass(frozen=True)
class QuickCheckPlan:
    """Fails when the text holds a character that the normalizer could change. Tables: `flags` bool [256].

    form  the Unicode form that makes a text pass, if the host brings it into that form; "" if there is none
    """

    form: str


@dataclass(frozen=True)
class AddedPlan:
    """Finds the added tokens of one pass. Tables: `AddedTables`, by program/added.py.

    longest      no literal has more bytes
    pairs        a literal begins with one of so many pairs of bytes; 0: a table of all pairs says with which
    lstrip, rstrip, single_word   whether a token of the pass has the flag
    """

    longest: int
    pairs: int
    lstrip: bool
    rstrip: bool
    single_word: bool


@dataclass(frozen=True)
class RewritePlan:
    """Rewrites the text of every open segment. Tables: `RewriteTables`, by program/rewrite.py."""

    def extra(self, size: int) -> int:
        """Bytes by which the buffer grows. Text that needs more makes `Buffer.length` larger than the buffer."""
        return 0


@dataclass(frozen=True)
class MapPlan(RewritePlan):
    """Replaces characters, each by a string of its own.

    narrow  single bytes become other single bytes
    wide    other characters change, too
    grows   a character may get more bytes than it had
    """

    narrow: bool
    wide: bool
    grows: bool

    def extra(self, size: int) -> int:
        return _some(size, 32) if self.grows else 0


@dataclass(frozen=True)
class PrefixPlan(RewritePlan):
    """Puts a string before every open segment.

    bytes   of the string
    unless  not where the segment begins with it
    first   only at the start of a text
    pieces  segments are pieces of an earlier split, each with a start that can be resumed at
    """

    bytes: int
    unless: bool
    first: bool
    pieces: bool

    def extra(self, size: int) -> int:
        return _some(size, 4 if self.pieces else 32)


@dataclass(frozen=True)
class StripPlan(RewritePlan):
    """Removes white space at the ends of every open segment."""

    left: bool
    right: bool


@dataclass(frozen=True)
class LiteralPlan(RewritePlan):
    """Replaces each occurrence of a string, leftmost first.

    find     finds it
    bytes    of the string
    last     of its last character
    content  of what replaces it
    """

    find: AddedPlan
    bytes: int
    last: int
    content: int

    def extra(self, size: int) -> int:
        return _some(size, 32) if self.content > self.bytes else 0


@dataclass(frozen=True)
class RunPlan(RewritePlan):
    """Replaces each run of characters of one class by a string of `content` bytes."""

    content: int

    def extra(self, size: int) -> int:
        return _some(size, 32) if self.content > 1 else 0


@dataclass(frozen=True)
class MatchPlan(RewritePlan):
    """Replaces each match of a pattern by a string of `content` bytes."""

    content: int

    def extra(self, size: int) -> int:
        return _some(size, 32) if self.content > 1 else 0


@dataclass(frozen=True)
class IsolatePlan(RewritePlan):
    """Makes each character of a class a segment of its own."""


def _some(size: int, share: int) -> int:
    return -(-size // (64 * share)) * 64 + 64


@dataclass(frozen=True)
class BPEPlan:
    """Pieces to ids by merges. Tables: `BPETables`, by program/bpe.py.

    unit       what a symbol is before merging
    unknown    a symbol without a token: cannot happen, becomes its bytes' tokens, the unknown token, one unknown token
               for neighbours, or is the host's work
    places     a string's token depends on whether it begins or ends its piece
    wholes     there are tokens that a whole piece can be, but that merges do not make
    long_wholes   some of these have more than SHORT bytes
    cascades   a token can be merged further at a lower rank than it was made at
    """

    unit: Literal["char", "byte"]
    unknown: Literal["none", "bytes", "token", "fuse", "host"]
    places: bool
    wholes: bool
    long_wholes: bool
    cascades: bool


@dataclass(frozen=True)
class WordPiecePlan:
    """Pieces to ids by a vocabulary of words. Tables: `WordPieceTables`, by program/wordpiece.py.

    unit     what a model's limit of characters counts
    parts    a word that is no token is cut into such (WordPiece); otherwise it is unknown (WordLevel)
    long     some tokens have more than SHORT bytes
    unknown  there is a token for unknown words; otherwise these are the host's work
    """

    unit: Literal["char", "byte"]
    parts: bool
    long: bool
    unknown: bool


ModelPlan = BPEPlan | WordPiecePlan
Step = AddedPlan | QuickCheckPlan | RewritePlan | SplitPlan


@dataclass(frozen=True)
class Plan:
    """The steps of a whole encode, in order, and the model at their end; None where only pieces are wanted."""

    steps: tuple[Step, ...]
    model: ModelPlan | None


def describe(plan: Plan) -> tuple[str, ...]:
    """What a program does, in words."""
    return tuple(_describe(step) for step in (*plan.steps, plan.model) if step is not None)


def _describe(step: Step | ModelPlan) -> str:
    match step:
        case AddedPlan():
            return "added tokens"
        case QuickCheckPlan(form):
            return f"{form or 'normalizer'} quick check; what fails it is normalized by the reference"
        case SplitPlan(_, behavior):
            return f"split by a compiled pattern, {behavior}"
        case BPEPlan(unit):
            return f"byte-pair merges over {unit}s"
        case WordPiecePlan(parts=parts):
            return "words cut into their longest tokens" if parts else "words looked up whole"
    return f"rewrite: {type(step).__name__.removesuffix('Plan').lower()}"
