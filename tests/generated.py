"""Small tokenizer.json files that cover every component and option in combination, made anew in every run.

`generate(count)` is deterministic: file k depends on k alone. A file is a pipeline (normalizer and pre-tokenizer; four
files in a row share one), a model with random options over a vocabulary that fits the pipeline, added tokens with all
combinations of flags, and sometimes a post-processor, truncation and padding. Files that the reference rejects are
drawn again. `tests/conformance/test_generated.py` checks the coverage.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers

from .generated_models import model as make_model
from .tokenizer_files import (
    LLAMA_DECODER,
    LLAMA_NORMALIZER,
    Part,
    added,
    byte_level,
    metaspace,
    replace,
    sequence,
    split,
    template,
    tokenizer_json,
)

SHARED = 4
"""Files in a row with one pipeline."""

BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
_CONTENTS = (
    "<s>", "</s>", "<a>", "<ab", "<ab>", "[MASK]", "tok", "to", "a", "é", "▁", "▁x", " y", "z ", "\n", "  ", "Ǆ", "ß",
    "<|im_start|>", "<|im", "日本", "e\u0301", "Ab", "0",
)  # fmt: skip
_PATTERNS = (
    r"\s+", r"\p{L}+", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+", r"\s+(?!\S)|\s+", r"\s+$", r"(?i:'s|'ll)|\p{L}+|\s",
    r"[\r\n]", r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+", r"a|ab|b", r"ab?c*",
    r"\p{Lu}+\p{Ll}*|\p{Ll}+", r"[一-龥ぁ-ヿ]+", r".", r"(?:ab|a)(?=b)|\S", r"\d{2,3}+", r"(?>\s+)\S|x", r"\p{N}$",
)  # fmt: skip
_LITERALS = (" ", "ab", "▁", "\n", "é", "aa")


_HARD = ("é", "e\u0301", "ß", "日本", "ǅ", "İ", "ﬁ", "가", "½", "\0", "👩‍👧", "\U00020000", "ñ", "Σ", "\u0301")


@dataclass(frozen=True)
class Generated:
    """One file and what it covers, as words such as "normalizer:NFC" or "bpe:fuse_unk"."""

    name: str
    file: bytes
    tags: frozenset[str]


def generate(count: int, start: int = 0) -> Iterator[Generated]:
    """Files `start` to `start + count`."""
    for index in range(start, start + count):
        for attempt in range(100):
            try:
                made = _generate(index, attempt)
                _check(tokenizers.Tokenizer.from_buffer(made.file))
            except BaseException as error:  # the reference rejects, or panics on, some combinations: draw again
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise
                continue
            yield made
            break
        else:
            raise AssertionError(f"no valid file {index} in 100 draws")


def _check(reference: tokenizers.Tokenizer) -> None:
    """Raises for a token that is normalized to nothing: the reference then matches between the bytes of a character."""
    for token in reference.get_added_tokens_decoder().values():
        if token.normalized and reference.normalizer and not reference.normalizer.normalize_str(token.content):
            raise ValueError(f"{token.content!r} is normalized to nothing")


def texts(file: bytes, count: int, seed: int = 0, length: int = 40) -> list[str]:
    """Short texts of the file's own characters: white space, added tokens torn and whole, tokens, hard characters."""
    rng = random.Random(seed)
    parts = json.loads(file)
    contents = [token["content"] for token in parts["added_tokens"]] or ["a"]
    vocab = [token for token in parts["model"]["vocab"] if not token.startswith("<0x")]
    sources = (
        lambda: rng.choice(contents),
        lambda: rng.choice(contents)[: rng.randint(0, 3)],
        lambda: rng.choice(contents).swapcase(),
        lambda: rng.choice((" ", "  ", "\n", "\t", " \n ", "\u3000", "▁", "\xa0")),
        lambda: rng.choice("aaabbcxyzABC019'.,!-_"),
        lambda: rng.choice(_HARD),
        lambda: rng.choice(vocab),
        lambda: "".join(rng.choices("abc ", k=rng.randint(1, 12))),
    )
    made = ["", " ", contents[0], f" {contents[0]} ", "abc abc"]
    while len(made) < count:
        size = rng.randint(1, length)
        text = ""
        while len(text) < size:
            text += rng.choice(sources)()
        made.append(text)
    return made[:count]


# ---- the parts ----


def _generate(index: int, attempt: int) -> Generated:
    pipeline = random.Random(f"pipeline {index // SHARED} {attempt // 10}")
    rng = random.Random(f"file {index} {attempt}")
    turn = index // SHARED
    tags: set[str] = set()
    normalizers, pre_tokenizers = _normalizers(pipeline), _pre_tokenizers(pipeline)
    normalizer = normalizers[turn % len(normalizers)]
    pre_tokenizer = pre_tokenizers[(turn + turn // len(normalizers)) % len(pre_tokenizers)]
    if turn % 2 and pre_tokenizer is not None and normalizer is not None:  # half of the pipelines have one part
        normalizer, pre_tokenizer = (normalizer, None) if pipeline.random() < 0.3 else (None, pre_tokenizer)
    text = json.dumps([normalizer, pre_tokenizer], ensure_ascii=False)
    mode = "bytes" if '"ByteLevel"' in text else "meta" if "▁" in text else "plain"
    model = make_model(mode, index, rng, tags)
    tokens = _added(index, rng, tags)
    parts: dict[str, Any] = {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "added": tokens}
    parts["post_processor"] = _post_processor(index, rng, tags)
    if index % 8 == 5:
        most = rng.choice((3, 5, 9))
        parts["truncation"] = {
            "direction": rng.choice(("Left", "Right")),
            "max_length": most,
            "strategy": rng.choice(("LongestFirst", "OnlyFirst")),
            "stride": int(most == 9),  # the reference panics where a template and the stride leave no room
        }
        tags.add(f"truncation:{parts['truncation']['direction']}")
    if index % 8 == 6:
        parts["padding"] = {
            "strategy": rng.choice(("BatchLongest", {"Fixed": 12})),
            "direction": rng.choice(("Left", "Right")),
            "pad_to_multiple_of": rng.choice((None, 8)),
            "pad_id": 1,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        }
        tags.add(f"padding:{parts['padding']['direction']}")
    decoder = {"bytes": byte_level(), "meta": LLAMA_DECODER, "plain": None}[mode]
    if model["type"] == "WordPiece":
        decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    tags |= _tags_of("normalizer", normalizer) | _tags_of("pre_tokenizer", pre_tokenizer)
    file = tokenizer_json(model, decoder=decoder, **parts)
    return Generated(f"{index:03d}", file, frozenset(tags))


def _tags_of(kind: str, part: Part | None) -> set[str]:
    if part is None:
        return {f"{kind}:none"}
    inner = part.get("normalizers") or part.get("pretokenizers")
    if inner is not None:
        return {f"{kind}:Sequence"}.union(*(_tags_of(kind, each) for each in inner))
    tag = f"{kind}:{part['type']}"
    if part["type"] == "Split":
        return {tag, f"{tag}:{part['behavior']}:{'invert' if part['invert'] else 'plain'}"}
    options = {f"{tag}:{key}={value}" for key, value in part.items() if isinstance(value, bool)}
    return {tag} | options


def _normalizers(rng: random.Random) -> Sequence[Part | None]:
    bert = {
        "type": "BertNormalizer",
        "clean_text": rng.random() < 0.7,
        "handle_chinese_chars": rng.random() < 0.7,
        "strip_accents": rng.choice((None, True, False)),
        "lowercase": rng.random() < 0.5,
    }
    strip = {"type": "Strip", "strip_left": rng.random() < 0.6, "strip_right": rng.random() < 0.6}
    lower, prepend = {"type": "Lowercase"}, {"type": "Prepend", "prepend": rng.choice(("▁", "x", "▁▁"))}
    form = {"type": rng.choice(("NFC", "NFD", "NFKC", "NFKD"))}
    literal = replace(rng.choice(("ab", "a", "é", "▁", "  ")), rng.choice(("", "c", "xy", "▁")))
    regex = replace(rng.choice((r"\s+", " {2,}", r"\p{N}", "[aeiou]+")), rng.choice((" ", "", "▁", "0")), regex=True)
    return (
        None,
        {"type": "NFC"},
        None,
        LLAMA_NORMALIZER,
        {"type": "NFD"},
        lower,
        None,
        {"type": "NFKC"},
        replace(" ", "▁"),
        bert,
        {"type": "NFKD"},
        prepend,
        None,
        literal,
        strip,
        sequence("normalizers", {"type": "NFC"}, regex, lower),
        {"type": "StripAccents"},
        {"type": "Nmt"},
        None,
        sequence("normalizers", form, lower, prepend, replace(" ", "▁")),
        regex,
        {"type": "ByteLevel"},
        sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, strip),
        sequence("normalizers"),
    )


def _pre_tokenizers(rng: random.Random) -> Sequence[Part | None]:
    def a_split() -> Part:
        regex = rng.random() < 0.8
        pattern = rng.choice(_PATTERNS if regex else _LITERALS)
        return split(pattern, rng.choice(BEHAVIORS), invert=rng.random() < 0.4, regex=regex)

    def bytes_(*, use_regex: bool) -> Part:
        return byte_level(add_prefix_space=rng.random() < 0.3, trim_offsets=rng.random() < 0.5, use_regex=use_regex)

    digits = {"type": "Digits", "individual_digits": rng.random() < 0.5}
    punctuation = {"type": "Punctuation", "behavior": rng.choice(BEHAVIORS)}
    spaces = rng.choice(({"type": "Whitespace"}, {"type": "WhitespaceSplit"}))
    return (
        sequence("pretokenizers", a_split(), bytes_(use_regex=False)),
        bytes_(use_regex=True),
        a_split(),
        metaspace(rng.choice(("always", "never", "first")), split=rng.random() < 0.7),
        sequence("pretokenizers", a_split(), a_split(), digits, bytes_(use_regex=False)),
        None,
        {"type": "BertPreTokenizer"},
        a_split(),
        sequence("pretokenizers", punctuation, bytes_(use_regex=True), digits, a_split()),
        {"type": "Whitespace"},
        digits,
        sequence("pretokenizers", spaces, metaspace(rng.choice(("always", "first")))),
        punctuation,
        a_split(),
        {"type": "WhitespaceSplit"},
        sequence("pretokenizers", spaces, punctuation, digits),
        bytes_(use_regex=False),
        {"type": "CharDelimiterSplit", "delimiter": rng.choice((" ", "a", "▁", "\n"))},
        sequence("pretokenizers", metaspace("first", split=False), a_split()),
        sequence("pretokenizers", digits, bytes_(use_regex=True)),
        a_split(),
        {"type": "UnicodeScripts"},
        {"type": "FixedLength", "length": rng.choice((1, 3, 5))},
    )


def _post_processor(index: int, rng: random.Random, tags: set[str]) -> Part | None:
    one = template(["[CLS]"], ["[SEP]", "[SEP]"], {"[CLS]": 2, "[SEP]": 3})

    def bytes_() -> Part:
        return byte_level(add_prefix_space=rng.random() < 0.5, trim_offsets=rng.random() < 0.7)

    made = (
        None,
        bytes_(),
        one,
        {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        {
            "type": "RobertaProcessing",
            "sep": ["[SEP]", 3],
            "cls": ["[CLS]", 2],
            "trim_offsets": rng.random() < 0.7,
            "add_prefix_space": rng.random() < 0.5,
        },
        sequence("processors", bytes_(), one),
        None,
        sequence("processors", one, bytes_()),
        template([], ["[SEP]"], {"[SEP]": 3}),
        sequence("processors", bytes_(), bytes_()),
    )
    part = made[index % len(made)]
    tags.add(f"post_processor:{part['type'] if part else 'none'}")
    return part


def _added(index: int, rng: random.Random, tags: set[str]) -> list[Part]:
    if index % 7 == 3:
        tags.add("added:none")
        return []
    tokens = [added(i, content, special=True) for i, content in enumerate(("[UNK]", "[PAD]", "[CLS]", "[SEP]"))]
    tokens = tokens[: rng.choice((0, 4, 4))]
    for k, content in enumerate(rng.sample(_CONTENTS, rng.randint(1, 5))):
        bits = (index * 5 + k * 11) % 32  # all combinations come round
        names = ("special", "normalized", "lstrip", "rstrip", "single_word")
        flags = {name: bool(bits >> i & 1) for i, name in enumerate(names)}
        tokens.append(added(900 + k, content, **flags))
        tags.add("added:" + "+".join(name for name in names if flags[name]))
    return tokens
