"""generate and stream: the boundary's invariants, the loop's options, stops, constraints, reuse, bad input."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import random
import time
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toktier_jax import models, sampling
from toktier_jax.errors import CapacityError, InputError
from toktier_jax.sampling import loop as loops
from toktier_jax.sampling import stops
from toktier_jax.sampling.covers import CoverRules, cover_rules
from toktier_jax.sampling.healing import Healed, heal
from toktier_jax.sampling.splits import Open
from toktier_jax.sampling.vocabulary import vocabulary_of

from . import brute, small
from .hash_model import HashModel

BOUNDARIES = ("none", "heal", "exact")


@pytest.fixture(scope="module")
def tok() -> Any:
    return small.tokenizer(bos=True)


@pytest.fixture(scope="module")
def lm(tok: Any) -> Any:
    return small.model(tok.vocab_size + 5)


def spells_the_prompt(tok: Any, out: sampling.Completion, prompt: bytes) -> None:
    before = tok.decode_bytes(tok.spec.post_processor.before)
    assert tok.decode_bytes([*out.boundary.kept, *out.ids]) == before + prompt + out.data


# ---- invariants ----


def random_prompt(rng: random.Random) -> bytes:
    parts = (
        b"",
        b" ",
        b"\n  ",
        b"it's",
        b"https:",
        " 中".encode(),
        " 中文".encode(),
        b"<|start|>",
        b"<think>",
        b"12",
        b"dampf",
        b"\t",
    )
    prompt = b"".join(rng.choice(parts) for _ in range(rng.randrange(0, 6)))
    if rng.random() < 0.2 and prompt and prompt[-1] >= 0x80:
        prompt = prompt[: -rng.randrange(1, 3)]
    if rng.random() < 0.02:
        prompt = b"word " * 60
    return prompt


def is_canonical(rules: CoverRules, ids: list[int]) -> bool:
    """Whether a text's pieces and merges give just these ids: told border by border and pair by pair, by no encode."""
    vocabulary, merges, splitter = rules.vocabulary, rules.canonical.merges, rules.canonical.splitter
    for added, run in itertools.groupby(ids, (vocabulary.special | vocabulary.added).__contains__):
        if added:
            continue
        tokens = list(run)
        data = b"".join(vocabulary.strings[id] for id in tokens)
        ends = list(itertools.accumulate(len(vocabulary.strings[id]) for id in tokens))
        starts = splitter.final(Open(0, data, splitter.begin))
        whole = set(np.flatnonzero(starts[: len(data)]).tolist()) <= {0, *ends}
        pairs = zip(itertools.pairwise(tokens), ends, strict=False)
        if not (
            whole
            and all(map(merges.reachable, tokens))
            and all(starts[end] or merges.pair(*pair) for pair, end in pairs)
            and not any(literal in data for literal in vocabulary.literals)
        ):
            return False
    return True


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_random_prompt_ends(boundary: str, scale: float) -> None:
    rng = random.Random(boundary)
    for bos in (True, False):
        tok = small.tokenizer(added=True, bos=bos)
        rules = cover_rules(tok)
        lm = small.model(tok.vocab_size, context=64)
        canonical = 0
        for _ in range(max(1, int(2 * scale))):
            prompts = [random_prompt(rng) for _ in range(32)]
            long = [len(tok.encode(p.decode("utf-8", "ignore"), route="reference").ids) >= 50 for p in prompts]
            fitting = [b"a" if over else p for p, over in zip(prompts, long, strict=True)]  # one batch size
            start = None if bos else 0
            outs = sampling.generate(
                lm, tok, fitting, boundary=boundary, max_tokens=4, context_start=start, seed=rng.randrange(99)
            )
            for prompt, out in zip(fitting, outs, strict=True):
                before = tok.decode_bytes(tok.spec.post_processor.before if bos else (0,))
                ids = [*out.boundary.kept, *out.ids]
                assert tok.decode_bytes(ids) == before + prompt + out.data
                assert out.usage.completion_tokens <= 4
                try:
                    text = (prompt + out.data).decode()
                except UnicodeDecodeError:
                    continue
                again = tok.reference.encode(text, add_special_tokens=False).ids
                same = is_canonical(rules, ids[1:])  # without BOS or `context_start`
                assert (ids[1:] == again) == same
                canonical += same and bool(out.ids)
            for over in set(prompts) - set(fitting):
                with pytest.raises(InputError, match="context"):
                    sampling.generate(lm, tok, over, boundary=boundary, context_start=start)
        assert canonical > 0


@pytest.mark.slow
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_ten_thousand_random_prompt_ends(boundary: str) -> None:
    test_random_prompt_ends(boundary, 26.5)  # 2 x 53 batches of 32 for each of three boundaries


def test_white_space_special_tokens_and_bos_of_a_prompt_stay(tok: Any, lm: Any) -> None:
    for prompt in (b" a ", b"<|start|>a", b"a\n\n", b"<|start|>", b""):
        for boundary in BOUNDARIES:
            out = sampling.generate(lm, tok, prompt, boundary=boundary, max_tokens=2)
            assert out.boundary.kept[0] == tok.spec.post_processor.before[0]
            spells_the_prompt(tok, out, prompt)


def test_a_prompt_that_ends_in_a_special_token_is_left_alone(tok: Any, lm: Any) -> None:
    outs = [sampling.generate(lm, tok, "it's<|start|>", boundary=b, max_tokens=4) for b in BOUNDARIES]
    assert len({(out.data, out.ids, out.boundary.mode) for out in outs}) == 1


def test_ids_are_taken_as_they_are_unless_a_boundary_is_asked_for(tok: Any, lm: Any) -> None:
    ids = tok.encode("it's a d").ids.tolist()[:-1]
    assert sampling.generate(lm, tok, ids, max_tokens=1).boundary.mode == "none"
    assert sampling.generate(lm, tok, ids, boundary="exact", max_tokens=1).boundary.mode == "exact"
    assert (
        sampling.generate(lm, tok, np.array(ids), max_tokens=1).ids == sampling.generate(lm, tok, ids, max_tokens=1).ids
    )


def test_rows_of_a_batch_that_heal_differently_are_what_they_are_alone(tok: Any, lm: Any) -> None:
    prompts = ["https", "it's a d", "<|start|>", "x\n \n", "12"]
    for boundary in ("heal", "exact"):
        together = sampling.generate(lm, tok, prompts, boundary=boundary, temperature=0, max_tokens=5)
        alone = [sampling.generate(lm, tok, p, boundary=boundary, temperature=0, max_tokens=5) for p in prompts]
        assert [out.data for out in together] == [out.data for out in alone]


# ---- healing ----


def test_healed_text_begins_with_the_dropped_bytes(tok: Any, lm: Any) -> None:
    for count in (1, 2, 3, "auto"):
        out = sampling.generate(lm, tok, "it's ht", boundary="heal", heal_tokens=count, max_tokens=3)
        spells_the_prompt(tok, out, b"it's ht")
        assert out.logprobs[0].conditional or not out.boundary.cut


def test_healing_stops_at_what_was_put_before_the_prompt(tok: Any) -> None:
    vocabulary = vocabulary_of(tok)
    start, ids = tok.spec.post_processor.before, tuple(tok.encode(" Don", False).ids.tolist())
    assert (len(start), len(ids), vocabulary.extends(b" Don")) == (1, 2, True)
    for count in range(1, len(ids) + 3):
        healed = heal(vocabulary, (*start, *ids), tokens=count, fixed=1)
        if not vocabulary.extends(healed.rest):
            assert (count, healed.rest) == (1, b"")
            continue
        assert healed.kept == (*start, *ids)[: max(1, 1 + len(ids) - count)]
        assert healed.rest == tok.decode_bytes(ids)[len(tok.decode_bytes(healed.kept[1:])) :]
    for count in range(len(ids), len(ids) + 3):  # nothing would remain
        assert heal(vocabulary, ids, tokens=count) == Healed(ids, b"")


def test_a_prompt_beyond_the_context_is_refused_before_its_covers_are_sought(
    tok: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toktier_jax.sampling import repair

    monkeypatch.setattr(repair, "cover_rules", None)
    with pytest.raises(InputError, match=r"the prompt has \d+ tokens and the model's context 48"):
        sampling.generate(small.model(tok.vocab_size, context=48), tok, "it's " * 100)


def test_healing_is_the_masked_and_renormalized_conditional(tok: Any, lm: Any) -> None:
    out = sampling.generate(lm, tok, "ht", boundary="heal", max_tokens=1, temperature=0, logprobs=3)
    vocabulary = vocabulary_of(tok)
    assert out.boundary.cut
    row = brute.logprobs(lm, [out.boundary.kept])[out.boundary.kept]
    cut = out.boundary.cut
    allowed = [i for i, s in enumerate(vocabulary.strings) if s and (s.startswith(cut) or cut.startswith(s))]
    best = max(allowed, key=lambda id: row[id])
    assert out.ids[0] == best
    expected = row[best] - np.logaddexp.reduce(row[allowed])
    assert out.logprobs[0].logprob == pytest.approx(expected, abs=1e-4)


def test_special_tokens_are_banned_until_the_rest_is_spelled(tok: Any) -> None:
    end = tok.reference.token_to_id("<|end|>")
    lm = HashModel(tok, favour=(b"", end))
    out = sampling.generate(lm, tok, "ht", boundary="heal", max_tokens=1)
    assert out.ids
    assert end not in out.ids


# ---- the exact draw ----


def test_greedy_is_the_most_probable_cover_at_temperature_1(tok: Any, lm: Any) -> None:
    start = tok.spec.post_processor.before
    for prompt in (b"it's a d", b"https", b"a "):
        weights = brute.weights(tok, lm, start, brute.covers(tok, prompt, strict=False))
        best = max(weights, key=lambda path: weights[path])
        out = sampling.generate(lm, tok, prompt, temperature=0, max_tokens=1)
        assert (*out.boundary.kept[len(start) :], out.ids[0]) == best
        total = np.logaddexp.reduce(list(weights.values()))
        assert out.logprobs[0].logprob == pytest.approx(weights[best] - total, abs=1e-4)


def test_the_numbers_of_the_first_exact_token_are_at_temperature_1_before_the_penalty(tok: Any, lm: Any) -> None:
    start = tok.spec.post_processor.before
    prompt = b"it's a d"
    weights = brute.weights(tok, lm, start, brute.covers(tok, prompt, strict=False))
    total = np.logaddexp.reduce(list(weights.values()))
    only = np.zeros((1, lm.vocab_size), bool)
    only[:, 60:260:3] = True
    plain = sampling.generate(lm, tok, prompt, max_tokens=1, temperature=0)
    for options in (
        {"temperature": 1.0},
        {"temperature": 3.0, "top_k": 40},
        {"temperature": 1.0, "repetition_penalty": 5.0},
        {"temperature": 0.5, "constraint": Only(jnp.asarray(only))},
    ):
        out = sampling.generate(lm, tok, prompt, max_tokens=1, **options)
        assert out.boundary.logprob == pytest.approx(plain.boundary.logprob, abs=1e-5)
        assert out.boundary.dropped == pytest.approx(plain.boundary.dropped, abs=1e-5)
        if "constraint" not in options:
            path = (*out.boundary.kept[len(start) :], out.ids[0])
            assert out.logprobs[0].logprob == pytest.approx(weights[path] - total, abs=1e-4)


def test_truncation_acts_once_on_the_covers(tok: Any, lm: Any) -> None:
    start = tok.spec.post_processor.before
    prompt = b"a "
    weights = brute.weights(tok, lm, start, brute.covers(tok, prompt, strict=False))
    order = sorted(weights, key=lambda path: -weights[path])
    outs = sampling.generate(lm, tok, [prompt] * 64, top_k=3, max_tokens=1)
    assert {(*out.boundary.kept[len(start) :], out.ids[0]) for out in outs} <= set(order[:3])


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("options", [{"top_p": 0.0}, {"top_p": 1e-45}, {"min_p": 1.0}, {"top_k": 1}], ids=repr)
def test_what_leaves_the_best_alone_is_greedy(tok: Any, lm: Any, boundary: str, options: dict) -> None:
    """Within what the boundary and a constraint allow, too."""
    prompts = ["it's a d", "https", "ht"]
    allowed = np.zeros((3, lm.vocab_size), bool)
    allowed[:, 80:240] = True
    for constraint in (None, Only(jnp.asarray(allowed))):
        outs, greedy = (
            sampling.generate(lm, tok, prompts, boundary=boundary, max_tokens=4, constraint=constraint, **given)
            for given in (options, {"temperature": 0})
        )
        assert [(out.boundary.kept, out.ids) for out in outs] == [(out.boundary.kept, out.ids) for out in greedy]


@pytest.mark.parametrize("boundary", ["none", "heal"])
def test_a_temperature_near_0_is_greedy(tok: Any, lm: Any, boundary: str) -> None:
    """The reciprocal of 1e-38 is near the largest float32, and 1e-50 is 0 there."""
    for temperature in (1e-38, 1e-50):
        outs = [
            sampling.generate(lm, tok, "it's a d", boundary=boundary, max_tokens=4, temperature=t).ids
            for t in (temperature, 0)
        ]
        assert outs[0] == outs[1]


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_what_follows_the_boundary_is_the_models_own(tok: Any, lm: Any, boundary: str) -> None:
    """Forwarded alone, without a cache: positions and what is seen are right, too."""
    out = sampling.generate(lm, tok, "it's a d", boundary=boundary, temperature=0, max_tokens=6)
    path, checked = [*out.boundary.kept], 0
    for id, found in zip(out.ids, out.logprobs, strict=True):
        row = brute.masked(tok, lm, brute.logprobs(lm, [path]))[tuple(path)]
        if not found.conditional:
            assert id == int(np.argmax(row))
            assert found.logprob == pytest.approx(row[id], abs=1e-4)
            checked += 1
        path.append(id)
    assert checked >= 4


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_row_sees_one_token_at_each_position(tok: Any, boundary: str) -> None:
    """HashModel checks that of everything that is forwarded."""
    outs = sampling.generate(HashModel(tok), tok, ["it's", "https"], boundary=boundary, max_tokens=3, stop_ids=())
    assert all(len(out.ids) >= 3 for out in outs)


def test_extra_tokens_and_calls_are_few(tok: Any, lm: Any) -> None:
    outs = [sampling.generate(lm, tok, p, max_tokens=1) for p in ("it's a d", "https", "a ", "the thi", "x\n \n")]
    assert np.mean([out.boundary.extra_tokens for out in outs]) <= 1
    assert all(out.boundary.extra_calls == 0 for out in outs)


def test_extra_calls_are_each_row_s_own_beyond_those_of_its_prompt(
    tok: Any, lm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of 8 tokens: a long row's calls are not the short one's, and only a tree that crosses a chunk adds one."""
    from toktier_jax.sampling import prefill

    monkeypatch.setattr(prefill, "CHUNK", 8)
    outs = sampling.generate(lm, tok, ["a", *(count * "." + "thi" for count in range(9))], max_tokens=1)
    assert outs[0].usage.prompt_tokens < 8 < outs[-1].usage.prompt_tokens
    assert outs[0].boundary.extra_calls == 0
    for out in outs:
        own = out.usage.prompt_tokens
        assert out.boundary.extra_calls == -(-(own + out.boundary.extra_tokens) // 8) - -(-own // 8)


def test_a_prompt_in_several_chunks_gives_the_same(tok: Any, lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from toktier_jax.sampling import prefill

    prompts = ["it's the thing that the thi", "a ", "x\n \n", "https"]
    whole = sampling.generate(lm, tok, prompts, temperature=0, max_tokens=3)
    monkeypatch.setattr(prefill, "CHUNK", 8)
    parts = sampling.generate(lm, tok, prompts, temperature=0, max_tokens=3)
    assert [out.ids for out in parts] == [out.ids for out in whole]
    assert [out.boundary.logprob for out in parts] == pytest.approx([out.boundary.logprob for out in whole], abs=1e-5)


def test_a_penalty_sees_the_prompt_and_each_nodes_path(tok: Any, lm: Any) -> None:
    outs = [
        sampling.generate(lm, tok, "a a a ", temperature=0, max_tokens=8, repetition_penalty=p) for p in (1.0, 50.0)
    ]
    assert outs[0].ids != outs[1].ids
    assert len(set(outs[1].ids)) == len(outs[1].ids)


# ---- options of the loop ----


def test_a_seed_gives_the_same_text_and_another_one_another(tok: Any, lm: Any) -> None:
    texts = [sampling.generate(lm, tok, "a", seed=seed, max_tokens=8).data for seed in (1, 1, 2, 1 + (1 << 32), -1)]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 4


def test_stop_strings_are_found_over_bytes_and_cut(tok: Any, lm: Any) -> None:
    whole = sampling.generate(lm, tok, "it's a d", max_tokens=24, seed=4, stop_ids=())
    stop = whole.data[5:8]
    out = sampling.generate(lm, tok, "it's a d", max_tokens=24, seed=4, stop=[stop, b"never there"], stop_ids=())
    assert out.data == whole.data[: whole.data.index(stop)]
    assert out.finish_reason == "stop"
    assert len(out.ids) < len(whole.ids)


def test_stop_ids_end_the_text_and_are_no_part_of_it(tok: Any) -> None:
    end = tok.reference.token_to_id("<|end|>")
    lm = HashModel(tok, favour=(b"it's", end))
    out = sampling.generate(lm, tok, "it's", boundary="none", max_tokens=4)
    assert (out.data, out.ids, out.finish_reason) == (b"", (), "stop")
    assert sampling.generate(lm, tok, "it's", boundary="none", max_tokens=1, stop_ids=()).ids[0] == end


def test_logprobs_are_the_models(tok: Any, lm: Any) -> None:
    out = sampling.generate(lm, tok, "it's", boundary="none", max_tokens=2, logprobs=4, temperature=0.5)
    path = out.boundary.kept
    row = brute.masked(tok, lm, brute.logprobs(lm, [path]))[path]
    assert out.logprobs[0].logprob == pytest.approx(row[out.ids[0]], abs=1e-4)
    assert [id for id, _ in out.logprobs[0].top] == np.argsort(-row)[:4].tolist()


def test_what_is_recorded_is_no_longer_than_the_context(tok: Any) -> None:
    from toktier_jax.sampling.prepare import prepare
    from toktier_jax.sampling.request import Request

    lm = small.model(tok.vocab_size, context=48)
    options: dict[str, Any] = {"logprobs": 3, "temperature": 0, "stop_ids": ()}
    assert prepare(Request(lm, tok, "it's", max_tokens=1 << 24, **options)).size == 64
    for boundary in BOUNDARIES:
        ours, theirs = (
            sampling.generate(lm, tok, "it's", boundary=boundary, max_tokens=most, **options) for most in (1 << 24, 48)
        )
        assert ours == theirs
        assert len(ours.boundary.kept) + len(ours.ids) == 49


def test_columns_without_a_token_are_never_drawn(tok: Any, lm: Any) -> None:
    assert lm.vocab_size > tok.vocab_size
    outs = sampling.generate(lm, tok, ["a"] * 32, max_tokens=16, boundary="none", temperature=50.0, stop_ids=())
    assert max(id for out in outs for id in out.ids) < tok.vocab_size


def test_a_stream_is_the_completion_in_whole_characters(tok: Any, lm: Any) -> None:
    for prompt in ("it's a d", " 中".encode()[:-1]):
        events = list(sampling.stream(lm, tok, prompt, max_tokens=12, seed=2, stop=["zz", "qq"]))
        whole = sampling.generate(lm, tok, prompt, max_tokens=12, seed=2, stop=["zz", "qq"])
        assert "".join(event.text for event in events) == whole.text
        assert sum((event.ids for event in events), ()) == whole.ids
        assert events[-1].completion == whole
        assert [event.finish_reason for event in events[:-1]] == [None] * (len(events) - 1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"top_p": 2.0}, InputError, "top_p=2"),
        ({"stop": ""}, InputError, "empty stop string"),
        ({"no_such_option": 1}, InputError, r"stream\(\) got an unexpected keyword argument 'no_such_option'"),
        ({"prompt": b"a\xff"}, InputError, "UTF-8 at byte 1"),
        ({"prompt": "x " * 400}, InputError, "context 256"),
        ({"logprobs": 1000}, InputError, "logprobs=1000"),
        ({"reuse": True}, CapacityError, "prefix cache has 8 slots"),
    ],
)
def test_a_stream_checks_its_arguments_when_it_is_called(
    tok: Any, lm: Any, options: dict, error: type[Exception], message: str
) -> None:
    if "reuse" in options:
        options = {"reuse": sampling.PrefixCache(lm, 8)}
    with pytest.raises(error, match=message):
        sampling.stream(lm, tok, **{"prompt": "it's", **options})


def test_a_stream_that_nobody_reads_calls_no_model(tok: Any) -> None:
    class Never(HashModel):
        def apply(self, *inputs: Any) -> Any:
            raise AssertionError("called")

    events = sampling.stream(Never(tok), tok, "it's")
    with pytest.raises(AssertionError, match="called"):
        next(events)


def test_an_event_costs_the_same_however_long_the_text_is(tok: Any, lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only new ids are decoded and searched, and the loop's arrays are copied for completions only."""
    from toktier_jax.sampling import run

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(tok, name)

        def decode_bytes(self, ids: Any) -> bytes:
            decoded.append(len(ids))
            return tok.decode_bytes(ids)

    decoded: list[int] = []
    searched: list[int] = []
    copied: list[int] = []
    find, on_host = stops.Stops.find, run.on_host
    monkeypatch.setattr(
        stops.Stops, "find", lambda self, data, start=0: searched.append(len(data) - start) or find(self, data, start)
    )
    monkeypatch.setattr(run, "on_host", lambda state: copied.append(1) or on_host(state))
    counted, count = Counting(), 48
    options: dict[str, Any] = {"boundary": "heal", "max_tokens": count, "stop": ["never"], "stop_ids": ()}
    events = list(sampling.stream(lm, counted, "it's a d", **options))
    assert len(events) >= count
    assert sum(decoded) <= 8 * count
    assert sum(searched) <= 32 * count
    assert len(copied) <= 2


def metaspace() -> Any:
    """A tokenizer whose decoder drops the space before a text's first token."""
    import tokenizers

    import toktier_jax as tt

    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz"]
    vocab = {letter: id for id, letter in enumerate(["<s>", *letters, "th", "the", "▁the", "▁theo"])}
    model = tokenizers.models.BPE(vocab=vocab, merges=[("t", "h"), ("th", "e"), ("▁", "the"), ("▁the", "o")])
    found = tokenizers.Tokenizer(model)
    found.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    found.decoder = tokenizers.decoders.Metaspace()
    found.add_special_tokens(["<s>"])
    return tt.Tokenizer.from_bytes(found.to_str().encode())


@pytest.mark.parametrize(("boundary", "text"), [("none", b" the" * 6), ("heal", b"ory" + b" the" * 6)])
def test_the_space_before_the_first_token_is_kept(boundary: str, text: bytes) -> None:
    tok = metaspace()
    lm = small.model(tok.vocab_size)
    options: dict[str, Any] = {"boundary": boundary, "context_start": 0, "max_tokens": 5}
    options["constraint"] = Recorder(tok, lm.vocab_size, text)
    whole = sampling.generate(lm, tok, "a the", **options)
    assert len(whole.boundary.cut) == (4 if boundary == "heal" else 0)
    assert text.startswith(whole.data)
    assert "".join(event.text for event in sampling.stream(lm, tok, "a the", **options)) == whole.text


def test_one_invalid_byte_swallows_nothing() -> None:
    from toktier_jax.sampling.results import TextStream

    assert TextStream(b"").push(b"\xffabc\xe4\xb8") == "�abc"
    assert TextStream("中".encode()[:2]).push("中".encode()[2:] + b"a") == "a"
    assert TextStream(b"\xe4\xb8").push(b"ab") == "ab"


# ---- the loop is one executable ----


def test_no_recompile_across_prompts_of_one_bucket(tok: Any, lm: Any) -> None:
    def run(prompt: str, seed: int) -> None:
        sampling.generate(lm, tok, prompt, max_tokens=6, seed=seed, temperature=0.5 + seed / 10, top_k=seed + 1)

    run("it's a d", 1)
    sizes = [f._cache_size() for f in _executables()]
    for seed, prompt in enumerate(("it's a th", "the dam", "x = th", "its a d")):
        run(prompt, seed)
    assert [f._cache_size() for f in _executables()] == sizes


def _executables() -> list[Any]:
    from toktier_jax.sampling import leaves, prefill

    static = loops.Static(greedy=False, truncate=True, penalize=False, logprobs=0, heals=False, stops=False)
    lm = small.model(small.tokenizer(bos=True).vocab_size + 5)
    return [loops.loop(lm, static, 64), prefill._forward(lm, 64), leaves.draw_leaf]


def test_the_jitted_loop_is_not_slower_than_jitted_steps(tok: Any) -> None:
    """And both are far from a loop that is not jitted: see benchmarks/loop.py for the figures on a real model."""
    lm = small.model(tok.vocab_size, scale=1.0)
    run = lambda: sampling.generate(lm, tok, "it's", boundary="none", max_tokens=64, stop_ids=())  # noqa: E731  # used once
    events = lambda: list(sampling.stream(lm, tok, "it's", boundary="none", max_tokens=64, stop_ids=()))  # noqa: E731  # used once
    times = []
    for call in (run, events):
        call()
        times.append(min(_seconds(call) for _ in range(3)))
    assert times[0] <= times[1]


def _seconds(call: Any) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def test_the_loop_keeps_ids_on_the_device(tok: Any, lm: Any) -> None:
    from toktier_jax.sampling.placement import on_device
    from toktier_jax.sampling.prepare import prepare
    from toktier_jax.sampling.request import Request
    from toktier_jax.sampling.run import Run

    run = Run(prepare(Request(lm, tok, "it's a d", max_tokens=8)))
    state = on_device(run.state)
    settings = jax.tree.map(jnp.asarray, run.settings)
    loop = loops.loop(lm, run._static(heals=False), run.slots)
    until = jnp.int32(99)
    with jax.transfer_guard("disallow"):
        state = loop(run.params, settings, None, state, until)
    assert int(state.written[0]) > 1


# ---- constraints ----


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Only:
    """A toy: only tokens whose bytes are all in a set. Pure."""

    allowed: jax.Array  # bool [B, V]

    def init(self) -> jax.Array:
        return jnp.zeros(self.allowed.shape[:1], jnp.int32)

    def mask(self, state: jax.Array) -> jax.Array:
        return self.allowed

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        return state + jnp.asarray(token >= 0).astype(jnp.int32)


class Recorder:
    """A toy on the host: a fixed text past the prompt, byte by byte; it records the bytes that it was shown."""

    def __init__(self, tok: Any, size: int, text: bytes) -> None:
        self.strings, self.size, self.text = vocabulary_of(tok).strings, size, text

    def init(self) -> bytes:
        return b""

    def mask(self, state: bytes) -> np.ndarray:
        rest = self.text[len(state) :]
        found = np.zeros((1, self.size), bool)
        for id, string in enumerate(self.strings):
            found[0, id] = bool(string) and rest.startswith(string)
        return found

    def advance(self, state: bytes, token: np.ndarray) -> bytes:
        return state if token[0] < 0 else state + self.strings[token[0]]


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_constraint_sees_only_bytes_past_the_prompt(tok: Any, lm: Any, boundary: str) -> None:
    text = b"tps://example, it's"
    out = sampling.generate(
        lm, tok, "ht", boundary=boundary, constraint=Recorder(tok, lm.vocab_size, text), max_tokens=8
    )
    assert text.startswith(out.data)
    assert out.data
    spells_the_prompt(tok, out, b"ht")


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_stop_string_counts_only_past_the_prompt(tok: Any, lm: Any, boundary: str) -> None:
    text = Recorder(tok, lm.vocab_size, b"tps://example")
    out = sampling.generate(lm, tok, "ht", boundary=boundary, constraint=text, max_tokens=8, stop=["htt", "s:/"])
    assert (out.data, out.finish_reason) == (b"tp", "stop")


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_pure_constraint_runs_in_the_loop(tok: Any, lm: Any, boundary: str) -> None:
    strings = vocabulary_of(tok).strings
    allowed = np.zeros((2, lm.vocab_size), bool)
    for id, string in enumerate(strings):
        allowed[:, id] = bool(string) and set(string) <= set(b"htps:/.abc ")
    outs = sampling.generate(
        lm, tok, ["ht", "https"], boundary=boundary, constraint=Only(jnp.asarray(allowed)), max_tokens=9
    )
    for out in outs:
        assert set(out.data) <= set(b"htps:/.abc ")
        assert out.usage.completion_tokens == 9


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_constraint_that_allows_nothing_is_an_error(tok: Any, lm: Any, boundary: str) -> None:
    nothing = Only(jnp.zeros((1, lm.vocab_size), bool))
    with pytest.raises(InputError, match="nothing is allowed"):
        sampling.generate(lm, tok, "it's a", boundary=boundary, constraint=nothing, heal_tokens=2)
    with pytest.raises(InputError, match="nothing is allowed"):
        sampling.generate(lm, tok, "ht", boundary=boundary, constraint=Recorder(tok, lm.vocab_size, b"t"))


def test_a_mask_of_another_shape_is_named(tok: Any, lm: Any) -> None:
    with pytest.raises(InputError, match=r"constraint: mask"):
        sampling.generate(lm, tok, "ht", boundary="none", constraint=Only(jnp.zeros((1, 7), bool)))


# ---- reuse ----


def test_a_longer_prompt_prefills_only_what_is_new(tok: Any, lm: Any) -> None:
    cache = sampling.PrefixCache(lm, 128)
    text = "it's the thing that they're thinking of, https"
    for boundary in BOUNDARIES:
        first = sampling.generate(lm, tok, text, boundary=boundary, max_tokens=4, temperature=0, reuse=cache)
        longer = text + ": the others dam"
        fresh = sampling.generate(lm, tok, longer, boundary=boundary, max_tokens=4, temperature=0)
        reused = sampling.generate(lm, tok, longer, boundary=boundary, max_tokens=4, temperature=0, reuse=cache)
        assert (reused.ids, reused.data) == (fresh.ids, fresh.data)
        assert reused.boundary.reused >= len(first.boundary.kept) - 3
        assert reused.boundary.reused + 12 > len(reused.boundary.kept)


def test_what_was_generated_is_reused_and_tree_nodes_are_not(tok: Any, lm: Any) -> None:
    cache = sampling.PrefixCache(lm, 128)
    out = sampling.generate(lm, tok, "the thi", max_tokens=6, temperature=0, reuse=cache, stop_ids=())
    assert tuple(cache.ids.tolist()) == (*out.boundary.kept, *out.ids[:-1])
    ids = [*out.boundary.kept, *out.ids]
    again = sampling.generate(lm, tok, ids, max_tokens=3, temperature=0, reuse=cache)
    assert again.boundary.reused == len(ids) - 1
    assert again.ids == sampling.generate(lm, tok, ids, max_tokens=3, temperature=0).ids


def test_after_an_edit_what_is_before_it_is_reused(tok: Any, lm: Any) -> None:
    cache = sampling.PrefixCache(lm, 128)
    before, after = ([*tok.encode(text).ids.tolist()] for text in ("it's the thing that", "it's the other one"))
    shared = next(at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other)
    sampling.generate(lm, tok, before, max_tokens=2, temperature=0, reuse=cache)
    out = sampling.generate(lm, tok, after, max_tokens=2, temperature=0, reuse=cache)
    assert 0 < out.boundary.reused == shared < len(after) - 1
    assert out.ids == sampling.generate(lm, tok, after, max_tokens=2, temperature=0).ids


def test_a_prefix_cache_that_is_too_short_says_so(tok: Any, lm: Any) -> None:
    with pytest.raises(CapacityError, match="prefix cache has 16 slots"):
        sampling.generate(lm, tok, "it's", max_tokens=40, reuse=sampling.PrefixCache(lm, 16))
    with pytest.raises(InputError, match="one row"):
        sampling.generate(lm, tok, ["a", "b"], reuse=sampling.PrefixCache(lm, 64))


# ---- a model of one's own ----


class Plain(HashModel):
    """No more than the four members: its cache is a dict, and its mask has to be as wide as that."""

    def init_cache(self, batch: int, length: int) -> Any:
        ids, places = super().init_cache(batch, length).layers
        return {"length": jnp.zeros((batch,), jnp.int32), "ids": ids, "places": places}

    def gather(self, cache: Any, rows: jax.Array) -> Any:
        return self._plain(super().gather(self._cache(cache), rows))

    def apply(self, params: Any, tokens: jax.Array, positions: jax.Array, cache: Any, mask: jax.Array):
        assert mask.shape == (*tokens.shape, cache["ids"].shape[1])
        logits, after = super().apply(params, tokens, positions, self._cache(cache), mask)
        return logits, self._plain(after)

    @staticmethod
    def _cache(cache: Any) -> models.Cache:
        return models.Cache(cache["length"], (cache["ids"], cache["places"]), cache["ids"].shape[1])

    @staticmethod
    def _plain(cache: models.Cache) -> Any:
        return {"length": cache.length, "ids": cache.layers[0], "places": cache.layers[1]}


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_model_needs_no_more_than_the_four_members(tok: Any, boundary: str) -> None:
    for prompt, text in (("it's a d", b"ampf"), (["ht", "it's"], None)):
        options: dict[str, Any] = {"boundary": boundary, "max_tokens": 3, "stop_ids": ()}
        if text is not None:
            options["constraint"] = Recorder(tok, HashModel(tok).vocab_size, text)
            options["max_tokens"] = 1
        ours, theirs = (sampling.generate(lm, tok, prompt, **options) for lm in (HashModel(tok), Plain(tok)))
        assert ours == theirs


@dataclasses.dataclass
class Compared:
    """A plain dataclass: it has `==`, and so no hash."""

    lm: Any

    @property
    def vocab_size(self) -> int:
        return self.lm.vocab_size

    def init_cache(self, batch: int, length: int) -> Any:
        return self.lm.init_cache(batch, length)

    def gather(self, cache: Any, rows: jax.Array) -> Any:
        return self.lm.gather(cache, rows)

    def apply(self, *inputs: Any) -> Any:
        return self.lm.apply(*inputs)


class Slotted:
    """A model that cannot be referred to weakly."""

    __slots__ = ("apply", "gather", "init_cache", "vocab_size")

    def __init__(self, lm: Any) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(lm, name))


def test_a_model_need_not_be_hashable_but_weakly_referable(tok: Any) -> None:
    lm = HashModel(tok)
    ours, theirs = (sampling.generate(one, tok, "it's", max_tokens=2) for one in (Compared(lm), lm))
    assert ours == theirs
    for call in (sampling.generate, sampling.next_byte_distribution):
        with pytest.raises(InputError, match="Slotted, which cannot be referred to weakly"):
            call(Slotted(HashModel(tok)), tok, "it's")
        with pytest.raises(InputError, match="no vocab_size, init_cache, apply, gather"):
            call(None, tok, "it's")


def test_a_cache_of_ones_own_is_rolled_back_by_gather(tok: Any) -> None:
    lm = Plain(tok)
    cache = sampling.PrefixCache(lm, 64)
    for prompt in ("it's the thing", "it's the dam", "it"):
        out = sampling.generate(lm, tok, prompt, max_tokens=3, reuse=cache, stop_ids=())
        assert out.ids == sampling.generate(lm, tok, prompt, max_tokens=3, stop_ids=()).ids
    assert out.boundary.reused > 0


# ---- bad input ----


def test_a_model_smaller_than_the_tokenizer(tok: Any) -> None:
    with pytest.raises(InputError, match=r"300 logits and the tokenizer 302"):
        sampling.generate(small.model(300), tok, "a")


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_nan_logits_are_an_error(tok: Any, boundary: str) -> None:
    with pytest.raises(InputError, match="NaN"):
        sampling.generate(HashModel(tok, nan=True), tok, "it's", boundary=boundary)
    with pytest.raises(InputError, match="NaN"):
        sampling.next_byte_distribution(HashModel(tok, nan=True), tok, "it's")


class Turning(HashModel):
    """Its logits turn to `value` once the context has `after` tokens; columns of `only` where given."""

    def __init__(self, tok: Any, value: float, after: int, only: list[int] | None = None) -> None:
        super().__init__(tok)
        self.value, self.after, self.only = value, after, only

    def _after(self, path: tuple[int, ...]) -> np.ndarray:
        logits = super()._after(path).copy()
        if len(path) >= self.after:
            logits[slice(None) if self.only is None else self.only] = self.value
        return logits


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("value", "message"), [(np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "nothing is allowed")])
def test_logits_that_turn_bad_in_the_loop_are_an_error(tok: Any, boundary: str, value: float, message: str) -> None:
    after = len(tok.encode("it's").ids) + 2
    lm = Turning(tok, value, after, None if value < 0 else [97])
    with pytest.raises(InputError, match=message):
        sampling.generate(lm, tok, "it's", boundary=boundary, max_tokens=12, stop_ids=(), seed=1)
    with pytest.raises(InputError, match=message):
        list(sampling.stream(lm, tok, "it's", boundary=boundary, max_tokens=12, stop_ids=(), seed=1))


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_model_that_gives_nothing_to_what_is_allowed_is_an_error(tok: Any, boundary: str) -> None:
    """All that the constraint allows has logit -inf: no draw, however the maximum of nothing comes out."""
    lm = Turning(tok, -np.inf, 0, list(range(250)))
    allowed = np.zeros((1, lm.vocab_size), bool)
    allowed[:, 65:70] = True
    with pytest.raises(InputError, match="nothing is allowed"):
        sampling.generate(lm, tok, "it's", boundary=boundary, constraint=Only(jnp.asarray(allowed)))


def test_a_padding_column_may_be_anything(tok: Any) -> None:
    for value in (np.nan, np.inf):
        lm = Padded(tok, value)
        outs = [sampling.generate(lm, tok, "it's", boundary=b, max_tokens=2, temperature=0) for b in BOUNDARIES]
        assert all(max(out.ids) < tok.vocab_size for out in outs)
        assert np.isfinite(sampling.next_byte_distribution(lm, tok, "it's")).all()


class Padded(HashModel):
    """More columns than tokens, with `value` in them."""

    def __init__(self, tok: Any, value: float) -> None:
        super().__init__(tok)
        self.inner, self.more = HashModel(tok), np.full(3, value, np.float32)
        self.vocab_size += 3

    def _after(self, path: tuple[int, ...]) -> np.ndarray:
        return np.append(self.inner._after(path), self.more)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop": [""]}, "empty stop string"),
        ({"stop": ""}, "empty stop string"),
        ({"stop": b""}, "empty stop string"),
        ({"stop": ["a", b""]}, "empty stop string"),
        ({"stop": [3]}, "neither str nor bytes"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"temperature": -1.0}, "temperature=-1"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_p": 2.0}, "top_p=2"),
        ({"heal_tokens": "all", "boundary": "heal"}, "heal_tokens='all'"),
        ({"boundary": "exakt"}, "boundary='exakt'"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 1e-50}, "repetition_penalty=1e-50"),
        ({"context_start": 999}, "context_start=999"),
        ({"context_start": "a"}, "context_start='a'"),
        ({"logprobs": 1000}, "logprobs=1000: the model has 307 logits"),
        ({"stop": None}, "stop=None"),
        ({"stop": 5}, "stop=5"),
        ({"stop": "\ud800"}, "lone surrogate"),
        ({"stop_ids": 5}, "stop_ids=5"),
        ({"stop_ids": [10**12]}, "stop_ids="),
        ({"stop_ids": "ab"}, "stop_ids='ab'"),
        ({"reuse": {}}, "reuse="),
        ({"constraint": 1}, "constraint=1.*init, mask, advance"),
    ],
)
def test_bad_arguments_are_named(tok: Any, lm: Any, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sampling.generate(lm, tok, "it's", **options)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "empty list"),
        ([999], "id 999"),
        (b"a\xff", "UTF-8 at byte 1"),
        ("\ud800", "surrogate"),
        (3.5, "prompt"),
        (np.array([1.5, 2.5]), "list of ids"),
        (np.array(3), "list of ids"),
        ([True, False], "no ids"),
    ],
)
def test_bad_prompts_are_named(tok: Any, lm: Any, prompt: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sampling.generate(lm, tok, prompt)


def test_a_prompt_over_the_context_is_named(tok: Any) -> None:
    lm = small.model(tok.vocab_size, context=16)
    for boundary in BOUNDARIES:
        with pytest.raises(InputError, match="context 16"):
            sampling.generate(lm, tok, "x " * 40, boundary=boundary)
    out = sampling.generate(lm, tok, "x ", max_tokens=64, boundary="none", stop_ids=())
    assert out.finish_reason == "length"
    assert len(out.boundary.kept) + len(out.ids) <= 17


def test_bytes_that_the_vocabulary_cannot_spell_are_named() -> None:
    import json

    import toktier_jax as tt
    from toktier_jax.spec.byte_alphabet import to_alphabet

    data = json.loads(small.tokenizer_json(bos=True))
    letter = to_alphabet(b"\xe4")
    data["model"]["merges"] = [m for m in data["model"]["merges"] if letter not in m[0] + m[1]]
    data["model"]["vocab"] = {k: v for k, v in data["model"]["vocab"].items() if letter not in k}
    tok = tt.Tokenizer.from_bytes(json.dumps(data).encode())
    lm = small.model(320)
    for boundary in ("heal", "exact"):
        for prompt in ("a中", b"a" + b"\xe4"):
            with pytest.raises(InputError, match="cannot spell byte 0xe4"):
                sampling.generate(lm, tok, prompt, boundary=boundary)


def test_a_model_is_given_back_when_its_user_drops_it(tok: Any) -> None:
    """What is jitted for a model must not keep its weights."""
    lm = dataclasses.replace(small.model(tok.vocab_size))
    sampling.generate(lm, tok, "it's", max_tokens=3)
    sampling.next_byte_distribution(lm, tok, "it's")
    next(iter(sampling.stream(lm, tok, "it's", boundary="heal", max_tokens=2)))
    gone = weakref.ref(lm)
    del lm
    gc.collect()
    assert gone() is None


# ---- stop ids at the prompt's end ----


@pytest.mark.parametrize("boundary", ["exact", "heal"])
def test_a_stop_id_that_straddles_the_prompts_end_ends_the_text_and_stays(tok: Any, boundary: Any) -> None:
    vocabulary = vocabulary_of(tok)
    strings = vocabulary.strings
    stop = max(range(tok.vocab_size), key=lambda id: len(strings[id]) if strings[id].isascii() else 0)
    text = strings[stop][:-2].decode()
    out = sampling.generate(
        HashModel(tok, favour=(b"", stop)), tok, text, boundary=boundary, heal_tokens=99, stop_ids=[stop],
        max_tokens=4, temperature=0,
    )  # fmt: skip
    assert (out.ids[-1], out.data, out.finish_reason) == (stop, strings[stop][-2:], "stop")
    spells_the_prompt(tok, out, text.encode())


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_stop_id_inside_the_prompt_stops_nothing(tok: Any, lm: Any, boundary: Any) -> None:
    every = list(range(tok.vocab_size))
    out = sampling.generate(lm, tok, "it'", boundary=boundary, stop_ids=every, max_tokens=4, temperature=0)
    assert out.finish_reason == "stop"
    spells_the_prompt(tok, out, b"it'")


def test_numbers_of_numpy_are_numbers(tok: Any, lm: Any) -> None:
    plain = {"max_tokens": 3, "top_k": 5, "seed": 7, "logprobs": 2, "heal_tokens": 2}
    numpy: Any = {name: np.int64(value) for name, value in plain.items()}
    for boundary in BOUNDARIES:
        ours, theirs = (
            sampling.generate(lm, tok, "it's", boundary=boundary, top_p=top_p, **options)
            for options, top_p in ((numpy, np.float32(0.5)), (plain, 0.5))
        )
        assert ours == theirs


def test_a_context_that_the_text_begins_with_is_not_put_before_it_again(tok: Any, lm: Any) -> None:
    bare = small.tokenizer()
    start = bare.reference.token_to_id("<|start|>")
    ids = [start, *bare.encode("abc", False).ids.tolist()]
    for prompt in ("<|start|>abc", ids, "abc"):
        out = sampling.generate(lm, bare, prompt, boundary="none", context_start=start, max_tokens=1)
        assert list(out.boundary.kept) == ids


@pytest.mark.parametrize("length", [None, 1.5, -1, 0, True])
def test_a_prefix_cache_of_no_length(lm: Any, length: Any) -> None:
    with pytest.raises(InputError, match="expected a whole number of slots"):
        sampling.PrefixCache(lm, length)


def test_what_is_no_tokenizer_or_model_is_named(tok: Any, lm: Any) -> None:
    for other in (None, tok.reference):
        with pytest.raises(InputError, match=r"tok: \w+ is no toktier_jax.Tokenizer"):
            sampling.generate(lm, other, "a")
    with pytest.raises(InputError, match="is no Model"):
        sampling.PrefixCache(None, 8)
    with pytest.raises(InputError, match="NoneType is no path"):
        models.load(None)  # type: ignore[arg-type]  # that is the point


def test_any_kind_of_bytes_is_text(tok: Any, lm: Any) -> None:
    outs = [sampling.generate(lm, tok, kind(b"it's"), max_tokens=2) for kind in (bytes, bytearray, memoryview)]
    assert outs[0] == outs[1] == outs[2]
