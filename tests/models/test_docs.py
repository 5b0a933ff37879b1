"""The examples of docs/models.md run, each behind the page's first block."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toktier_jax import models

from .forward import whole

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"


def blocks() -> list[str]:
    """The indented code of the page; blank lines do not end a block."""
    found = re.findall(r"(?:^    .*\n|^\n(?=(?:\n)*    ))+", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


@pytest.mark.parametrize("number", [1, 2])
def test_each_example_makes_a_model(number: int) -> None:
    first, *examples = blocks()
    assert len(examples) == 2
    names: dict[str, Any] = {}
    exec(first, names)
    exec(examples[number - 1], names)
    assert isinstance(names["lm"], models.Model)
    logits = whole(names["lm"], [3, 41, 7, 0])
    assert np.isfinite(logits).all()
    assert logits.shape[-1] == names["vocab_size"]
