"""What the conformance tests share: artifacts with visible skips, and one place for the missing device path."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import artifacts


@pytest.fixture(scope="session")
def artifact() -> Callable[[str], artifacts.Artifact]:
    """Loads an artifact by name; skips, saying why, where its package is not installed."""

    def load(name: str) -> artifacts.Artifact:
        try:
            return artifacts.load(name)
        except artifacts.Missing as error:
            pytest.skip(f"{name}: {error}")

    return load
