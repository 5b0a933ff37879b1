"""Gates A and B: the next byte's distribution and draws from C(P) equal brute-force sums over covers."""

from __future__ import annotations

import numpy as np
import pytest

from toktier_jax import sampling
from toktier_jax.errors import InputError
from toktier_jax.sampling import bytetree, merges
from toktier_jax.sampling.distribution import ByteWalk
from toktier_jax.sampling.prompt import read_prompts
from toktier_jax.sampling.vocabulary import vocabulary_of

from . import brute, small
from .hash_model import HashModel

PROMPTS = [
    b"  =",
    b"x\n \n",
    b"!'t",
    b"9123",
    b"it's a dampf",
    b"https:",
    b"a ",
    "die 中".encode()[:-1],
    b"12",
    b"",
    b"\n  ",
]


def start_of(tok) -> tuple[int, ...]:
    return tok.spec.post_processor.before


def expected_next(tok, lm, prompt: bytes) -> np.ndarray:
    """float64 [257]: sums of w over C+ by first byte, and of the special tokens after the prompt's encoding."""
    vocabulary, start = vocabulary_of(tok), start_of(tok)
    mass = np.zeros(257)
    found = brute.covers(tok, prompt, strict=True)
    for path, logprob in brute.weights(tok, lm, start, found).items():
        text = b"".join(tok.token_bytes(id) for id in path)
        mass[text[len(prompt)]] += np.exp(logprob)
    try:
        whole = tuple(tok.reference.encode(prompt.decode(), add_special_tokens=False).ids)
    except UnicodeDecodeError:
        whole = None
    if whole is not None:
        ends = [(*whole, id) for id in vocabulary.special]
        mass[256] = sum(np.exp(w) for w in brute.weights(tok, lm, start, ends).values())
    return mass / mass.sum()


@pytest.mark.parametrize("prompt", PROMPTS, ids=repr)
def test_gate_a_the_next_byte_is_that_of_brute_force(prompt: bytes) -> None:
    tok = small.tokenizer(bos=True)
    lm = small.model(tok.vocab_size + 5)
    ours = sampling.next_byte_distribution(lm, tok, prompt)
    assert ours.dtype == np.float64
    assert np.abs(ours - expected_next(tok, lm, prompt)).sum() < 1e-5


@pytest.mark.parametrize(("prompt", "temperature"), [(b"https", 2.0), (b"a ", 1.0)], ids=repr)
def test_gate_a_draws_from_the_covers_follow_their_weights(prompt: bytes, temperature: float, scale: float) -> None:
    tok = small.tokenizer(bos=True)
    lm = small.model(tok.vocab_size + 5)
    start = start_of(tok)
    weights = brute.weights(tok, lm, start, brute.covers(tok, prompt, strict=False), temperature)
    total = np.logaddexp.reduce(list(weights.values()))
    count, seen = int(512 * scale), {}
    for seed in range(0, count, 128):
        outs = sampling.generate(lm, tok, [prompt] * 128, max_tokens=1, temperature=temperature, seed=seed)
        for out in outs:
            path = (*out.boundary.kept[len(start) :], out.ids[0])
            seen[path] = seen.get(path, 0) + 1
    assert set(seen) <= set(weights)
    expected = {path: count * np.exp(w - total) for path, w in weights.items()}
    often = [path for path in expected if expected[path] >= 5]
    rest = count - sum(expected[path] for path in often)
    statistic = sum((seen.get(path, 0) - expected[path]) ** 2 / expected[path] for path in often)
    if rest > 5:
        few = sum(n for path, n in seen.items() if path not in often)
        statistic += (few - rest) ** 2 / rest
    freedom = len(often)
    assert statistic < freedom + 5 * np.sqrt(2 * freedom) + 5


def test_gate_b_with_invalid_tokens_masked_before_each_softmax() -> None:
    tok = small.tokenizer(bos=True)
    lm = HashModel(tok)
    text = b"it's  =\n \nof 912"
    for end in range(1, len(text)):
        prompt, byte = text[:end], text[end]
        walk = ByteWalk(lm, tok, prompt)
        covers = walk.rules.covers(walk.ids, walk.text, strict=True)
        rows, ways = walk.nodes(covers)
        mass = np.exp(ways[covers.strict[0]] + np.stack(rows)[covers.strict[:2]]).sum()
        at = covers.nodes.index(covers.end)
        mass += np.exp(ways[at] + rows[at][sorted(vocabulary_of(tok).special)]).sum()
        inside = np.exp(ways[covers.leaves[0]] + np.stack(rows)[covers.leaves]).sum()
        assert mass == pytest.approx(inside, rel=1e-5)
        step = sampling.score(lm, tok, prompt, bytes([byte]))
        assert step == pytest.approx(np.log(sampling.next_byte_distribution(lm, tok, prompt)[byte]), abs=1e-5)


def test_the_sum_over_covers_is_the_probability_of_the_prompt() -> None:
    tok = small.tokenizer(bos=True)
    lm = small.model(tok.vocab_size)
    for prompt in (b"it's a d", b"a "):
        weights = brute.weights(tok, lm, start_of(tok), brute.covers(tok, prompt, strict=False))
        total = np.logaddexp.reduce(list(weights.values()))
        assert sampling.prompt_logprob(lm, tok, prompt) == pytest.approx(total, abs=1e-5)


def test_a_special_token_is_the_end_and_never_its_first_byte() -> None:
    tok = small.tokenizer(bos=True)
    end = tok.reference.token_to_id("<|end|>")
    lm = HashModel(tok, favour=(b"it's a", end))
    shares = sampling.next_byte_distribution(lm, tok, "it's a")
    assert shares[256] > 0.5
    assert shares[ord("<")] < 0.01
    assert shares.sum() == pytest.approx(1.0)


def test_nothing_is_forwarded_twice_and_nothing_new_is_no_call() -> None:
    tok = small.tokenizer(bos=True)
    walk = ByteWalk(small.model(tok.vocab_size), tok, "h")
    text = b"ttps://example.org: https://"
    for byte in text:
        shares = walk.next()
        calls = walk.tree.calls
        assert np.array_equal(walk.next(), shares)
        assert walk.tree.calls == calls
        walk.push(byte)
    assert walk.tree.forwarded <= 2 * len(text)


def test_the_mask_of_a_chain_costs_a_row_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a walk to the root for each token, which would be quadratic in the prompt."""
    tok = small.tokenizer(bos=True)
    lm, walked = small.model(tok.vocab_size), []
    way = bytetree.PathNode.way
    monkeypatch.setattr(bytetree.PathNode, "way", lambda node: walked.append(node.depth) or way(node))
    tree = bytetree.PathTree(lm, np.ones(lm.vocab_size, bool), 256)
    tree.logprobs([tuple(range(200))])
    assert tree.forwarded == 200
    assert len(walked) <= 1


def test_paths_that_share_a_trunk_share_its_slots() -> None:
    lm = small.model(small.tokenizer(bos=True).vocab_size, context=512)
    known = np.ones(lm.vocab_size, bool)
    trunk = tuple(range(300))
    paths = [(*trunk, id, id) for id in range(20)]
    tree = bytetree.PathTree(lm, known, 64)
    rows = tree.logprobs(paths)
    assert tree.capacity < 1000
    for path, row in list(zip(paths, rows, strict=True))[::7]:
        alone = bytetree.PathTree(lm, known, 512).logprobs([path])[0]
        assert np.allclose(row, alone, atol=1e-5)


def test_the_pairs_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = merges.merges_of(small.tokenizer().spec, vocabulary_of(small.tokenizer()).strings)
    answers = [rules.pair(left, right) for left in range(9) for right in range(9)]
    monkeypatch.setattr(merges, "_KEPT", 16)
    assert [rules.pair(left, right) for right in range(9, 20) for left in range(9)]
    assert len(rules._pairs) <= 16
    assert [rules.pair(left, right) for left in range(9) for right in range(9)] == answers


def test_sampled_bytes_follow_the_chain_of_next_bytes() -> None:
    tok = small.tokenizer(bos=True)
    lm = small.model(tok.vocab_size)
    data = sampling.sample_bytes(lm, tok, "it's", max_bytes=6, seed=1)
    assert data == sampling.sample_bytes(lm, tok, "it's", max_bytes=6, seed=1)
    greedy = sampling.sample_bytes(lm, tok, "it's", max_bytes=4, temperature=0)
    text = b"it's"
    for byte in greedy:
        assert byte == np.argmax(sampling.next_byte_distribution(lm, tok, text))
        text += bytes([byte])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_bytes": -1}, "max_bytes=-1"),
        ({"max_bytes": 1.5}, "max_bytes=1.5"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"temperature": -1.0}, "temperature=-1"),
        ({"temperature": "hot"}, "temperature='hot'"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"seed": 1 << 64}, "seed="),
    ],
)
def test_bad_numbers_are_named(options: dict, message: str) -> None:
    tok = small.tokenizer(bos=True)
    with pytest.raises(InputError, match=message):
        sampling.sample_bytes(small.model(tok.vocab_size), tok, "it's", **options)


def test_a_seed_may_be_negative_and_a_temperature_near_0() -> None:
    tok = small.tokenizer(bos=True)
    lm = small.model(tok.vocab_size)
    assert len(sampling.sample_bytes(lm, tok, "it's", seed=-1, max_bytes=2)) <= 2
    assert len(sampling.sample_bytes(lm, tok, "it's", temperature=1e-320, max_bytes=2)) <= 2


def test_what_cannot_be_scored_is_named() -> None:
    tok = small.tokenizer(bos=True)
    lm = small.model(tok.vocab_size)
    for prompt, more, message in (
        ("a\ud800", "b", "the prompt holds a lone surrogate at character 1"),
        ("a", "b\udc00", "the continuation holds a lone surrogate at character 1"),
        ([65], "b", "prompt: list"),
        ("a", 3, "continuation: int"),
        ("a", b"\xff", "the prompt with the continuation is not UTF-8 at byte 1"),
    ):
        with pytest.raises(InputError, match=message):
            sampling.score(lm, tok, prompt, more)  # type: ignore[arg-type]  # that is the point


def test_without_bos_the_context_has_to_be_given_and_id_0_is_one() -> None:
    tok = small.tokenizer()
    lm = small.model(tok.vocab_size)
    for call in (sampling.next_byte_distribution, sampling.prompt_logprob, sampling.generate):
        with pytest.raises(InputError, match="context_start"):
            call(lm, tok, "h")
    out = sampling.generate(lm, tok, "it", context_start=0, max_tokens=2)
    assert out.boundary.kept[0] == 0
    assert np.isfinite(sampling.prompt_logprob(lm, tok, "it", context_start=0))


def test_a_special_token_that_the_prompt_begins_cannot_be_scored() -> None:
    """As text it has no probability, and as a token it is no continuation of what begins it."""
    tok = small.tokenizer(bos=True)
    lm = small.model(tok.vocab_size)
    for prompt, more in (("a<|e", "nd|>"), ("a<|end|", "> b"), ("<", "|end|>")):
        with pytest.raises(InputError, match=r"ends the special token '<\|end\|>'"):
            sampling.score(lm, tok, prompt, more)
    for prompt, more in (("a", "<|end|>"), ("a<|end|>", " b"), ("a<|e", "nd|"), ("", "a")):
        assert sampling.score(lm, tok, prompt, more) <= 0


def test_a_continuation_that_composes_with_the_prompts_end_is_an_error() -> None:
    tok = small.changed(normalizer={"type": "NFC"})
    lm = small.model(tok.vocab_size)
    for prompt, more in (("e", "\u0301"), ("\u1100", "\u1161"), (b"e\xcc", b"\x81x"), (b"x\xe2\x84", b"\xab")):
        with pytest.raises(InputError, match="composes with the prompt's end"):
            sampling.score(lm, tok, prompt, more)
    for prompt, more in (("x", "\u212b"), ("it's", " e\u0301"), ("e", "\u0316"), ("中", "文"), (b"e\xcc", b"\x90")):
        assert sampling.score(lm, tok, prompt, more) <= 0
    walk = ByteWalk(lm, tok, "e")
    walk.push(0xCC)
    assert walk.next()[0x81] == -np.inf
    with pytest.raises(InputError, match="normal form, NFC"):
        walk.push(0x81)


def test_a_walk_into_a_special_token_is_an_error() -> None:
    tok = small.tokenizer(bos=True)
    walk = ByteWalk(small.model(tok.vocab_size), tok, "a <|end|")
    assert walk.next()[ord(">")] == -np.inf
    with pytest.raises(InputError, match=r"completes the special token '<\|end\|>'"):
        walk.push(ord(">"))
    assert walk.text == b"a <|end|"


def test_a_walk_past_an_added_token_is_what_the_text_itself_gives() -> None:
    """Bytes that complete an added token are that token from then on."""
    tok = small.tokenizer(added=True, bos=True)
    lm = small.model(tok.vocab_size)
    text = b"a <think>it's"
    walk = ByteWalk(lm, tok, text[:4])
    for at in range(4, len(text)):
        walk.push(text[at])
        assert walk.ids == read_prompts(tok, text[: at + 1], "exact", None)[0][0].ids
        direct = sampling.next_byte_distribution(lm, tok, text[: at + 1])
        np.testing.assert_allclose(np.exp(walk.next()), direct, atol=1e-6)
