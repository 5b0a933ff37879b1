"""Pathological texts, and the smallest texts that once went wrong somewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import artifacts, corpus
from tests.artifacts import Artifact
from toktier_jax.verify.campaign import DeviceSubject, Report, compare
from toktier_jax.verify.oracle import oracle_for

SMALL = 6_000
LARGE = 1_000_000

KNOWN = (
    ("deepseek-r1-distill-llama-8b", " việcΩ"),  # tokens that only a whole piece can be
    ("glm-4.7-flash", " 而Ω"),
    ("qwen-3", "b" + "a" * 20_000),  # a chunk that starts inside never falls into step
    ("trained-sentencepiece-unk", "ꙮꙮ ꙮ"),  # never cut between two unknown characters
    ("cl100k_base", "1234567 12345678901"),  # possessive in tiktoken, not in Oniguruma
    ("trained-falcon", "в ²½"),  # the byte of a character is a digit of the byte alphabet
    ("deepseek-llm-7b-base", "white space at the end  \n \n\t "),  # \s+$
    ("deepseek-llm-7b-base", "a \nb  \n\n c"),  # $ stands before every newline
    ("deepseek-coder-33b-base", "über Größe øl"),  # letters that are normalized added tokens
    ("mistral-v1", " hello  <s> there</s>"),
    ("trained-bloom", "(a[b.c=d])"),  # a nested class that begins with .
)


@pytest.mark.slow  # a compile for nearly each of the tokenizers
@pytest.mark.parametrize(("name", "text"), KNOWN, ids=lambda value: None if len(value) > 30 else value)
def test_known(name: str, text: str, artifact: Callable[[str], Artifact], device: None) -> None:
    check(artifact(name), [text])


@pytest.mark.slow
@pytest.mark.parametrize("name", artifacts.CHOSEN)
def test_stress(name: str, artifact: Callable[[str], Artifact], device: None) -> None:
    check(artifact(name), [make(size) for make in corpus.STRESS.values() for size in (60, SMALL)])


@pytest.mark.slow
@pytest.mark.parametrize("text", ["one letter", "another letter first", "random letters"])
@pytest.mark.parametrize("name", ["qwen-3", "mistral-v1"])
def test_a_million_characters(name: str, text: str, artifact: Callable[[str], Artifact], device: None) -> None:
    check(artifact(name), [corpus.STRESS[text](LARGE)])


@pytest.mark.slow
@pytest.mark.parametrize("text", corpus.STRESS)
@pytest.mark.parametrize("name", artifacts.CHOSEN)
def test_a_million_of_everything(name: str, text: str, artifact: Callable[[str], Artifact], device: None) -> None:
    check(artifact(name), [corpus.STRESS[text](LARGE)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in artifacts.NAMES if name not in (*artifacts.CHOSEN, *artifacts.ON_REFERENCE)]
)
def test_stress_of_the_others(name: str, artifact: Callable[[str], Artifact], device: None) -> None:
    check(artifact(name), [make(size) for make in corpus.STRESS.values() for size in (60, SMALL)])


def check(loaded: Artifact, texts: list[str]) -> None:
    """Every level equal, nothing refused. A failure prints a part of the text only: these are long."""
    report, oracle = Report(), oracle_for(loaded.reference)
    for text in texts:
        found = compare(DeviceSubject(loaded.tokenizer), oracle, text, report)
        assert not found, (
            f"{found[0].level} at {found[0].index}: {found[0].expected} != {found[0].got} in {text[:40]!r}"
        )
    assert report.refused == 0, report.reasons
