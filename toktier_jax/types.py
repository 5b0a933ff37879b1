"""Small frozen values and pytrees that travel between the modules."""

from __future__ import annotations

from typing import NamedTuple

import jax

TEXT, FROZEN, REMOVED = 0, 1, 2
"""`Buffer.kind`: ordinary text, inside an added token, belongs to no piece."""


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
