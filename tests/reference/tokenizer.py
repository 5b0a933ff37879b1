"""The whole encode of a tokenizer.json in pure Python: ids, offsets, token strings and the piece of each token."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from . import added, characters, models
from .normalize import normalize
from .normalized import Piece, Span
from .pretokenize import pre_tokenize


@dataclass
class Encoded:
    """Parallel lists, and the pieces between pre-tokenizer and model: (text, id of the added token or None)."""

    ids: list[int] = field(default_factory=list)
    offsets: list[Span] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    words: list[int | None] = field(default_factory=list)
    pieces: list[tuple[bytes, int | None]] = field(default_factory=list)
    first: int = 0  # template tokens stand before this one

    def part(self, start: int, stop: int) -> Encoded:
        fields = (self.ids, self.offsets, self.values, self.words)
        return Encoded(*(each[start:stop] for each in fields), self.pieces)

    def around(self, before: list[tuple[int, str]], after: list[tuple[int, str]]) -> Encoded:
        """With template tokens before and after; their offsets are (0, 0)."""

        def place(extra: list[tuple[int, str]]) -> tuple[list, list, list, list]:
            return [i for i, _ in extra], [(0, 0)] * len(extra), [v for _, v in extra], [None] * len(extra)

        lists = zip(place(before), (self.ids, self.offsets, self.values, self.words), place(after), strict=True)
        return Encoded(*([*head, *own, *tail] for head, own, tail in lists), self.pieces, self.first + len(before))


class ReferenceTokenizer:
    """Built from the bytes of a tokenizer.json. Raises KeyError for a component that is not written here."""

    def __init__(self, file: bytes) -> None:
        self.parts: dict[str, Any] = json.loads(file)
        self.model = models.build(self.parts["model"])
        self.added = added.assign(self.parts.get("added_tokens") or [], self.parts["model"]["vocab"])

    def encode(self, text: str, *, add_special_tokens: bool = True, encode_special_tokens: bool = False) -> Encoded:
        """Truncation, post-processor and padding included, as `tokenizers.Tokenizer.encode` does."""
        special = {token.content for token in self.added.values() if token.special}
        pieces = self._pieces(text, special if encode_special_tokens else set())
        return self._post_process(self._tokenize(text, pieces), add_special_tokens)

    def _pieces(self, text: str, ignored: set[str]) -> added.Cut:
        """Raw added tokens, then for each part between them: the normalizer, normalized added tokens, pre-tokenizer."""
        raw = {t.content: t for t in self.added.values() if not t.normalized}
        changed = {self._normalized(t.content).string: t for t in self.added.values() if t.normalized}
        pieces: added.Cut = [(Piece.of(text), None)] if text else []
        for contents in (raw, changed):
            result: added.Cut = []
            for piece, id in pieces:
                if id is not None:
                    result.append((piece, id))
                    continue
                if contents is changed:
                    normalize(piece, self.parts["normalizer"])
                result += added.cut(piece, contents, lambda token: token.content in ignored)
            pieces = result
        result: added.Cut = []
        for piece, id in pieces:
            split = [piece] if id is not None else pre_tokenize([piece], self.parts["pre_tokenizer"])
            result += [(each, id) for each in split]
        return result

    def _normalized(self, content: str) -> Piece:
        piece = Piece.of(content)
        normalize(piece, self.parts["normalizer"])
        return piece

    def _tokenize(self, text: str, pieces: added.Cut) -> Encoded:
        encoded = Encoded()
        char_of = [i for i, char in enumerate(text) for _ in char.encode()]
        for word, (piece, id) in enumerate(pieces):
            if id is not None:
                tokens = [models.Token(id, piece.string, 0, len(piece.text))]
            else:
                tokens = self.model(piece.string)
            for token in tokens:
                span = piece.to_original(token.start, token.stop)
                place = (token.start, token.stop) if span is None else (span[0] + piece.shift, span[1] + piece.shift)
                encoded.ids.append(token.id)
                encoded.values.append(token.value)
                encoded.offsets.append(_in_characters(place, char_of))
                encoded.words.append(word)
        encoded.pieces = [(piece.text, id) for piece, id in pieces]
        return encoded

    # ---- after the model ----

    def _post_process(self, encoded: Encoded, add_special_tokens: bool) -> Encoded:
        processor, truncation, padding = (self.parts.get(k) for k in ("post_processor", "truncation", "padding"))
        if truncation is not None:
            room = truncation["max_length"] - (_added_by(processor) if add_special_tokens else 0)
            encoded = _truncated(encoded, room, truncation)
        encoded = _process(encoded, processor, add_special_tokens)
        return encoded if padding is None else _pad(encoded, padding)


def _truncated(encoded: Encoded, room: int, truncation: dict[str, Any]) -> Encoded:
    """`room` is what the template leaves; less than none wraps round in the reference, which then truncates nothing."""
    if len(encoded.ids) <= room or room < 0:
        return encoded
    if room and truncation["strategy"] == "OnlySecond":
        raise models.EncodeError("there is no second sequence to truncate")
    if room and truncation["stride"] >= room:
        raise models.EncodeError("the stride leaves no room")
    left = truncation.get("direction", "Right") == "Left"
    return encoded.part(len(encoded.ids) - room, len(encoded.ids)) if left else encoded.part(0, room)


def _in_characters(place: Span, char_of: list[int]) -> Span:
    """Byte offsets to character offsets; what does not begin inside the text stays in bytes."""
    start, stop = place
    if start >= len(char_of):
        return place
    if stop < len(char_of):
        return char_of[start], char_of[stop]
    last = char_of[stop - 1] if 0 < stop <= len(char_of) else char_of[start] + 1
    return char_of[start], last + 1


def _process(encoded: Encoded, part: dict[str, Any] | None, add_special_tokens: bool) -> Encoded:
    match part:
        case None:
            return encoded
        case {"type": "Sequence", "processors": parts}:
            for each in parts:
                encoded = _process(encoded, each, add_special_tokens)
            return encoded
        case {"type": "ByteLevel"}:
            return _trimmed(encoded, part["add_prefix_space"]) if part["trim_offsets"] else encoded
        case {"type": "TemplateProcessing", "single": single}:
            at = next(i for i, item in enumerate(single) if "Sequence" in item)
            before, after = (_specials(part, items) for items in (single[:at], single[at + 1 :]))
            return encoded.around(before, after) if add_special_tokens else encoded
        case {"type": "RobertaProcessing" | "BertProcessing" as kind}:
            if kind == "RobertaProcessing" and part["trim_offsets"]:
                encoded = _trimmed(encoded, part["add_prefix_space"])
            (cls, cls_id), (sep, sep_id) = part["cls"], part["sep"]
            return encoded.around([(cls_id, cls)], [(sep_id, sep)]) if add_special_tokens else encoded
        case _:
            raise KeyError(part["type"])


def _specials(part: dict[str, Any], items: list[dict[str, Any]]) -> list[tuple[int, str]]:
    tokens = [part["special_tokens"][item["SpecialToken"]["id"]] for item in items]
    return [pair for token in tokens for pair in zip(token["ids"], token["tokens"], strict=True)]


def _added_by(part: dict[str, Any] | None) -> int:
    match part:
        case {"type": "Sequence", "processors": parts}:
            return sum(map(_added_by, parts))
        case {"type": "TemplateProcessing", "single": single}:
            return len(_specials(part, [item for item in single if "SpecialToken" in item]))
        case {"type": "RobertaProcessing" | "BertProcessing"}:
            return 2
        case _:
            return 0


def _trimmed(encoded: Encoded, add_prefix_space: bool) -> Encoded:
    """Offsets without the white space at the ends of the token *strings*; each pass over them trims once more.

    One leading space of the text's first token, or of one that begins at 0, stays under `add_prefix_space`.
    """
    offsets = list[Span]()
    for i, (value, (start, stop)) in enumerate(zip(encoded.values, encoded.offsets, strict=True)):
        leading = _spaces(value)
        trailing = _spaces(value[::-1])
        if leading and not ((i == encoded.first or start == 0) and add_prefix_space and leading == 1):
            start = min(start + leading, stop)
        if trailing and stop >= trailing:
            stop = max(stop - trailing, start)
        offsets.append((start, stop))
    return Encoded(encoded.ids, offsets, encoded.values, encoded.words, encoded.pieces, encoded.first)


def _spaces(value: str) -> int:
    return next((i for i, c in enumerate(value) if c != "Ġ" and not characters.is_space(c)), len(value))


def _pad(encoded: Encoded, padding: dict[str, Any]) -> Encoded:
    strategy, multiple = padding["strategy"], padding.get("pad_to_multiple_of") or 1
    length = strategy["Fixed"] if isinstance(strategy, dict) else len(encoded.ids)
    missing = -(-length // multiple) * multiple - len(encoded.ids)
    pad = [(padding["pad_id"], padding["pad_token"])] * max(missing, 0)
    return encoded.around(pad, []) if padding["direction"] == "Left" else encoded.around([], pad)
