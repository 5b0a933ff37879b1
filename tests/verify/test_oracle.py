"""The oracles show the pieces that the pure-Python reference sees, and refuse wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers

from tests import artifacts, corpus, generated
from tests.reference.characters import in_class
from tests.reference.pattern import regex_spans
from tests.reference.tokenizer import ReferenceTokenizer
from tests.tokenizer_files import added, bpe, tokenizer_json
from toktier_jax.program.pattern import parse
from toktier_jax.verify.oracle import ReferenceFailed, TiktokenOracle, TokenizersOracle


def piece_lengths(pieces: list[tuple[bytes, int | None]]) -> list[int]:
    return [len(text.decode()) if id is None else -1 - id for text, id in pieces]


def test_pieces_of_generated_files() -> None:
    for made in generated.generate(40, 200):
        theirs, ours = TokenizersOracle(tokenizers.Tokenizer.from_buffer(made.file)), ReferenceTokenizer(made.file)
        for text in generated.texts(made.file, 6, seed=1):
            try:
                seen = theirs.observe(text, None).pieces
            except ReferenceFailed:
                continue
            assert seen is not None
            assert seen.tolist() == piece_lengths(ours.encode(text).pieces), (made.name, text)


@pytest.mark.parametrize("name", ["trained-starcoder", "trained-falcon", "trained-bert", "trained-llama"])
def test_both_ways_to_the_pieces_agree(name: str) -> None:
    oracle = TokenizersOracle(artifacts.load(name).reference)
    text = corpus.mixed(2000, 4) + corpus.chat(["<|endoftext|>", "[CLS]", "<s>"], 500)
    spelled = oracle.observe(text, None).pieces
    confirmed = oracle.observe(text, spelled).pieces
    assert spelled is not None
    assert confirmed is not None
    assert confirmed.tolist() == spelled.tolist()


def test_an_added_token_that_looks_like_a_byte_blinds_the_piece_level() -> None:
    file = tokenizer_json(bpe({"a": 0}, []), added=[added(0, "<0x41>", normalized=False)])
    oracle = TokenizersOracle(tokenizers.Tokenizer.from_buffer(file))
    assert "<0x41>" in (oracle.blind or "")
    assert oracle.observe("a<0x41>", None).pieces is None


def test_tiktoken_confirms_right_pieces_only() -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="the package tiktoken is not installed (make setup brings it)")
    pattern = r"[a-z]+|[0-9]{1,3}+| +"
    encoding = tiktoken.Encoding(
        "small",
        pat_str=pattern,
        mergeable_ranks={**{bytes([byte]): byte for byte in range(256)}, b"ab": 256, b"cab": 257},
        special_tokens={"<s>": 300},
    )
    oracle = TiktokenOracle(encoding)
    text = "abcab 1234567  x"
    right = [stop - start for start, stop in regex_spans(parse(pattern, "tiktoken"), text, in_class)]
    assert right == [5, 1, 3, 3, 1, 2, 1]
    for wrong in (
        [5, 1, 3, 4, 2, 1],
        [2, 3, 1, 3, 3, 1, 2, 1],
        [5, 1, 2, 4, 1, 2, 1],
        [5, 1, 3, 3, 1, 1, 1, 1],
        right[:-1],
    ):
        assert oracle.observe(text, np.array(wrong)).pieces.tolist() != wrong
    assert oracle.observe(text, np.array(right)).pieces.tolist() == right
    special = np.array([2, -301, 1])
    assert oracle.observe("ab<s>c", special).pieces.tolist() == special.tolist()
    assert oracle.observe("ab<s>c", np.array([2, 3, 1])).pieces.tolist() == []
