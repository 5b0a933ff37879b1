"""Normalizers and prefixes as array steps against the reference: characters and offsets of random texts, finality."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import numpy as np
import pytest

from tests.rewriting import SIZE, Reference, characters_of, compiled, run, spec_of
from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import LiteralPlan, MapPlan, PrefixPlan, QuickCheckPlan
from toktier_jax.program.rewrite import codes_of, normalizer_stages, prefix_stages
from toktier_jax.spec import types as spec

SCALE = float(os.environ.get("TOKTIER_JAX_TEST_SCALE", "1"))

SPACE_TO_BAR = spec.Replace(spec.Pattern(" ", False), "▁")
LLAMA = (spec.Prepend("▁"), SPACE_TO_BAR)
CLIP = (spec.Unicode("NFC"), spec.Replace(spec.Pattern(r"\s+", True), " "), spec.Lowercase())
BERT = spec.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)

ASCII = [*"ab \n\t'`\"A Z", "  ", "''", "``", "'''"]
WIDE = [
    "é",
    "É",
    "▁",
    "漢",
    "字",
    "ß",
    "ẞ",
    "Å",
    "İ",
    "Ⱥ",
    "ǅ",
    "ﬁ",
    "！",
    "１",
    "㍍",
    "🎉",
    "\u3000",
    "\u2028",
    "\x85",
]
MARKS = ["\u0301", "\u0323", "e\u0301", "\u0338", "한", "ᄒ", "ᅡ", "ᆫ", "क\u093c", "ﾊﾟ", "\u0345", "\u302e"]
ODD = ["\u200d", "\ufeff", "\x00", "\x01", "\x7f", "\ufffd", "\u200b", "\u9fff", "豈", "Σ", "ς", "ŉ"]


def token(content: str, id: int, *, normalized: bool = False, lstrip: bool = False) -> spec.AddedToken:
    return spec.AddedToken(id, content, False, normalized, lstrip, False, False)


TOKENS = (token("<s>", 900), token("</s>", 901, normalized=True), token("B b", 902, normalized=True))

CASES: dict[str, tuple[Sequence[spec.Normalizer], Sequence[spec.PreTokenizer], Sequence[spec.AddedToken]]] = {
    "llama": (LLAMA, (), TOKENS),
    "gemma": ((SPACE_TO_BAR,), (), TOKENS),
    "metaspace always": ((), (spec.Metaspace("▁", "always", False),), TOKENS),
    "metaspace first": ((), (spec.Metaspace("▁", "first", False),), TOKENS[:1]),
    "metaspace never": ((spec.Lowercase(),), (spec.Metaspace("_", "never", False),), ()),
    "prepended twice": ((spec.Prepend("x▁"), spec.Prepend("é"), SPACE_TO_BAR), (), TOKENS[:1]),
    "clip": (CLIP, (), TOKENS),
    "lowercase": ((spec.Lowercase(),), (), TOKENS),
    "strip": ((spec.Strip(True, True), spec.Prepend("▁")), (), TOKENS[:1]),
    "strip right": ((spec.Lowercase(), spec.Strip(False, True)), (), TOKENS[:1]),
    "albert": (
        (
            spec.Replace(spec.Pattern("``", False), '"'),
            spec.Replace(spec.Pattern("''", False), '"'),
            spec.Unicode("NFKD"),
            spec.StripAccents(),
            spec.Lowercase(),
        ),
        (),
        TOKENS[:1],
    ),
    "accents": ((spec.Unicode("NFD"), spec.Lowercase(), spec.StripAccents()), (), ()),
    "growing": (
        (spec.Replace(spec.Pattern("ab", False), "<a&b>"), spec.Replace(spec.Pattern("Z", False), "zz▁z")),
        (),
        (),
    ),
    "nmt": ((spec.Nmt(), spec.Unicode("NFKC")), (spec.Metaspace("▁", "always", False),), ()),
    "classes": (
        (
            spec.Replace(spec.Pattern(r"\s", True), "·"),
            spec.Replace(spec.Pattern(r"[a-cA]+", True), "x"),
            spec.Replace(spec.Pattern(r"\p{Lu}", True), ""),
        ),
        (),
        (),
    ),
    "matches": (
        (
            spec.Replace(spec.Pattern(" {2,}", True), "▁"),
            spec.Replace(spec.Pattern(r"b|a\S+(?=\n)", True), "<é>"),
            spec.Replace(spec.Pattern(r"\S'", True), ""),
        ),
        (),
        TOKENS[:1],
    ),
    "nfc": ((spec.Unicode("NFC"),), (), TOKENS[:1]),
    "nfkc": ((spec.Unicode("NFKC"), spec.Lowercase()), (), ()),
    "nfd": ((spec.Unicode("NFD"),), (), ()),
}


def random_texts(rng: np.random.Generator, alphabet: list[str], count: int, room: int) -> list[str]:
    texts = []
    while len(texts) < count:
        text = "".join(rng.choice(alphabet, rng.integers(1, 24)))
        if len(text.encode()) <= room:
            texts.append(text)
    return texts


def alphabet_of(added: Sequence[spec.AddedToken]) -> list[str]:
    return [*ASCII, *WIDE, *MARKS, *ODD, *[each.content for each in added] * 4]


def cases(names: Sequence[str], default: Sequence[str]) -> list:
    """Tracing takes most of a case's time, so a default run makes do with those that share the fewest steps."""
    return [name if name in default else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", cases([*CASES], ["llama", "metaspace first", "clip", "albert", "growing", "matches"]))
def test_characters_and_offsets(name: str):
    normalizers, pre, added = CASES[name]
    of = spec_of(normalizers, pre, added)
    program, reference = compiled(of), Reference(of, "".join(alphabet_of(added)))
    rng = np.random.default_rng(len(name))
    count = max(64, int(192 * SCALE) // 64 * 64)
    texts = random_texts(rng, alphabet_of(added), count // 2, SIZE // 2)
    texts += random_texts(rng, [*ASCII * 2, *WIDE, *[each.content for each in added] * 3], count // 2, SIZE // 2)
    checked = 0
    for text, row in zip(texts, run(program, texts), strict=True):
        if row.failed:
            continue
        checked += 1
        assert characters_of(program, row, text) == reference.characters_of(text), (text, normalizers)
    assert checked > count // 3, "most texts need no host"


def test_the_host_is_needed_only_where_a_form_may_change_the_text():
    program = compiled(spec_of((spec.Unicode("NFC"),)))
    plain = ["naïve café", "日本語、カナ", "Ωμέγα привет", "한국어", "🎉 e"]
    changed = ["cafe\u0301", "\u0301", "ᄒ" + "ᅡ", "A\u030a", "\u212b"]
    assert [row.failed for row in run(program, plain + changed)] == [False] * 5 + [True] * 5


@pytest.mark.parametrize(
    "name",
    cases(
        ["llama", "clip", "strip", "albert", "metaspace first", "nfkc", "growing", "matches"],
        ["llama", "strip", "albert", "matches"],
    ),
)
def test_finality(name: str):
    """The characters before `decided` stay whatever follows; and a window that begins there gives the rest."""
    normalizers, pre, added = CASES[name]
    of = spec_of(normalizers, pre, added)
    program, reference = compiled(of), Reference(of, "".join(alphabet_of(added)))
    rng = np.random.default_rng(3)
    wholes = random_texts(rng, [*ASCII * 2, "é", "▁", "漢", *[each.content for each in added] * 3], 128, SIZE // 2)
    heads = [text[: rng.integers(1, len(text) + 1)] for text in wholes]
    rows = run(program, heads, at_end=False)
    resumed: list[tuple[str, int]] = []
    for whole, head, row in zip(wholes, heads, rows, strict=True):
        if row.failed:
            continue
        buffer, decided = row.buffer, int(row.buffer.decided)
        if not decided:  # nothing is: whatever was removed before the first byte may be resumed at its start only
            continue
        if decided < int(buffer.length):
            if buffer.resume[decided]:
                resumed.append((whole, int(buffer.origin[0, decided])))
        else:
            resumed.append((whole, len(head.encode())))
    rests = [whole.encode()[place:].decode() for whole, place in resumed]
    windows = run(program, rests, at_start=[place == 0 for _, place in resumed])
    useful = 0
    for (whole, place), rest, row in zip(resumed, rests, windows, strict=True):
        if row.failed:
            continue
        skipped = len(whole.encode()[:place].decode())
        want = [each for each in reference.characters_of(whole) if each[1] >= skipped]
        have = [(shown, a + skipped, b + skipped) for shown, a, b in characters_of(program, row, rest)]
        assert have == want, (whole, place)
        useful += place > 0
    assert useful > 20


def test_bert_cuts_round_chinese_characters():
    of = spec_of((BERT,), (spec.BertPreTokenizer(),), TOKENS[:1])
    program = compiled(of)
    reference = Reference(spec_of((BERT,), (), TOKENS[:1]), "".join(alphabet_of(TOKENS[:1])))
    rng = np.random.default_rng(1)
    texts = random_texts(rng, alphabet_of(TOKENS[:1]), 192, SIZE // 2)
    checked = 0
    for text, row in zip(texts, run(program, texts), strict=True):
        if row.failed:
            continue
        checked += 1
        have = characters_of(program, row, text)
        want = reference.characters_of(text)
        assert [each for each in have if each[0] != " "] == [each for each in want if each[0] != " "], text
        alone = {("a" if cut else "") + char for char, cut in _cuts(row) if char in "漢字豈"}
        assert alone <= {"a漢", "a字", "a豈"}
    assert checked > 90


def _cuts(row) -> list[tuple[str, bool]]:
    """Characters of a buffer, and whether they are segments of their own."""
    length = int(row.buffer.length)
    starts = [*np.flatnonzero(row.buffer.starts[:length]).tolist(), length]
    parts = [bytes(row.buffer.data[a:b]).decode(errors="replace") for a, b in itertools.pairwise(starts)]
    return [(char, len(part) == 1) for part in parts for char in part]


def test_steps_that_real_files_get():
    """Llama: one map and one prefix. NFC: a check and nothing else. Codes only where symbols are characters."""
    llama = spec_of(LLAMA)
    assert codes_of(llama) == ("▁",)
    kinds = [type(stage.plan) for stage in normalizer_stages(llama)]
    assert kinds == [MapPlan, PrefixPlan]
    assert [stage.plan for stage in normalizer_stages(spec_of((spec.Unicode("NFC"),)))] == [QuickCheckPlan("NFC")]
    assert normalizer_stages(spec_of()) == []
    byte_level = spec_of((SPACE_TO_BAR,), (spec.ByteLevel(False, True, True),))
    assert codes_of(byte_level) == ()
    assert normalizer_stages(byte_level)[0].plan == MapPlan(False, True, True)
    literal = normalizer_stages(spec_of((spec.Replace(spec.Pattern("''", False), '"'),)))
    assert isinstance(literal[0].plan, LiteralPlan)


def test_checks_that_the_host_can_help_with():
    def forms(*normalizers: spec.Normalizer) -> list[str]:
        stages = normalizer_stages(spec_of(normalizers))
        return [stage.plan.form for stage in stages if isinstance(stage.plan, QuickCheckPlan)]

    assert forms(*CLIP) == ["NFC"]
    assert forms(spec.Unicode("NFD"), spec.StripAccents()) == []  # every mark goes
    assert forms(spec.Unicode("NFKC"), spec.Lowercase()) == ["NFKC"]
    assert forms(spec.Lowercase(), spec.Unicode("NFC")) == [""]
    assert forms(spec.Unicode("NFC"), spec.Prepend("x"), spec.Unicode("NFC")) == ["", ""]


@pytest.mark.parametrize(
    ("normalizers", "pre", "added", "reason"),
    [
        ((spec.Precompiled(""),), (), (), "Precompiled"),
        ((spec.Replace(spec.Pattern("", False), "x"),), (), (), "empty string"),
        ((spec.Replace(spec.Pattern("^ ", True), ""),), (), (), "\\^"),
        ((spec.Replace(spec.Pattern(" *", True), ""),), (), (), "empty"),
        ((spec.ByteLevelNormalizer(), spec.Lowercase()), (), (), "after text was mapped"),
        ((BERT,), (spec.ByteLevel(False, True, True),), (), "white space is kept"),
        ((BERT, SPACE_TO_BAR), (spec.Whitespace(),), (), "sees its spaces"),
        ((BERT,), (spec.Whitespace(),), (token("漢", 1, normalized=True),), "beside the spaces"),
        ((spec.Strip(True, True),), (spec.Metaspace("▁", "first", True),), (), "prepend_scheme=first"),
        (tuple(spec.Prepend(chr(0x4E00 + k)) for k in range(9)), (), (), "at most 8"),
    ],
)
def test_refusals(normalizers, pre, added, reason: str):
    of = spec_of(normalizers, pre, added)
    with pytest.raises(UnsupportedError, match=reason):
        _ = [*normalizer_stages(of), *prefix_stages(of, 0)]
