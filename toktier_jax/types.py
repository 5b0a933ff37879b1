"""Small frozen values and pytrees that travel between the modules."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

Table = jax.Array | np.ndarray | np.generic
"""Tables are compiled in numpy and become arguments of jitted functions."""

TEXT, FROZEN, REMOVED = 0, 1, 2
"""`Buffer.kind`: ordinary text, inside an added token, belongs to no piece."""

CONT, PAD = 255, 254
"""Symbols that are no class: a byte that continues a character, a byte at or past `length`."""


class WalkTables(NamedTuple):
    """The walks of a SplitPlan as they are walked in lanes (program/walk.py); sizes are powers of two.

    codes   uint8 [256]           symbol -> column of `right` and `tail`
    right   uint8/uint16 [R, C]   the walk from right to left; columns from C / 2 on: a segment starts at this byte
    left    uint8/uint16 [L, R]   the walk from left to right
    tail    uint8/uint16 [T, C / 2]  as `right`, over sets of right states that are possible; 0: only one
    begins  int32 []              left states 2 (a gap) and 3 to begins - 1 (a match) begin a piece
    """

    codes: Table
    right: Table
    left: Table
    tail: Table
    begins: Table


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


class AddedTables(NamedTuple):
    """Tables of an AddedPlan (program/added.py); S and T are powers of two.

    pairs       uint8 [2, K] the pairs of bytes that literals begin with, or bool [65536] over first + 256 * second
    trie        int32 [4, S] a double array of the literals: where a node's children begin, a node's parent, the token
                that is the longest prefix of the node's string (-1: none), whether the node has children
    tokens      int32 [3, T] id, bytes, flags (program/added.py)
    rejected    bool [T]     matches of these use up their text and are no tokens (`special_as_text`)
    characters  uint8 [256]  bit 0: the symbol is white space, bit 1: it is a word character
    """

    pairs: Table
    trie: Table
    tokens: Table
    rejected: Table
    characters: Table


class Buffer(NamedTuple):
    """The text on its way through the steps. N is the static capacity; entries at or past `length` mean nothing.

    data    uint8 [N]  normalized bytes, UTF-8 or internal codes 0xF8-0xFF (see program/rewrite.py)
    length  int32 []
    starts  bool [N]   a segment (in the end: a piece) begins at this byte; True at 0
    texts   bool [N]   a document begins at this byte; implies starts
    kind    uint8 [N]  TEXT, FROZEN or REMOVED
    token   int32 [N]  the added token's id at its first byte, else -1 (None where the tokenizer has no added tokens)
    origin  int32 [2, N] or None  the original bytes [start, end) that each byte came from (None: identity)
    decided int32 []   all segment starts up to here stay whatever text follows, and work may be resumed here
    resume  bool [N] or None  False where work may not be resumed although a segment starts (None: it may), set only
                       for tokenizers with `single_word` tokens, whose matches look at the character before
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
