"""Every pre-tokenizer type against the reference's own pieces, one pass of texts packed as documents."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Regex, pre_tokenizers

from toktier_jax.errors import UnsupportedError
from toktier_jax.ops.classify import classify
from toktier_jax.ops.split import split
from toktier_jax.plan import SplitPlan
from toktier_jax.program.classes import everything, partition
from toktier_jax.program.split import GPT2_PATTERN, SplitStage, split_stages, split_tables
from toktier_jax.spec import types as spec
from toktier_jax.spec.byte_alphabet import from_alphabet
from toktier_jax.types import REMOVED, TEXT, Buffer

SIZE = 1 << 14
BEHAVIORS: tuple[spec.Behavior, ...] = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
NAMES = {behavior: "".join(f"_{c.lower()}" if c.isupper() else c for c in behavior)[1:] for behavior in BEHAVIORS}
LETTERS = "aabS1٣²  \n\t\r\u3000'-.,_é€世ー\U0001f600\u0301ſ\u2581\u200d\x00"


def texts(count: int) -> list[str]:
    rng = random.Random(count)
    chosen = ["".join(rng.choices(LETTERS, k=rng.randint(1, 14))) for _ in range(count)]
    return [*chosen, "1234567", "a\n \nb  ", "в", "don't 'S", "  ", "\n"]


@functools.cache
def compiled(plan: SplitPlan):
    return jax.jit(functools.partial(split, plan, at_end=True, lowering="walk"))


def pieces(stages: Sequence[SplitStage], documents: Sequence[str]) -> list[list[bytes]]:
    """The kept pieces of each document."""
    over_characters = [stage for stage in stages if stage.plan.unit == "char"]
    cut = partition([mask for stage in over_characters for mask in stage.masks] or [everything()])
    text = b"".join(document.encode() for document in documents)
    assert len(text) <= SIZE
    begins = np.cumsum([0, *(len(document.encode()) for document in documents)])
    data = np.frombuffer(text.ljust(SIZE, b"\0"), np.uint8)
    starts = np.zeros(SIZE + 1, bool)
    starts[begins] = True
    length = jnp.int32(len(text))
    symbols = classify(jnp.asarray(data), length, cut.pages, cut.table, jnp.zeros(8, jnp.uint8), lowering="arrays")
    kind = jnp.full(SIZE, TEXT, jnp.uint8)
    first = jnp.asarray(starts[:SIZE])
    buffer = Buffer(jnp.asarray(data), length, first, first, kind, None, None, length)
    taken = 0
    for stage in stages:
        members = None
        if stage.plan.unit == "char":
            members = cut.members[:, taken : taken + len(stage.masks)]
            taken += len(stage.masks)
        buffer = compiled(stage.plan)(split_tables(stage, members), buffer, symbols)
    found: list[list[bytes]] = [[] for _ in documents]
    places = [*np.flatnonzero(np.asarray(buffer.starts)[: len(text)]).tolist(), len(text)]
    kind = np.asarray(buffer.kind)
    for start, stop in itertools.pairwise(places):
        if kind[start] != REMOVED:
            found[int(np.searchsorted(begins, start, side="right")) - 1].append(text[start:stop])
    return found


def check(steps: Sequence[spec.PreTokenizer], reference, count: int = 150) -> None:
    documents = texts(count)
    in_alphabet = any(isinstance(step, spec.ByteLevel) for step in steps)
    for document, found in zip(documents, pieces(split_stages(steps, "oniguruma"), documents), strict=True):
        expected = [piece for piece, _ in reference.pre_tokenize_str(document)]
        spelled = [from_alphabet(piece) if in_alphabet else piece.encode() for piece in expected]
        assert found == spelled, repr(document)


def regex(pattern: str, behavior: spec.Behavior = "Isolated", invert: bool = False) -> tuple[spec.Split, object]:
    step = spec.Split(spec.Pattern(pattern, regex=True), behavior, invert)
    return step, pre_tokenizers.Split(Regex(pattern), NAMES[behavior], invert)


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_behaviors(behavior: spec.Behavior, invert: bool) -> None:
    for pattern in (r"a+|\s?\d|'", r"\S|\s+"):
        step, reference = regex(pattern, behavior, invert)
        check([step], reference)
    literal = spec.Split(spec.Pattern("a.", regex=False), behavior, invert)
    check([literal], pre_tokenizers.Split("a.", NAMES[behavior], invert))


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_punctuation(behavior: spec.Behavior) -> None:
    check([spec.Punctuation(behavior)], pre_tokenizers.Punctuation(NAMES[behavior]))


@pytest.mark.parametrize(
    ("step", "reference"),
    [
        (spec.ByteLevel(False, True, True), pre_tokenizers.ByteLevel(add_prefix_space=False)),
        (spec.ByteLevel(False, True, False), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
        (spec.Digits(True), pre_tokenizers.Digits(individual_digits=True)),
        (spec.Digits(False), pre_tokenizers.Digits(individual_digits=False)),
        (spec.Whitespace(), pre_tokenizers.Whitespace()),
        (spec.WhitespaceSplit(), pre_tokenizers.WhitespaceSplit()),
        (spec.BertPreTokenizer(), pre_tokenizers.BertPreTokenizer()),
        (spec.CharDelimiterSplit("a"), pre_tokenizers.CharDelimiterSplit("a")),
        (spec.FixedLength(3), pre_tokenizers.FixedLength(3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_types(step: spec.PreTokenizer, reference: object) -> None:
    check([step], reference)


def test_metaspace_splits_before_its_replacement() -> None:
    """Replacing spaces and the prefix are rewrites; here the text has no space and begins with the replacement."""
    step = spec.Metaspace("\u2581", "never", split=True)
    reference = pre_tokenizers.Metaspace("\u2581", "never")
    documents = [text.replace(" ", "_") for text in texts(100)]
    for document, found in zip(documents, pieces(split_stages([step], "oniguruma"), documents), strict=True):
        assert found == [piece.encode() for piece, _ in reference.pre_tokenize_str(document)]
    assert split_stages([spec.Metaspace("\u2581", "never", split=False)], "oniguruma") == []


def test_sequences_with_the_byte_alphabet_before_other_steps() -> None:
    """Falcon: digits and a Split read the byte alphabet, so a piece can begin inside a character (`в`)."""
    three, reference = regex("[0-9][0-9][0-9]")
    steps = [spec.Punctuation("Contiguous"), spec.ByteLevel(False, True, True), spec.Digits(False), three]
    check(
        steps,
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
                pre_tokenizers.Digits(individual_digits=False),
                reference,
            ]
        ),
    )
    assert [stage.plan.unit for stage in split_stages(steps, "oniguruma")] == ["char", "char", "byte", "byte"]


def test_stages_are_passes() -> None:
    """DeepSeek-LLM's Splits one after another, with `\\s+$` among them."""
    made = [regex(pattern) for pattern in (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", "[一-龥]+")]
    digits = spec.Digits(True), pre_tokenizers.Digits(individual_digits=True)
    check([step for step, _ in [*made, digits]], pre_tokenizers.Sequence([part for _, part in [*made, digits]]))


def test_patterns_without_gaps_need_no_rule() -> None:
    """MiniMax: `Removed` and `invert` over a pattern that matches everything is `Isolated`."""
    (stage,) = split_stages([regex(GPT2_PATTERN, "Removed", True)[0]], "oniguruma")
    assert stage.plan == SplitPlan("char", "Isolated", False)
    (stage,) = split_stages([regex(r"\p{L}+", "Removed", True)[0]], "oniguruma")
    assert stage.plan == SplitPlan("char", "Removed", True)


@pytest.mark.parametrize(
    "steps",
    [
        [spec.UnicodeScripts()],
        [spec.FixedLength(0)],
        [spec.FixedLength(65)],
        [spec.ByteLevel(False, True, False), spec.ByteLevel(False, True, False)],
        [regex(r"(?<=a)b")[0]],
    ],
)
def test_refused_by_name(steps: list[spec.PreTokenizer]) -> None:
    with pytest.raises(UnsupportedError, match=r"UnicodeScripts|FixedLength|ByteLevel|look-behind"):
        split_stages(steps, "oniguruma")
