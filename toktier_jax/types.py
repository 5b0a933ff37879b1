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
    """

    data: jax.Array
    length: jax.Array
    starts: jax.Array
    texts: jax.Array
    kind: jax.Array
    token: jax.Array | None
    origin: jax.Array | None
    decided: jax.Array
