"""Character offsets as the reference gives them, from the bytes that tokens came from; and the other way round.

Byte spans are the source bytes of each token, untrimmed; a token inside a character has bytes of its own; an inserted
token is empty. The reference's offsets are whole characters. `char_spans` makes those from byte spans without asking
the reference; `byte_spans` makes byte spans from the reference's answer. Trimming and templates are separate steps,
since the reference truncates between them (host/postprocess.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from toktier_jax.host.reference import RawEncoding
from toktier_jax.host.utf8 import characters, first_bytes
from toktier_jax.host.vocabulary import Spelling, Vocabulary
from toktier_jax.spec import types


def char_spans(data: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The reference's offsets before trimming: int64 [n, 2], characters.

    `data` is the original text, UTF-8; `starts` and `ends` int [n] are bytes of it, in which `ends` leave out what
    composition drew in (Alignment.gapped). A token begins in the character of its first byte and ends after the one of
    its last. A prefix shares the place of the character before which it was inserted.
    """
    starts, ends = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    if not len(starts):
        return np.zeros((0, 2), np.int64)
    character = characters(data)
    last = np.where(ends > starts, ends - 1, np.minimum(starts, len(data) - 1))
    return np.stack([character[np.minimum(starts, len(data) - 1)], character[last] + 1], axis=1)


def trim(spans: np.ndarray, leading: np.ndarray, trailing: np.ndarray, add_prefix_space: bool) -> np.ndarray:
    """What ByteLevel's and Roberta's post-processor make of offsets with `trim_offsets`.

    `leading` and `trailing` int64 [n] count the white space at the ends of each token's string. A single leading space
    of the first token, or of one at offset 0, stays where `add_prefix_space` may have added it.
    """
    if not len(spans):
        return spans
    starts, ends = spans[:, 0], spans[:, 1]
    if add_prefix_space:
        first = (starts == 0) | (np.arange(len(spans)) == 0)
        leading = np.where(first & (leading == 1), 0, leading)
    starts = np.minimum(starts + leading, ends)
    return np.stack([starts, np.where(ends >= trailing, np.maximum(ends - trailing, starts), ends)], axis=1)


class WhiteSpace:
    """How much white space begins and ends the string of each token, as trimming counts it."""

    def __init__(self, spec: types.TokenizerSpec, vocabulary: Vocabulary) -> None:
        counts = [_white_space(string or "") for string in vocabulary.strings]
        self._counts = np.array(counts, np.int64).reshape(-1, 2)
        self._stripping = {token.id for token in spec.added_tokens if token.lstrip or token.rstrip}

    def of(self, text: str, ids: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Leading and trailing counts, int64 [n] each, of tokens with untrimmed `spans` of `text`.

        The string of an added token that takes the spaces round it is what it matched.
        """
        counts = self._counts[ids]
        if self._stripping:
            for i in np.flatnonzero(np.isin(ids, list(self._stripping))).tolist():
                counts[i] = _white_space(text[spans[i, 0] : spans[i, 1]])
        return counts[:, 0], counts[:, 1]


def _white_space(string: str) -> tuple[int, int]:
    return len(string) - len(string.lstrip(_SPACES)), len(string) - len(string.rstrip(_SPACES))


# Unicode's White_Space, and the byte alphabet's space
_SPACES = "Ġ\t\n\x0b\x0c\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"


def byte_spans(
    text: str, raw: RawEncoding, vocabulary: Vocabulary, gaps: np.ndarray | None, normalize: Callable[[str], str]
) -> np.ndarray:
    """Source bytes, int64 [n, 2], of the tokens of an untrimmed answer of the reference.

    Where two neighbours touch the same character, either they are parts of it, or the first was inserted before it, or
    normalization made both out of it: then both have all of its bytes. `gaps` bool [characters] marks what composition
    drew into the character before (host/align.py), or is None; `normalize` is the reference's.
    """
    data = text.encode()
    bounds = np.append(first_bytes(data), len(data))
    starts, ends = raw.offsets[:, 0], raw.offsets[:, 1]
    shares = ends[:-1] - 1 == starts[1:]
    if gaps is not None and gaps.any():
        solid = np.append(np.flatnonzero(~gaps), len(text))
        ends = np.where(ends > starts, solid[np.searchsorted(solid, ends)], ends)
    spans = np.stack([bounds[starts], bounds[ends]], axis=1)
    for first, last in _runs(np.flatnonzero(shares)):
        tokens = [vocabulary.token_bytes(index) for index in raw.ids[first : last + 1].tolist()]
        leads = first == 0 or raw.words[first - 1] != raw.words[first]
        inserted = _inserted(b"".join(tokens), vocabulary.spelling) if leads else 0
        _share(data, bounds, spans[first : last + 1], starts[first : last + 1], tokens, inserted)
    _empty_lone_prefixes(data, raw, spans, vocabulary, normalize)
    spans[:, 1] = np.maximum.accumulate(spans[:, 1])
    return spans


def _runs(shared: np.ndarray) -> list[tuple[int, int]]:
    """Maximal runs of tokens of which each shares a character with the next, as first and last token."""
    breaks = np.flatnonzero(np.diff(shared) > 1)
    firsts = shared[np.append(0, breaks + 1)] if len(shared) else shared
    lasts = shared[np.append(breaks, len(shared) - 1)] + 1 if len(shared) else shared
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _empty_lone_prefixes(
    data: bytes, raw: RawEncoding, spans: np.ndarray, vocabulary: Vocabulary, normalize: Callable[[str], str]
) -> None:
    """A prefix can be a piece of its own, before a character that belongs to no token; in place."""
    for i in np.flatnonzero(np.isin(raw.ids, vocabulary.prefixes)).tolist():
        leads = i == 0 or raw.words[i - 1] != raw.words[i]
        if leads and not spells_prefix(data[spans[i, 0] : spans[i, 1]], vocabulary.spelling, normalize):
            spans[i, 1] = spans[i, 0]


def spells_prefix(source: bytes, spelling: Spelling, normalize: Callable[[str], str]) -> bool:
    """Whether a piece spelled as a lone prefix comes from these bytes: the same text, or what is normalized to it."""
    if source == spelling.inserted:
        return True
    space = spelling.inserted == b" "
    return space and (source == spelling.space.encode() or normalize(source.decode()) == normalize(" "))


def _inserted(spelled: bytes, spelling: Spelling) -> int:
    """How many bytes at the start of a piece are a prefix, which byte fallback can spell as it is.

    `spelled` are the tokens that touch the first character: a prefix stands before some of it.
    """
    for prefix in (spelling.inserted, spelling.inserted.replace(b" ", spelling.space.encode())):
        if prefix and spelled.startswith(prefix) and len(spelled) > len(prefix):
            return len(prefix)
    return 0


def _share(
    data: bytes, bounds: np.ndarray, spans: np.ndarray, starts: np.ndarray, tokens: list[bytes], inserted: int
) -> None:
    """Divides the shared characters of a run of tokens, in place. The first `inserted` bytes are a prefix."""
    spelled = b"".join(tokens)
    at = 0
    for i, token in enumerate(tokens[:-1]):
        at += len(token)
        low, high = int(bounds[starts[i + 1]]), int(bounds[starts[i + 1] + 1])
        if at <= inserted:
            spans[i] = low
            continue
        begin = at  # of the character that the next token begins in
        while begin and spelled[begin : begin + 1] and spelled[begin] & 0xC0 == 0x80:
            begin -= 1
        if begin < at and spelled[begin : begin + high - low] == data[low:high]:
            spans[i, 1] = spans[i + 1, 0] = low + at - begin
