"""The models of tests/generated.py: trained and random vocabularies with all options of their model type."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import tokenizers
from tokenizers import models, trainers

from . import corpus
from .reference.byte_alphabet import CHAR_OF_BYTE, spell
from .tokenizer_files import Part, bpe

Vocab = tuple[dict[str, int], list[tuple[str, str]]]
"""Token ids, and merges by rank."""


_SPECIAL = ["[UNK]", "[PAD]", "[CLS]", "[SEP]"]


def model(mode: str, index: int, rng: random.Random, tags: set[str]) -> Part:
    """Model `index`, drawn with `rng`, for texts spelled in `mode` ("bytes", "meta" or "plain"). Adds to `tags`."""
    kind = index % 11
    if kind == 4:
        tags.add("model:WordPiece")
        return {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": rng.choice(("##", "##", "")),
            "max_input_chars_per_word": rng.choice((100, 6)),
            "vocab": _trained_bpe(mode, "##", "")[0],
        }
    if kind == 9:
        tags.add("model:WordLevel")
        words = dict.fromkeys([*_SPECIAL, *_spelled(mode, _text()).split()[:200], "a", "b", "ab", " "])
        return {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {word: i for i, word in enumerate(words)}}
    prefix, suffix = rng.choice((("", ""), ("", ""), ("", ""), ("", "</w>"), ("##", ""), ("##", "</w>")))
    tags.add("model:BPE")
    if rng.random() < 0.6:
        vocab, merges = _trained_bpe(mode, prefix, suffix)
        tags.add("bpe:trained")
    else:
        vocab, merges = _random_bpe(mode, prefix, suffix, rng)
        tags.add("bpe:random")
    vocab, merges = dict(vocab), list(merges)
    options: dict[str, Any] = {}
    if prefix:
        options["continuing_subword_prefix"] = prefix
    if suffix:
        options["end_of_word_suffix"] = suffix
    if rng.random() < 0.5:
        options["unk_token"] = "[UNK]"
        options["fuse_unk"] = rng.random() < 0.5
    if rng.random() < 0.4:
        options["byte_fallback"] = True
        known = range(256) if rng.random() < 0.5 else rng.sample(range(256), 200)
        for byte in known:
            vocab.setdefault(f"<0x{byte:02X}>", len(vocab))
        tags.add("bpe:bytes all" if len(known) == 256 else "bpe:bytes some")
    if rng.random() < 0.4:
        options["ignore_merges"] = True
        for word in _spelled(mode, _text()).split()[:40]:  # tokens that no merge reaches
            vocab.setdefault(word, len(vocab))
    if rng.random() < 0.5:
        vocab, merges = _without_characters(vocab, merges, prefix, rng)
        tags.add("bpe:incomplete alphabet")
    if rng.random() < 0.5:  # rank is not id
        ids = list(range(len(vocab)))
        rng.shuffle(ids)
        vocab = dict(zip(vocab, ids, strict=True))
    if rng.random() < 0.2:
        options["dropout"] = 0.0
    tags |= {f"bpe:{name}" for name, value in options.items() if value is not False}
    return bpe(vocab, merges, **options)


@functools.cache
def _text() -> str:
    texts = corpus.udhr()
    languages = ("eng", "deu_1996", "jpn", "fra", "kor", "ell_monotonic")
    return "\n".join(texts[code][:900] for code in languages) + corpus.python_source(3000) + " aab abc ab'll 2024 1234 "


def _spelled(mode: str, text: str) -> str:
    """`text` in the characters that the model sees; spaces stay, as places to cut."""
    if mode == "bytes":
        return " ".join("Ġ" + spell(word) for word in text.split())
    return " ".join("▁" + word for word in text.split()) if mode == "meta" else text


@functools.cache
def _trained_bpe(mode: str, prefix: str, suffix: str) -> Vocab:
    """A trained vocabulary. The library's trainer breaks ties by chance once it has a prefix or suffix, so it learns
    without: characters inside a word and at its end stand in planes of their own, and get their affixes afterwards."""
    inside, end = 0x30000 * bool(prefix), 0x40000 * bool(suffix)

    def placed(word: str) -> str:
        last = len(word) - 1
        return "".join(chr(ord(c) + inside * (i > 0) + end * (i == last)) for i, c in enumerate(word))

    def affixed(token: str) -> str:
        if token in _SPECIAL:
            return token
        first, last = (ord(c) >> 16 for c in (token[0], token[-1]))
        text = "".join(chr(ord(c) & 0xFFFF) for c in token)
        return prefix * (first in (3, 7)) + text + suffix * (last in (4, 7))

    learner = tokenizers.Tokenizer(models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    letters = CHAR_OF_BYTE if mode == "bytes" else list(" \n▁abcxyz019")
    planes = sorted({0, inside, end, inside + end})
    trainer = trainers.BpeTrainer(
        vocab_size=900 + 100 * len(planes),
        special_tokens=_SPECIAL,
        initial_alphabet=[chr(ord(letter) + plane) for plane in planes for letter in letters],
        show_progress=False,
    )
    learner.train_from_iterator([" ".join(map(placed, _spelled(mode, _text()).split()))], trainer)
    model = json.loads(learner.to_str())["model"]
    vocab = {affixed(token): id for token, id in model["vocab"].items()}
    return vocab, [(affixed(left), affixed(right)) for left, right in model["merges"]]


def _random_bpe(mode: str, prefix: str, suffix: str, rng: random.Random) -> Vocab:
    """Merges in random order over few characters: tokens with several derivations, unreachable or late short ones."""
    letters = [*"abc", *{"bytes": ["Ġ", "Ã", "©", "Ċ"], "meta": ["▁", "é"], "plain": [" ", "é"]}[mode]]
    words = [*_SPECIAL, *letters]
    words += [prefix + letter for letter in letters] if prefix else []
    words += [affix + letter + suffix for affix in ("", prefix) for letter in letters] if suffix else []
    words = list(dict.fromkeys(words))
    merges = list[tuple[str, str]]()
    for _ in range(rng.randint(5, 60)):
        left, right = rng.choice(words[4:]), rng.choice(words[4:])
        if (suffix and left.endswith(suffix)) or (prefix and not right.startswith(prefix)) or len(left + right) > 16:
            continue
        merges.append((left, right))
        words.append(left + right[len(prefix) :])
    rng.shuffle(merges)
    return {word: i for i, word in enumerate(dict.fromkeys(words))}, merges


def _without_characters(vocab: dict[str, int], merges: list[tuple[str, str]], prefix: str, rng: random.Random) -> Vocab:
    """Without some single characters, and without the merges that would need them."""
    singles = [token for token in vocab if len(token.removeprefix(prefix)) == 1]
    gone = set(rng.sample(singles, len(singles) // 8 + 1))
    kept = {token: i for i, token in enumerate(token for token in vocab if token not in gone)}
    return kept, [pair for pair in merges if not gone.intersection(pair)]
