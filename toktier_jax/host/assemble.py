"""Builds Encodings out of what the reference or the device path found. Knows both, runs neither's algorithm."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from toktier_jax.errors import SpecError
from toktier_jax.host import postprocess, spans
from toktier_jax.host.align import Form, absorbed
from toktier_jax.host.reference import RawEncoding, Reference, Special, TokenizersReference
from toktier_jax.host.replay import replay_spans
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
    """Frames ids and spans as the file says.

    `spec` may be without its model; that, the reference and the vocabulary are asked for only when they are needed.
    """

    def __init__(
        self,
        spec: types.TokenizerSpec,
        reference: Callable[[], Reference],
        vocabulary: Callable[[], Vocabulary],
        model: Callable[[], types.Model],
    ) -> None:
        self._spec = spec
        self._reference = reference
        self._vocabulary = vocabulary
        self._model = model

    def from_reference(self, text: str, *, add_special_tokens: bool, special: Special, reason: str) -> Encoding:
        """The reference's own answer."""
        reference = self._reference()
        raw = reference.encode(text, add_special_tokens=add_special_tokens, special=special)
        truncated = False
        if self._spec.truncation is not None:
            whole = len(reference.encode_bare(text, special=special).ids)
            truncated = bool(np.count_nonzero(raw.words >= 0) < whole)
        return Encoding(
            ids=read_only(raw.ids),
            route="reference",
            fallback_reason=reason,
            truncated=truncated,
            char_source=lambda: raw.offsets,
            byte_source=lambda: self._byte_spans(text, raw, special),
        )

    def from_device(
        self, text: str, data: bytes, found: DeviceResult, *, add_special_tokens: bool, special: Special
    ) -> Encoding:
        """The device path's ids and spans. `data` is the text in UTF-8.

        Where the reference can count offsets wrong, it is asked for them, if they are.
        """
        frame = postprocess.frame(self._spec, len(found.ids), add_special_tokens=add_special_tokens)
        padding = self._spec.padding

        def byte_spans() -> np.ndarray:
            pairs = np.stack([found.starts, found.ends], axis=1).astype(np.int64)
            return postprocess.pad_spans(padding, frame.spans(pairs[frame.start : frame.stop]))

        def char_spans() -> np.ndarray:
            if self._vocabulary().shifts:
                return self._reference().encode(text, add_special_tokens=add_special_tokens, special=special).offsets
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

    def _byte_spans(self, text: str, raw: RawEncoding, special: Special) -> np.ndarray:
        """Byte spans of the reference's answer, from its untrimmed answer to the text alone."""
        reference, vocabulary = self._reference(), self._vocabulary()
        bare = reference.encode_bare(text, special=special)
        forms: list[Form] = [step.form for step in self._spec.normalizers if isinstance(step, types.Unicode)]
        gaps = absorbed(forms[0], text) if forms else None
        model = self._model() if vocabulary.shifts or vocabulary.partial else None
        if isinstance(model, types.BPE) and isinstance(reference, TokenizersReference):
            spelled = reference.spell(text, special=special)
            pairs = replay_spans(text, bare, spelled, model, vocabulary, gaps, reference.normalize)
        else:
            pairs = spans.byte_spans(text, bare, vocabulary, gaps, reference.normalize)
        in_text = raw.words >= 0
        kept, whole = np.count_nonzero(in_text), len(bare.ids)
        if kept > whole:
            raise SpecError("byte spans: the file's post-processor repeats the ids of the text")
        left = self._spec.truncation is not None and self._spec.truncation.direction == "Left"
        out = np.zeros((len(raw.ids), 2), np.int64)
        out[in_text] = pairs[whole - kept :] if left else pairs[:kept]
        return out
