"""What the conformance tests share: artifacts with visible skips, and one run over the fixed texts a tokenizer."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests import artifacts, corpus
from tests.artifacts import Artifact
from toktier_jax import engine
from toktier_jax.verify import subject as subject_module
from toktier_jax.verify.adversarial import adversarial_text, alphabet, mutated, systematic
from toktier_jax.verify.campaign import DeviceSubject, Difference, Report, compare, token_strings
from toktier_jax.verify.oracle import Oracle, oracle_for


@pytest.fixture(scope="session", autouse=True)
def few_capacities() -> Iterator[None]:
    """One size of block for nearly all texts: what these tests cost is mostly compiling, for many tokenizers each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "CAPACITIES", (1 << 14, 1 << 20, 1 << 22))
        patch.setattr(engine, "CPU_BLOCK", 1 << 14)
        patch.setattr(subject_module, "_CAPACITIES", (1 << 14, 1 << 16, 1 << 22))
        yield


@pytest.fixture(scope="session")
def device() -> None:
    """Asked for by every test of the device path."""


@pytest.fixture(scope="session")
def artifact() -> Callable[[str], Artifact]:
    """Loads an artifact by name; skips, saying why, where its package is not installed."""

    def load(name: str) -> Artifact:
        try:
            return artifacts.load(name)
        except artifacts.Missing as error:
            pytest.skip(f"{name}: {error}")

    return load


@dataclass
class Subject:
    """A tokenizer under test with its judge."""

    artifact: Artifact

    @functools.cached_property
    def oracle(self) -> Oracle:
        return oracle_for(self.artifact.tokenizer.reference)

    @functools.cached_property
    def device(self) -> DeviceSubject:
        return DeviceSubject(self.artifact.tokenizer)

    def texts(self, scale: float) -> Iterator[str]:
        """The fixed texts of the short run: real, composed, adversarial, mutated, and many tiny ones."""
        tokenizer = self.artifact.tokenizer
        contents = [token.content for token in tokenizer.spec.added_tokens]
        letters = alphabet(tokenizer.spec, token_strings(tokenizer, 2000))
        rng = random.Random(f"{self.artifact.name} texts")
        for seed in range(max(round(scale), 1)):
            yield corpus.mixed(6000, seed)
            yield corpus.chat(contents, 5000, seed)
            yield corpus.agent(contents[:8], 4000, seed)
            yield adversarial_text(letters, rng, 4000)
            yield mutated(corpus.mixed(3000, seed + 50), letters, rng)[:4000]
        for _ in range(round(20 * scale)):
            yield adversarial_text(letters, rng, rng.choice((3, 10, 40)))
        every = list(dict.fromkeys(systematic(letters)))
        yield from rng.sample(every, min(round(60 * scale), len(every)))


_PARAMS = [
    name if name in artifacts.FAMILIES else pytest.param(name, marks=pytest.mark.slow)
    for name in artifacts.NAMES
    if name not in artifacts.ON_REFERENCE
]


@pytest.fixture(scope="session", params=_PARAMS)
def subject(request: pytest.FixtureRequest, artifact: Callable[[str], Artifact]) -> Subject:
    """Each tokenizer in turn: as a fixture of the session, so that pytest runs all tests of one tokenizer together."""
    return Subject(artifact(request.param))


@dataclass
class Outcome:
    """What one run over the fixed texts found: the first difference of each level, and what was checked."""

    report: Report
    differences: dict[str, Difference]


@pytest.fixture(scope="session")
def outcome(subject: Subject, device: None, scale: float) -> Outcome:
    """All levels of one tokenizer in one pass."""
    report, differences = Report(), dict[str, Difference]()
    for text in subject.texts(scale):
        for difference in compare(subject.device, subject.oracle, text, report):
            differences.setdefault(difference.level, difference)
    return Outcome(report, differences)


def first(count: int, texts: Iterator[str]) -> list[str]:
    return list(itertools.islice(texts, count))
