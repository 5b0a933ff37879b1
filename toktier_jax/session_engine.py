"""A Tokenizer as the engine of token sessions (sessions/engine.py): which of its encodes a window takes, and why."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import jax
import numpy as np

from toktier_jax.engine import DeviceEngine
from toktier_jax.errors import UnsupportedError
from toktier_jax.host import fork
from toktier_jax.host import window as host_window
from toktier_jax.host.align import Alignment
from toktier_jax.host.assemble import DeviceResult
from toktier_jax.host.refusals import QuickCheckFailed, beyond_program
from toktier_jax.host.rewritten import RewrittenEncoder
from toktier_jax.host.utf8 import begins, first_bytes
from toktier_jax.host.window import HostWindow, WindowEncoder
from toktier_jax.plan import AddedPlan, BPEPlan, MapPlan, Plan, PrefixPlan, QuickCheckPlan, SplitPlan
from toktier_jax.program.quickcheck import form_facts
from toktier_jax.program.split import Found, pattern_of
from toktier_jax.sessions.engine import EngineInfo, Window
from toktier_jax.sessions.policy import Policy, Where
from toktier_jax.spec import types as spec
from toktier_jax.types import EncodeProgram


class TokenizerEngine:
    """Windows by the compiled program; by the reference, as a black box or whole, where there is none."""

    def __init__(self, tokenizer: Any, policy: Policy) -> None:
        """Raises UnsupportedError for a file with truncation or padding, as a session's ids could not grow, or with BPE
        dropout, as two encodes of a text differ."""
        self._tokenizer = tokenizer
        self.policy = policy
        of: spec.TokenizerSpec = tokenizer._spec
        model = tokenizer.spec.model if of.host_only else of.model  # the outline has none
        dropout = model.dropout if isinstance(model, spec.BPE) else None
        for name, setting in (("truncation", of.truncation), ("padding", of.padding), ("model.dropout", dropout)):
            if setting is not None:
                raise UnsupportedError(f"sessions: the tokenizer file sets {name}; remove it from the file")
        self._device: DeviceEngine | None = tokenizer._routes.device
        self._form: Any = None
        self._encoder: WindowEncoder | RewrittenEncoder | None = None
        reason = "compiled windows on the host"
        if self._device is not None:
            program = self._device.programs["parse"]
            forms = [step.form for step in program.plan.steps if isinstance(step, QuickCheckPlan) and step.form]
            self._form = forms[0] if forms else None
            refused = host_window.refusal(program)
            if refused is not None:
                reason = f"compiled windows in XLA: {refused}"
            with _lock:
                made = _encoders.setdefault(self._device, {})
                if "host" not in made:
                    made["host"] = _encoder_of(of, program, refused, self._form)
                self._encoder = made["host"]
        else:
            reason = f"on the reference: {tokenizer._routes.refusal}"
        boundary = self._device is None and _has_boundaries(of)
        if self._device is None and not boundary:
            reason += "; no boundary is provable, so every change encodes the whole text"
        added = [len(token.content) for token in of.added_tokens]
        self._joins = self._device is not None and _tokens_join(self._device.programs["parse"].plan)
        self._added = np.array([token.id for token in of.added_tokens], np.int32)
        self._boundaries = boundary
        self.info = EngineInfo(
            fingerprint=tokenizer.fingerprint,
            leading=tuple(of.post_processor.before),
            longest_token=_longest_token(tokenizer) if boundary else 128,
            longest_added=max(added, default=0),
            way=("tokens" if self._joins else "anchors")
            if self._device is not None
            else ("black box" if boundary else "full"),
            reason=reason,
        )

    def encode_full(self, text: bytes) -> Window:
        """The whole text, where the policy wants it. What is beyond the program goes to the reference, and `where` says
        why."""
        where = self.policy.cold(len(text), _accelerated()) if self._encoder is not None else "reference"
        if where == "reference":
            return self.encode_reference(text)
        try:
            return self._encode(text, where, True)
        except UnsupportedError as error:
            return self.encode_reference(text)._replace(where=f"reference: {error}")

    def encode_window(self, text: bytes, *, at_start: bool, at_end: bool) -> Window:
        """Raises UnsupportedError where only the reference can encode this text, and then the whole of it."""
        if self._encoder is None:
            return self.encode_reference(text)
        return self._encode(text, self.policy.change(len(text), _accelerated()), at_start)

    def _encode(self, text: bytes, where: Where, at_start: bool) -> Window:
        fork.check_fork()
        encoder = self._encoder_on_device() if where == "device" else self._encoder
        found = self._window(encoder, text, at_start)
        inner = _inner(text, found, self._added) if self._joins else np.zeros(0, np.int32)
        return Window(found.ids, found.starts, found.ends, found.anchors, found.decided, inner, where)

    def _encoder_on_device(self) -> RewrittenEncoder:
        assert self._device is not None, "there is an encoder"
        with _lock:
            made = _encoders[self._device]
            if "device" not in made:
                made["device"] = RewrittenEncoder(self._device.programs["parse"], on_device=True)
            return made["device"]  # type: ignore[return-value]  # what is kept under "device"

    def encode_reference(self, text: bytes) -> Window:
        found = self._tokenizer.encode(text, add_special_tokens=False, route="reference")
        spans = found.byte_spans
        anchors = _boundaries(text) if self._boundaries else np.zeros(0, np.int32)
        return Window(found.ids, spans[:, 0], spans[:, 1], anchors, 0, where="reference")

    def reference_ids(self, text: bytes) -> np.ndarray:
        return self._tokenizer._reference.encode_many([text.decode()], special="parse")[0]

    def char_spans(self, text: bytes, window: Window) -> np.ndarray:
        count = len(self.info.leading) + len(window.ids)
        value = text.decode()
        if self._encoder is None or (self._form and _suspect(self._form, value)):
            return self._tokenizer.encode(text, route="reference").char_spans[:count]
        found = DeviceResult(window.ids, window.byte_starts, window.byte_ends, window.byte_ends)
        made = self._tokenizer._assembler.from_device(value, text, found, add_special_tokens=True, special="parse")
        return made.char_spans[:count]

    def _window(self, encoder: Any, text: bytes, at_start: bool) -> HostWindow:
        try:
            return encoder.encode(text, at_start=at_start, checked=False)
        except QuickCheckFailed:
            if self._form is None:
                raise beyond_program() from None
        assert self._device is not None, "there is an encoder"
        assert self._device.normalize is not None, "there is a form"
        aligned = self._device.normalize(text, "parse")
        try:
            found = encoder.encode(aligned.data, at_start=at_start, checked=True)
        except QuickCheckFailed:
            raise beyond_program() from None
        return _to_original(found, aligned, text, form_facts(self._form).contextual)


_lock = threading.Lock()
_encoders: weakref.WeakKeyDictionary[Any, dict[Where, WindowEncoder | RewrittenEncoder]] = weakref.WeakKeyDictionary()
"""All stores of a tokenizer share its encoder: the tables are large, and what it learned of pieces is true for all."""


def _encoder_of(
    of: spec.TokenizerSpec, program: EncodeProgram, refused: str | None, form: Any
) -> WindowEncoder | RewrittenEncoder:
    if refused is not None:
        return RewrittenEncoder(program)
    return WindowEncoder(program, form_facts(form).contextual if form else None, _patterns(of, program))


def _patterns(of: spec.TokenizerSpec, program: EncodeProgram) -> list[Found] | None:
    """The patterns of all splits, if all only cut characters apart."""
    plans = [step for step in program.plan.steps if isinstance(step, SplitPlan)]
    found = [each for step in of.pre_tokenizers if (each := pattern_of(step, of.dialect)) is not None]
    only_cut = all(plan.behavior == "Isolated" and plan.unit == "char" for plan in plans)
    return found if only_cut and len(found) == len(plans) else None


def _tokens_join(plan: Plan) -> bool:
    """Whether what a token is depends on its neighbours alone: a BPE of text that is cut by added tokens only, and
    rewritten character by character."""
    for step in plan.steps:
        match step:
            case AddedPlan(lstrip=False, rstrip=False, single_word=False) | MapPlan() | PrefixPlan(pieces=False):
                pass
            case _:
                return False
    model = plan.model
    return isinstance(model, BPEPlan) and not model.wholes and not model.places and model.unknown != "fuse"


def _inner(text: bytes, found: HostWindow, added: np.ndarray) -> np.ndarray:
    """Where tokens begin that are no added tokens, with a whole character of their own."""
    if not len(found.starts):
        return found.starts
    good = begins(text)[np.minimum(found.starts, len(text) - 1)]
    good &= ~np.isin(found.ids, added) & (found.ends > found.starts)
    good[1:] &= found.starts[1:] >= found.ends[:-1]
    good[0] &= found.starts[0] == 0
    return found.starts[good]


def _accelerated() -> bool:
    return jax.default_backend() != "cpu"


def _to_original(found: HostWindow, aligned: Alignment, text: bytes, contextual: np.ndarray) -> HostWindow:
    """A window of the normalized text as one of the text; work is resumed only before characters that no form joins
    with what is before them."""
    begins = np.append(aligned.starts, len(text))
    closed = np.append(0, aligned.ends)
    starts, ends, _ = aligned.original(found.starts, found.ends)
    lead = first_bytes(text)
    fixed = np.zeros(len(text) + 1, bool)
    fixed[lead] = ~contextual[np.frombuffer(text.decode().encode("utf-32-le"), np.uint32)]
    fixed[0] = True

    def original(places: np.ndarray) -> np.ndarray:
        at = begins[places]
        return at[fixed[at] & (closed[places] <= at)]

    anchors = original(found.anchors)
    stops = original(found.anchors[found.anchors <= found.decided])
    decided = int(stops[-1]) if len(stops) else 0
    return HostWindow(found.ids, starts, ends, anchors, decided)


def _suspect(form: Any, text: str) -> bool:
    return not text.isascii() and bool(
        form_facts(form).suspect[np.frombuffer(text.encode("utf-32-le"), np.uint32)].any()
    )


def _has_boundaries(of: spec.TokenizerSpec) -> bool:
    """Whether a space before an ASCII letter or digit parts a text in two for every step of the reference."""
    normal = spec.BertNormalizer | spec.Lowercase | spec.Unicode | spec.StripAccents
    parts = spec.BertPreTokenizer | spec.Whitespace | spec.WhitespaceSplit
    plain = not any(token.lstrip or token.rstrip or token.single_word for token in of.added_tokens)
    crossing = any(_boundaries(token.content.encode()).size for token in of.added_tokens)
    return (
        all(isinstance(step, normal) for step in of.normalizers)
        and bool(of.pre_tokenizers)
        and isinstance(of.pre_tokenizers[0], parts)
        and plain
        and not crossing
    )


def _boundaries(text: bytes) -> np.ndarray:
    """Bytes at which an ASCII letter or digit follows a space."""
    data = np.frombuffer(text, np.uint8)
    letter = ((data | 0x20) - np.uint8(97) < 26) | (data - np.uint8(48) < 10)
    return (np.flatnonzero((data[:-1] == 32) & letter[1:]) + 1).astype(np.int32)


def _longest_token(tokenizer: Any) -> int:
    return max((len(string) for string in tokenizer._vocabulary.strings if string), default=1)
