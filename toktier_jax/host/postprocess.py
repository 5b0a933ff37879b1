"""Truncation, template ids and padding, as the reference applies them, for results that are not its own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.spec import types


class Frame(NamedTuple):
    """How the ids of a text are framed: the final ids are `before`, ids[start:stop], `after`, then padding.

    `truncated` says whether ids of the text were left out.
    """

    start: int
    stop: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    truncated: bool

    @property
    def length(self) -> int:
        """Number of ids without padding."""
        return len(self.before) + self.stop - self.start + len(self.after)

    def ids(self, ids: np.ndarray) -> np.ndarray:
        """int32 [length] of the text's ids int32 [n]."""
        return np.concatenate(
            [np.array(self.before, np.int32), ids[self.start : self.stop], np.array(self.after, np.int32)]
        )

    def spans(self, spans: np.ndarray) -> np.ndarray:
        """int64 [length, 2] of already cut spans int64 [stop - start, 2]; template ids are at (0, 0)."""
        before, after = (np.zeros((len(each), 2), np.int64) for each in (self.before, self.after))
        return np.concatenate([before, spans, after])


def frame(spec: types.TokenizerSpec, count: int, *, add_special_tokens: bool) -> Frame:
    """The frame of a text of `count` ids. Raises UnsupportedError for a truncation that the reference fails on."""
    post = spec.post_processor
    before, after = (post.before, post.after) if add_special_tokens else ((), ())
    start, stop = 0, count
    truncation = spec.truncation
    if truncation is not None and count > (room := truncation.max_length - len(before) - len(after)):
        if room < 0 or (room and truncation.stride >= room) or truncation.strategy == "OnlySecond":
            raise UnsupportedError(
                f"truncation to {truncation.max_length} with stride {truncation.stride} ({truncation.strategy}) "
                f"leaves no room beside {len(before) + len(after)} template ids; change the file's truncation"
            )
        start, stop = (count - room, count) if truncation.direction == "Left" else (0, room)
    return Frame(start, stop, before, after, truncated=stop - start < count)


def padded_length(padding: types.Padding, longest: int) -> int:
    """The length to which the file pads rows of at most `longest` ids; longer than `longest` or equal."""
    length = longest if padding.length is None else padding.length
    if padding.pad_to_multiple_of:
        length += -length % padding.pad_to_multiple_of
    return max(length, longest)


def pad_ids(padding: types.Padding | None, ids: np.ndarray) -> np.ndarray:
    """One text's ids int32 [n] padded as the file says."""
    if padding is None or (missing := padded_length(padding, len(ids)) - len(ids)) == 0:
        return ids
    pad = np.full(missing, padding.pad_id, np.int32)
    return np.concatenate([pad, ids] if padding.direction == "Left" else [ids, pad])


def pad_spans(padding: types.Padding | None, spans: np.ndarray) -> np.ndarray:
    """One text's spans int64 [n, 2] padded with (0, 0) as the file says."""
    if padding is None or (missing := padded_length(padding, len(spans)) - len(spans)) == 0:
        return spans
    pad = np.zeros((missing, 2), np.int64)
    return np.concatenate([pad, spans] if padding.direction == "Left" else [spans, pad])
