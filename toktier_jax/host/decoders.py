"""Ids to text: whole, without loss, and as they come. The steps of a file's decoder are in decoder_steps.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toktier_jax.host.decoder_steps import Step, build_steps
from toktier_jax.host.inputs import check_ids
from toktier_jax.host.vocabulary import Vocabulary


def decode(vocabulary: Vocabulary, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
    """The text of `ids`, which are in range: exactly the reference's, U+FFFD included."""
    ids = kept(vocabulary, ids, skip_special_tokens)
    if _byte_level(vocabulary):
        table = vocabulary.alphabet_bytes
        return b"".join([table[index] for index in ids]).decode("utf-8", "replace")
    return _run(vocabulary, ids, lossless=False)


def decode_bytes(vocabulary: Vocabulary, ids: Sequence[int]) -> bytes:
    """The bytes of `ids`, which are in range: `decode` without loss, special tokens included."""
    if _byte_level(vocabulary):
        # The reference reads an added token such as "ö" in the byte alphabet; its content is what it stands for
        table, contents = vocabulary.alphabet_bytes, vocabulary.contents
        return b"".join([contents[index].encode() if index in contents else table[index] for index in ids])
    return _run(vocabulary, ids, lossless=True).encode("utf-8", "surrogateescape")


class StreamDecoder:
    """Text from ids as they come. The joined results of `push` and `finish` are `decode` of all ids.

    What is returned is final: bytes of an unfinished character, and whatever else the ids to come could change, wait.
    """

    def __init__(self, vocabulary: Vocabulary, *, skip_special_tokens: bool = True) -> None:
        self._vocabulary = vocabulary
        self._skip = skip_special_tokens
        self._steps = build_steps(vocabulary.decoder, lossless=False)

    def push(self, ids: Sequence[int]) -> str:
        """The text that is certain after `ids`. Ids out of range raise InputError."""
        ids = check_ids(ids, len(self._vocabulary.strings))
        tokens = _tokens(self._vocabulary, kept(self._vocabulary, ids, self._skip))
        for step in self._steps:
            tokens = step.push(tokens)
        return "".join(tokens)

    def finish(self) -> str:
        """The rest. The decoder then begins anew."""
        steps, self._steps = self._steps, build_steps(self._vocabulary.decoder, lossless=False)
        return "".join(_finish(steps))


def kept(vocabulary: Vocabulary, ids: Sequence[int], skip_special_tokens: bool) -> Sequence[int]:
    """`ids` without special ones where they are skipped."""
    if not skip_special_tokens or not vocabulary.special:
        return ids
    return [index for index in ids if index not in vocabulary.special]


def _byte_level(vocabulary: Vocabulary) -> bool:
    return vocabulary.decoder is not None and vocabulary.decoder.get("type") == "ByteLevel"


def _tokens(vocabulary: Vocabulary, ids: Iterable[int]) -> list[str]:
    strings = vocabulary.strings
    return [string for index in ids if (string := strings[index]) is not None]


def _run(vocabulary: Vocabulary, ids: Sequence[int], *, lossless: bool) -> str:
    steps = build_steps(vocabulary.decoder, lossless=lossless)
    tokens = _tokens(vocabulary, ids)
    for step in steps:
        tokens = step.push(tokens) + step.finish()
    return "".join(tokens)


def _finish(steps: list[Step]) -> list[str]:
    tokens: list[str] = []
    for step in steps:
        tokens = step.push(tokens) + step.finish()
    return tokens
