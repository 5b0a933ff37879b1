"""Builds Encodings out of what the reference or the device path found. Knows both, runs neither's algorithm."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from toktier_jax.errors import SpecError
from toktier_jax.host import postprocess, spans
from toktier_jax.host.align import Form, absorbed
from toktier_jax.host.reference import RawEncoding, Reference, Special
from toktier_jax.host.vocabulary import Vocabulary
from toktier_jax.results import Encoding, read_only
from toktier_jax.spec import types


class DeviceResult(NamedTuple):
    """What the device path found in a text: ids of the text alone and the original bytes that they came from.

    ids     int32 [n]
    starts  int [n]
    ends    int [n]
    gapped  int [n]  ends without what composition drew in (host/align.py); `ends` itself where nothing was composed
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    gapped: np.ndarray


class Assembler:
    """Frames ids and spans as the file says. `reference` and `vocabulary` are asked for only when they are needed."""

    def __init__(
        self, spec: types.TokenizerSpec, reference: Callable[[], Reference], vocabulary: Callable[[], Vocabulary]
    ) -> None:
        self._spec = spec
        self._reference = reference
        self._vocabulary = vocabulary

    def from_reference(self, text: str, *, add_special_tokens: bool, special: Special, reason: str) -> Encoding:
        """The reference's own answer."""
        reference = self._reference()
        raw = reference.encode(text, add_special_tokens=add_special_tokens, special=special)
        truncated = False
        if self._spec.truncation is not None:
            count = len(reference.encode_bare(text, special=special).ids)
            truncated = postprocess.frame(self._spec, count, add_special_tokens=add_special_tokens).truncated
        return Encoding(
            ids=read_only(raw.ids),
            route="reference",
            fallback_reason=reason,
            truncated=truncated,
            char_source=lambda: raw.offsets,
            byte_source=lambda: self._byte_spans(text, raw, add_special_tokens, special),
        )

    def from_device(self, text: str, data: bytes, found: DeviceResult, *, add_special_tokens: bool) -> Encoding:
        """The device path's ids and spans. The text is `data` in UTF-8, parsed for special tokens or not alike."""
        frame = postprocess.frame(self._spec, len(found.ids), add_special_tokens=add_special_tokens)
        padding = self._spec.padding

        def byte_spans() -> np.ndarray:
            pairs = np.stack([found.starts, found.ends], axis=1).astype(np.int64)
            return postprocess.pad_spans(padding, frame.spans(pairs[frame.start : frame.stop]))

        def char_spans() -> np.ndarray:
            part = slice(frame.start, frame.stop)
            pairs = spans.char_spans(data, found.starts[part], found.gapped[part])
            if self._spec.post_processor.trim_offsets:
                counts = self._white_space.of(text, found.ids[part], pairs)
                pairs = spans.trim(pairs, *counts, self._spec.post_processor.add_prefix_space)
            return postprocess.pad_spans(padding, frame.spans(pairs))

        return Encoding(
            ids=read_only(postprocess.pad_ids(padding, frame.ids(found.ids))),
            route="xla",
            fallback_reason=None,
            truncated=frame.truncated,
            char_source=char_spans,
            byte_source=byte_spans,
        )

    def frame_ids(self, ids: np.ndarray, *, add_special_tokens: bool) -> np.ndarray:
        """Ids of a text alone with the file's truncation and template, without padding: int32 [m]."""
        return postprocess.frame(self._spec, len(ids), add_special_tokens=add_special_tokens).ids(ids)

    @cached_property
    def _white_space(self) -> spans.WhiteSpace:
        return spans.WhiteSpace(self._spec, self._vocabulary())

    def _byte_spans(self, text: str, raw: RawEncoding, add_special_tokens: bool, special: Special) -> np.ndarray:
        """Byte spans of the reference's answer, from its untrimmed answer to the text alone."""
        bare = self._reference().encode_bare(text, special=special)
        forms: list[Form] = [step.form for step in self._spec.normalizers if isinstance(step, types.Unicode)]
        gaps = absorbed(forms[0], text) if forms else None
        pairs = spans.byte_spans(text, bare, self._vocabulary(), gaps)
        frame = postprocess.frame(self._spec, len(bare.ids), add_special_tokens=add_special_tokens)
        in_text = raw.words >= 0
        if np.count_nonzero(in_text) != frame.stop - frame.start:
            raise SpecError("byte spans: the file's post-processor does not keep the ids of the text as they are")
        out = np.zeros((len(raw.ids), 2), np.int64)
        out[in_text] = pairs[frame.start : frame.stop]
        return out
