"""The differential campaign: this package against the reference on adversarial and real text, until time is up.

Every text is compared at three levels: pieces (where a wrong cut hides behind right ids), ids, and spans. The texts
follow from the seed alone; the time decides only how many of them are tried. A difference is shrunk to its smallest
text. Texts are made in adversarial.py; the reference is asked in oracle.py, this package in subject.py.
"""

from __future__ import annotations

import itertools
import random
import sysconfig
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.verify.adversarial import Alphabet, adversarial_text, alphabet, mutated, systematic
from toktier_jax.verify.oracle import Oracle, ReferenceFailed, oracle_for
from toktier_jax.verify.shrink import shrink
from toktier_jax.verify.subject import DeviceSubject, Subject

if TYPE_CHECKING:
    from toktier_jax.tokenizer import Tokenizer

_BLOCK = 4_097
"""Characters of a joined or real text: 4 Ki to 16 Ki bytes, so one capacity and few compiles."""


@dataclass(frozen=True)
class Difference:
    """The smallest text found on which the two sides differ."""

    level: str
    text: str
    index: int
    expected: list[Any]
    got: list[Any]

    def __str__(self) -> str:
        text = repr(self.text) if len(self.text) < 300 else f"{self.text[:300]!r}… ({len(self.text):,} characters)"
        where = f"DIFFERENT {self.level} at {self.index}: expected {self.expected}, got {self.got}"
        return f"{where}\nsmallest text: {text}"


@dataclass
class Report:
    """What a campaign checked. `ok` is False after a difference, and where nothing was compared.

    At each of `positions`, characters of texts whose pieces were compared, both say whether one of `pieces` starts.
    `refused` texts were not encoded on the device path, `skipped` ones not by the reference; of `unseen` ones only the
    ids and spans were compared, because the host had to normalize them.
    """

    texts: int = 0
    characters: int = 0
    positions: int = 0
    pieces: int = 0
    ids: int = 0
    spans: int = 0
    refused: int = 0
    skipped: int = 0
    unseen: int = 0
    seconds: float = 0.0
    blind: str | None = None
    reasons: set[str] = field(default_factory=set)
    difference: Difference | None = None

    @property
    def ok(self) -> bool:
        return self.difference is None and self.ids > 0

    def __str__(self) -> str:
        lines = [
            f"{self.texts:,} texts, {self.characters:,} characters in {self.seconds:.1f} s",
            f"checked: {self.positions:,} positions for {self.pieces:,} piece starts, {self.ids:,} ids, "
            f"{self.spans:,} spans",
        ]
        if self.blind:
            lines.append(f"piece level not checked: {self.blind}")
        if self.unseen:
            lines.append(f"piece level not checked on {self.unseen:,} texts that the host normalized")
        if self.skipped:
            lines.append(f"{self.skipped:,} texts on which the reference itself fails")
        if self.refused:
            lines.append(f"{self.refused:,} texts refused by the device path: {'; '.join(sorted(self.reasons))}")
        verdict = str(self.difference or ("0 differences" if self.ids else "nothing was compared"))
        return "\n".join([*lines, verdict])


def run_campaign(
    tokenizer: Tokenizer,
    *,
    seconds: float = 30.0,
    characters: float = float("inf"),
    corpus: Path | None = None,
    seed: int = 0,
) -> Report:
    """Compares `tokenizer` with its own reference for about `seconds`, or on about so many characters.

    `corpus` is a directory of UTF-8 files to draw real text from, by default the interpreter's own library. Raises
    UnsupportedError for a tokenizer that has no device path, InputError for a corpus without text.
    """
    subject = DeviceSubject(tokenizer)
    subject.encode("a")  # a tokenizer without a device path says so here
    texts = campaign_texts(alphabet(tokenizer.spec, token_strings(tokenizer)), read_corpus(corpus), seed)
    return campaign(subject, oracle_for(tokenizer.reference), texts, seconds=seconds, characters=characters)


def campaign(
    subject: Subject,
    oracle: Oracle,
    texts: Iterable[str],
    *,
    seconds: float = float("inf"),
    characters: float = float("inf"),
) -> Report:
    """Compares until the texts, the seconds or the characters are used up, or the first difference."""
    start = time.monotonic()
    report = Report(blind=oracle.blind)
    for text in texts:
        if time.monotonic() - start > seconds or report.characters >= characters:
            break
        if found := compare(subject, oracle, text, report):
            report.difference = _smallest(subject, oracle, found[0])
            break
    report.seconds = time.monotonic() - start
    return report


def compare(subject: Subject, oracle: Oracle, text: str, report: Report) -> list[Difference]:
    """One text: at most one difference a level, pieces first. What was checked is added to `report`."""
    report.texts += 1
    report.characters += len(text)
    claimed = subject.pieces(text)
    try:
        expected = oracle.observe(text, claimed)
    except ReferenceFailed:
        report.skipped += 1
        return []
    try:
        encoding = subject.encode(text)
    except UnsupportedError as error:
        report.refused += 1
        report.reasons.add(str(error))
        return []
    found = list[Difference | None]()
    if claimed is None:
        report.unseen += 1
    elif expected.pieces is not None:
        report.positions += len(text)
        report.pieces += len(expected.pieces)
        found.append(_first_difference("pieces", text, expected.pieces, claimed))
    report.ids += len(expected.ids)
    found.append(_first_difference("ids", text, expected.ids, encoding.ids))
    if expected.char_spans is not None:
        report.spans += len(expected.ids)
        found.append(_first_difference("char_spans", text, expected.char_spans, encoding.char_spans))
    found.append(_disorder(text, encoding.byte_spans))
    return [difference for difference in found if difference is not None]


def _disorder(text: str, spans: np.ndarray) -> Difference | None:
    """What byte spans promise by themselves: start <= end <= bytes of the text, and ends never decreasing.

    Ids of a template stand at (0, 0), also those after the text.
    """
    spans = spans[spans.any(axis=1)]
    starts, ends = spans.T
    wrong = (starts < 0) | (starts > ends) | (ends > len(text.encode()))
    wrong[1:] |= ends[1:] < ends[:-1]
    if not wrong.any():
        return None
    index = int(np.argmax(wrong))
    return Difference("byte_spans", text, index, ["in order, inside the text"], spans[max(index - 1, 0) :][:3].tolist())


def _smallest(subject: Subject, oracle: Oracle, difference: Difference) -> Difference:
    """A difference of the same level on the smallest text that shows one."""

    def of(text: str) -> Difference | None:
        found = compare(subject, oracle, text, Report())
        return next((each for each in found if each.level == difference.level), None)

    return of(shrink(difference.text, lambda text: of(text) is not None)) or difference


def campaign_texts(letters: Alphabet, corpus: Sequence[str], seed: int) -> Iterator[str]:
    """Endless texts: the systematic ones in random order, and between them random, real and mutated blocks."""
    rng = random.Random(seed)
    corpus = [text for text in corpus if len(text) >= _BLOCK] or corpus
    all_short = list(dict.fromkeys(systematic(letters)))
    rng.shuffle(all_short)
    short = iter(all_short)
    while True:
        yield from itertools.islice(short, 40)
        yield adversarial_text(letters, rng, rng.choice((5, 20, 60)))
        yield adversarial_text(letters, rng, _BLOCK)
        real = rng.choice(corpus)
        at = rng.randrange(max(len(real) - _BLOCK, 1))
        block = real[at : at + _BLOCK]
        yield block
        yield mutated(block, letters, rng)[:_BLOCK]


def read_corpus(directory: Path | None) -> list[str]:
    """The UTF-8 texts under `directory`, or of the interpreter's own library. Other files are passed over."""
    root = Path(sysconfig.get_path("stdlib")) if directory is None else directory
    if not root.is_dir():
        raise InputError(f"{root} is not a directory")
    paths = sorted(root.glob("*.py") if directory is None else (p for p in root.rglob("*") if p.is_file()))
    texts = list[str]()
    for path in paths:
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, OSError):
            continue
    if not any(texts):
        raise InputError(f"{root}: no UTF-8 text; give a directory that holds some")
    return [text for text in texts if text]


def token_strings(tokenizer: Tokenizer, count: int = 4000) -> list[str]:
    """The text of `count` tokens spread over the vocabulary, of those that are whole characters."""
    step = max(tokenizer.vocab_size // count, 1)
    strings = (tokenizer.decode_bytes([id]) for id in range(0, tokenizer.vocab_size, step))
    texts = (string.decode("utf-8", errors="replace") for string in strings)
    return [text for text in texts if text and "\ufffd" not in text]


def _first_difference(level: str, text: str, expected: np.ndarray, got: np.ndarray) -> Difference | None:
    if expected.shape == got.shape and np.array_equal(expected, got):
        return None
    shared = min(len(expected), len(got))
    wrong = np.flatnonzero((expected[:shared] != got[:shared]).reshape(shared, -1).any(1))
    index = int(wrong[0]) if len(wrong) else shared
    around = slice(max(index - 1, 0), index + 4)
    return Difference(level, text, index, expected[around].tolist(), got[around].tolist())
