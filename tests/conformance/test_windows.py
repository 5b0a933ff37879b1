"""Ids of the host's windows equal the reference's for the tokenizers that the default run does not compile.

A window reads the same pattern, added tokens, vocabulary and merges as the executables do, and compiles nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from tests import artifacts, corpus
from tests.artifacts import Artifact
from toktier_jax.session_engine import TokenizerEngine
from toktier_jax.sessions import Policy
from toktier_jax.verify.adversarial import adversarial_text, alphabet
from toktier_jax.verify.campaign import token_strings

NAMES = [name for name in artifacts.NAMES if name not in artifacts.FAMILIES and name not in artifacts.ON_REFERENCE]


@pytest.mark.parametrize("name", NAMES)
def test_ids(name: str, artifact: Callable[[str], Artifact]) -> None:
    tokenizer = artifact(name).tokenizer
    if tokenizer.spec.padding:
        pytest.skip("the file pads, and sessions refuse it: `make test-all` encodes with it")
    engine = TokenizerEngine(tokenizer, Policy())
    assert engine.info.reason == "compiled windows on the host"
    contents = [token.content for token in tokenizer.spec.added_tokens]
    letters, draw = alphabet(tokenizer.spec, token_strings(tokenizer, 500)), random.Random(name)
    texts = [corpus.mixed(6000, 3), corpus.chat(contents, 4000, 3), corpus.agent(contents[:8], 3000, 3)]
    texts += [adversarial_text(letters, draw, size) for size in (3000, *[40] * 20)]
    checked = 0
    for text in texts:
        window = engine.encode_full(text.encode())
        if window.where != "host":  # what only the reference can handle goes there by name
            continue
        assert np.array_equal(window.ids, engine.reference_ids(text.encode())), text[:60]
        checked += len(window.ids)
    assert checked > 3000
