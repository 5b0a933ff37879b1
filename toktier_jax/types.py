"""Small frozen values and pytrees that travel between the modules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from toktier_jax.plan import Plan

Table = Any
"""A numpy array as compiled, a jax.Array inside functions: tables are arguments of functions, never constants."""

TEXT, FROZEN, REMOVED = 0, 1, 2
"""`Buffer.kind`: ordinary text, inside an added token, belongs to no piece."""

CONT, PAD = 255, 254
"""Symbols that are no class: a byte that continues a character, a byte at or past `length`."""


END = 0
"""Right state of a walk: at the end of a segment, nothing has been read."""

BEGIN, GAP, GAP_START, MATCH_START, IN_MATCH = range(5)
"""Kinds of left states, in their order: before a segment's first character (one state), going on in a gap (one), a gap
began (one), a match began, going on in a match."""

COLLAPSED, ANYTHING = 0, 1
"""Tail states: the right state is known; it can be any."""


class WalkTables(NamedTuple):
    """The walks of a SplitPlan as they are walked in lanes (program/walk.py). Sizes are powers of two.

    `right` and `left` have one dtype, and 256 rows where that is uint8.

    codes   uint8 [256]           symbol -> column of `right` and `tail`
    right   uint8/uint16 [R, C]   the walk from right to left; columns from C / 2 on: a segment starts at this byte
    left    uint8/uint16 [L, R]   the walk from left to right
    tail    uint8/uint16 [T, C / 2]  as `right`, over sets of right states that are possible; 0: only one
    begins  int32 []              left states 2 (a gap) and 3 to begins - 1 (a match) begin a piece
    states  int32 []              number of left states
    """

    codes: Table
    right: Table
    left: Table
    tail: Table
    begins: Table
    states: Table


class FunctionTables(NamedTuple):
    """The walks of a SplitPlan as functions from states to states (program/functions.py), to be composed in blocks.

    right   uint8/uint16 [512, R]         row `symbol + 256 * (a segment starts at the next byte)`; CONT: the identity
    left    uint8/uint16 [2 R + 1, L]     row `right state + R * (a segment starts here)`; the last: the identity
    tail    uint8/uint16 [512, T]         as `right`, over sets of right states that are possible; 0: only one
    begins  int32 []                      left states 2 (a gap) and 3 to begins - 1 (a match) begin a piece
    """

    right: Table
    left: Table
    tail: Table
    begins: Table


class SplitTables(NamedTuple):
    """Tables of a SplitPlan, those of both lowerings.

    symbols  uint8 [256]  symbol of each byte, where the plan's unit is "byte" (else not read)
    """

    walk: WalkTables
    functions: FunctionTables
    symbols: Table


LSTRIP, RSTRIP, SINGLE_WORD, SPECIAL = 1, 2, 4, 8
"""Flags of an added token."""


class AddedTables(NamedTuple):
    """Tables of an AddedPlan (program/added.py); S and T are powers of two.

    pairs       uint8 [2, K] the pairs of bytes that literals begin with, or bool [65536] over first + 256 * second
    trie        int32 [4, S] a double array of the literals: where a node's children begin, a node's parent, the token
                that is the longest prefix of the node's string (-1: none), whether the node has children
    tokens      int32 [3, T] id, bytes, flags
    rejected    bool [T]     matches of these use up their text and are no tokens (variants.py)
    characters  uint8 [256]  bit 0: the symbol is white space, bit 1: it is a word character
    """

    pairs: Table
    trie: Table
    tokens: Table
    rejected: Table
    characters: Table


FIRST_CODE = 0xF8
"""Internal codes: byte FIRST_CODE + k of a buffer stands for the k-th character that a program gives one byte."""

SHORT = 16
"""Bytes of a piece that are looked up as four words; longer ones are looked up word by word."""

SELF = np.uint32(1 << 31)
"""Flag beside an id in a Lexicon: BPE of the string gives this token, so that any part of a piece may be looked up."""

NEVER = 1 << 29
"""A rank above all merge ranks: these two are never merged."""

CASCADES = 1 << 29
"""Flag beside a rule's new id: the new token has rules of lower rank than the rule, which then apply at once."""


class Lexicon(NamedTuple):
    """Token strings by perfect hash (program/vocabulary.py). S and L are powers of two, W words hold the longest.

    seeds           uint32 [2]          of the two tables
    displacements   int32 [S / 4]
    rows            uint32 [S, 8]       strings of up to 16 bytes: four words, mark, id with flag, two of padding
    displacements_  int32 [L / 4]
    strings         uint32 [L, W + 2]   longer strings: words, mark, id with flag

    A mark is 4 * bytes + place; place is 0, or 1 (the string begins its piece) + 2 (ends it) where tokens depend on it.
    """

    seeds: Table
    displacements: Table
    rows: Table
    displacements_: Table
    strings: Table


class MergeTables(NamedTuple):
    """Merge rules by perfect hash, and what can happen at most (program/merges.py). R, K and V are powers of two.

    seed           uint32 []
    displacements  int32 [R / 4]
    rows           int32 [R, 4]   left id, right id, rank, new id (+ CASCADES); left is -1 where empty
    left_bounds    uint16 [K]     at the hash of (last symbol and count of symbols of a token, id): no rule joins what
                                  that token may become with the id on its right at a lower rank
    right_bounds   uint16 [K]     as left_bounds for (first symbol and count of a token, id) and the id on its left
    symbols        uint32 [V]     of each id the first and the last symbol (bytes, or hashes of characters) and the
                                  count of symbols, rounded down to a power of two (ops/hashing.py)
    of_bytes       int32 [65536, 4]  at first byte + 256 * second: rank and new id of their rule, the left bound of the
                                  second after the first, the right bound of the first before the second; [1, 4] where
                                  symbols are no bytes, or not the same everywhere
    """

    seed: Table
    displacements: Table
    rows: Table
    left_bounds: Table
    right_bounds: Table
    symbols: Table
    of_bytes: Table


class CutTables(NamedTuple):
    """Where inside a piece no token can lie across (program/cuts.py); bit sets.

    pairs  uint32 [2048]  first byte + 256 * second: some token has these at a border of symbols
    grams  uint32 [G]     by hash of six bytes: some token has these, two whole characters; no such border is in `pairs`
    """

    pairs: Table
    grams: Table


class CharacterTables(NamedTuple):
    """Characters of two or three bytes that are made before anything else (program/characters.py), by code point.

    risks  int32 [65536]     kinds of neighbours (ops/characters.py) that may be merged with their parts, a bit each, 16
                             on the left, then 16 on the right; all set where there is no such character
    made   int32 [65536, 2]  id, and the level at which it is made
    """

    risks: Table
    made: Table


class BPETables(NamedTuple):
    """Tables of a BPEPlan (program/bpe.py).

    base     int32 [4, 256]  id of a byte that is a symbol by itself, by its place; -1: unknown
    unknown  int32 [257]     ids of the 256 bytes of a character without a token, then the unknown token's
    """

    lexicon: Lexicon
    merges: MergeTables
    cuts: CutTables
    base: Table
    unknown: Table
    characters: CharacterTables | None = None


class WordPieceTables(NamedTuple):
    """Tables of a WordPiecePlan (program/wordpiece.py). S and T are powers of two.

    lexicon  the words that are tokens
    trie     int32 [4, S]  as in AddedTables, of the tokens that begin a word and of those that go on in one
    tokens   int32 [2, T]  id and bytes of each token of the trie
    roots    int32 [2]     nodes from which the trie is walked where a word begins, and inside it
    most     int32 []      a word of more characters is unknown
    unknown  int32 []      the id of an unknown word, -1 if there is none
    """

    lexicon: Lexicon
    trie: Table
    tokens: Table
    roots: Table
    most: Table
    unknown: Table


ModelTables = BPETables | WordPieceTables


class RewriteTables(NamedTuple):
    """Tables of a RewritePlan (program/rewrite.py); what its kind does not use is None. K, P are powers of two.

    members  bool [256]      symbols of the plan's class: white space, a run, what is isolated; MapPlan: wide characters
    narrow   uint8 [256]     what single bytes become
    index    uint16 [4360]   page of a code point >> 8; internal code k is code point 0x110000 + k
    pages    int32 [P, 256]  -1, or where a character's new bytes begin in `pool`, times 256, plus their number
    pool     uint8 [K]       new bytes; the other plans: the prefix, the content
    find     AddedTables of LiteralPlan.find
    split    SplitTables of MatchPlan's pattern
    """

    members: Table | None = None
    narrow: Table | None = None
    index: Table | None = None
    pages: Table | None = None
    pool: Table | None = None
    find: AddedTables | None = None
    split: SplitTables | None = None


class Buffer(NamedTuple):
    """The text on its way through the steps. N is the static capacity; entries at or past `length` mean nothing.

    data    uint8 [N]  normalized bytes, UTF-8 or internal codes 0xF8-0xFF (see program/rewrite.py)
    length  int32 []
    starts  bool [N]   a segment (in the end: a piece) begins at this byte; True at 0
    texts   bool [N]   a document begins at this byte; implies starts
    kind    uint8 [N]  TEXT, FROZEN or REMOVED
    token   int32 [N]  the added token's id at its first byte, else -1 (None where the tokenizer has no added tokens)
    origin  int32 [2, N] or None  the original bytes [start, end) that each byte came from (None: identity)
    decided int32 []   all segment starts up to here stay whatever text follows, and work may be resumed here; 0 is the
                       start of the text itself, whatever the first byte's origin
    resume  bool [N] or None  False where work may not be resumed although a segment starts (None: it may everywhere):
                       in and at matches of `single_word` tokens, and where a segment gets what only its start gets
    """

    data: jax.Array
    length: jax.Array
    starts: jax.Array
    texts: jax.Array
    kind: jax.Array
    token: jax.Array | None
    origin: jax.Array | None
    decided: jax.Array
    resume: jax.Array | None = None


class ProgramTables(NamedTuple):
    """All tables of a program.

    pages, table, codes  what `ops.classify` reads (None where no step asks for the class of a character)
    steps                the tables of each step of the plan, in order
    model                those of the model
    """

    pages: Table | None
    table: Table | None
    codes: Table | None
    steps: tuple[Any, ...]
    model: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class EncodeProgram:
    """A compiled tokenizer: a pytree of tables, whose static part is the plan."""

    tables: ProgramTables
    plan: Plan = field(metadata={"static": True})
