"""Normalizers and prefixes of a spec -> rewrite stages: array steps that equal them, or the reason why there are none.

Most normalizers change each character by itself. Such a chain is one map from characters to strings, made by asking the
reference's own normalizers about every character. Characters that a Unicode form cannot judge alone are left to a quick
check. A character of several bytes that is put where spaces or nothing stood (`▁`) is *contracted*: it is one byte,
0xF8 + k, from there on, also where the text itself has it, so that buffers hardly grow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import (
    IsolatePlan,
    LiteralPlan,
    MatchPlan,
    PrefixPlan,
    QuickCheckPlan,
    RewritePlan,
    RunPlan,
    StripPlan,
)
from toktier_jax.program.added import added_stage, added_tables
from toktier_jax.program.charmap import Chain, contract, map_tables, pool_of
from toktier_jax.program.classes import CODE_POINTS, Mask, Probe, probe
from toktier_jax.program.normalizers import character_table, reference_normalizer
from toktier_jax.program.quickcheck import Form
from toktier_jax.program.split import SplitStage, split_stages, split_tables
from toktier_jax.spec import types as spec
from toktier_jax.spec.byte_alphabet import from_alphabet
from toktier_jax.types import RewriteTables

MAX_CODES = 8
_MOST_REPLACED = 1 << 16  # characters of a class that are worth a map


@dataclass(frozen=True, eq=False)
class RewriteStage:
    """One rewrite. `masks`: its class, bool [0x110000], if it has one, or those of its pattern's atoms.

    `tables` lack the members of the class, and the tables of `pattern`.
    """

    plan: RewritePlan
    masks: tuple[Mask, ...]
    tables: RewriteTables
    pattern: SplitStage | None = None


@dataclass(frozen=True, eq=False)
class QuickCheckStage:
    """A quick check of the text as it is at this step. `masks`: the characters that fail it."""

    plan: QuickCheckPlan
    masks: tuple[Mask, ...]


Stage = RewriteStage | QuickCheckStage


def rewrite_tables(stage: RewriteStage, members: np.ndarray) -> RewriteTables:
    """Tables of a stage for the symbols of a program: symbol s lies in the stage's mask k where `members[s, k]`."""
    if stage.pattern is not None:
        return stage.tables._replace(split=split_tables(stage.pattern, members))
    return stage.tables._replace(members=_flags(members)) if stage.masks else stage.tables


def quick_check_flags(stage: QuickCheckStage, members: np.ndarray) -> np.ndarray:
    """Table of a quick check, bool [256], likewise."""
    assert stage.masks
    return _flags(members)


def codes_of(of: spec.TokenizerSpec) -> tuple[str, ...]:
    """The characters that are one byte in this tokenizer's buffers: 0xF8 + k is the k-th.

    There are none where the model's symbols are bytes. Raises UnsupportedError for more than eight.
    """
    if of.byte_level:
        return ()
    texts: list[str] = []
    for step in (*of.normalizers, *of.pre_tokenizers):
        match step:
            case spec.Prepend(text) | spec.Metaspace(text):
                texts.append(text)
            case spec.Replace(pattern, content) if pattern.regex or len(pattern.text.encode()) < len(content.encode()):
                texts.append(content)
    codes = tuple(dict.fromkeys(char for text in texts for char in text if not char.isascii()))
    if len(codes) > MAX_CODES:
        raise UnsupportedError(f"normalizers insert {len(codes)} characters beyond ASCII; at most {MAX_CODES} fit")
    return codes


def normalizer_stages(of: spec.TokenizerSpec, *, probe: Probe = probe) -> list[Stage]:
    """The stages between the two passes of added tokens. Raises UnsupportedError, naming the normalizer."""
    build = _Builder(of, codes_of(of), probe)
    for step in of.normalizers:
        build.add(step)
    return build.finish()


def prefix_stages(of: spec.TokenizerSpec, index: int) -> list[Stage]:
    """What `of.pre_tokenizers[index]` rewrites before it splits."""
    codes, step = codes_of(of), of.pre_tokenizers[index]
    pieces = any(map(_splits, of.pre_tokenizers[:index]))
    match step:
        case spec.ByteLevel(add_prefix_space=True):
            return [_prefix(b" ", unless=True, pieces=pieces)]
        case spec.Metaspace(replacement, scheme):
            first = scheme == "first"
            if first and _moves_the_start(of, index):
                raise UnsupportedError("Metaspace with prepend_scheme=first after what can remove the start of a text")
            stages: list[Stage] = []
            if replacement != " ":
                stages.append(RewriteStage(*map_tables({ord(" "): replacement}, codes, contracts=False)))
            if scheme != "never":
                prefix = contract(replacement.encode(), codes)
                stages.append(_prefix(prefix, unless=True, first=first, pieces=pieces))
            return stages
    return []


def literals_in_text(of: spec.TokenizerSpec) -> Callable[[str], bytes]:
    """What the content of a `normalized` added token is in the text of the second pass."""
    normalizer, codes = reference_normalizer(of.normalizers) if of.normalizers else None, codes_of(of)
    spelled = any(isinstance(step, spec.ByteLevelNormalizer) for step in of.normalizers)

    def literal(content: str) -> bytes:
        text = content if normalizer is None else normalizer.normalize_str(content)
        data = from_alphabet(text) if spelled else None
        return contract(text.encode(), codes) if data is None else data

    return literal


def _flags(members: np.ndarray) -> np.ndarray:
    flags = np.zeros(256, bool)
    flags[: len(members)] = members[:, 0]
    return flags


def _splits(step: spec.PreTokenizer) -> bool:
    match step:
        case spec.ByteLevel(use_regex=splits) | spec.Metaspace(split=splits):
            return splits
    return True


def _moves_the_start(of: spec.TokenizerSpec, index: int) -> bool:
    """Whether a text's first piece may seem to begin later: a start was removed, or belongs to a longer match."""
    for step in of.normalizers:
        match step:
            case spec.Strip() | spec.StripAccents() | spec.BertNormalizer() | spec.Nmt():
                return True
            case spec.Replace(pattern, content) if pattern.regex or len(pattern.text) > 1 or not content:
                return True
    return any(isinstance(step, spec.Metaspace | spec.ByteLevel) for step in of.pre_tokenizers[:index])


def _prefix(text: bytes, *, unless: bool = False, first: bool = False, pieces: bool = False) -> RewriteStage:
    return RewriteStage(PrefixPlan(len(text), unless, first, pieces), (), RewriteTables(pool=pool_of(text)))


class _Builder:
    """The stages of a list of normalizers: `chain` are those that are no stage yet, `prepended` stands before them all.

    A prefix can wait for the maps after it, if it is mapped with the text and none of them can empty a segment.
    """

    def __init__(self, of: spec.TokenizerSpec, codes: tuple[str, ...], probe: Probe) -> None:
        self.of, self.codes, self.probe = of, codes, probe
        self.stages: list[Stage] = []
        self.chain = Chain()
        self.prepended = ""
        self.contracts = bool(codes)
        self.spelled = False

    def add(self, step: spec.Normalizer) -> None:
        if self.spelled:
            raise UnsupportedError(f"normalizer {type(step).__name__} after text was mapped to the byte alphabet")
        match step:
            case spec.Unicode(form):
                self._normal_form(form)
            case spec.Lowercase():
                self._map(character_table("lowercase"))
            case spec.StripAccents():
                self._map(character_table("marks"))
            case spec.Nmt():
                self._map(character_table("nmt"))
            case spec.BertNormalizer():
                self._bert(step)
            case spec.Replace(pattern, content):
                self._replace(pattern, content)
            case spec.Prepend(text):
                self.prepended = text + self.prepended
            case spec.Strip(left, right):
                if left or right:
                    space = self.probe("WhitespaceSplit", "component")
                    self._stage(RewriteStage(StripPlan(left, right), (space,), RewriteTables()))
            case spec.ByteLevelNormalizer():
                self.spelled = True
            case _:
                raise UnsupportedError(f"normalizer {type(step).__name__}")

    def finish(self) -> list[Stage]:
        self._flush()
        checks = [stage for stage in self.stages if isinstance(stage, QuickCheckStage)]
        if len(checks) < 2:
            return self.stages
        return [  # no one form of the text passes them all
            QuickCheckStage(QuickCheckPlan(""), stage.masks) if isinstance(stage, QuickCheckStage) else stage
            for stage in self.stages
        ]

    def _stage(self, stage: Stage) -> None:
        self._flush()
        self.stages.append(stage)

    def _flush(self) -> None:
        """The chain becomes a quick check and a map, then the prefix a stage."""
        chain, self.chain = self.chain, Chain()
        suspects = chain.suspects()
        if chain.forms == ["NFC"] and not chain.maps:  # what changes alone is too rare to be worth a map
            suspects[list(chain.changed)] = True
            chain.changed = {}
        if suspects.any():
            first = self.of.normalizers[0]
            whole = isinstance(first, spec.Unicode) and chain.forms == [first.form] and not self.stages
            self.stages.append(QuickCheckStage(QuickCheckPlan(chain.forms[0] if whole else ""), (suspects,)))
        if chain.changed or self.contracts:
            self.stages.append(RewriteStage(*map_tables(chain.changed, self.codes, contracts=self.contracts)))
            self.contracts = False
        if self.prepended:
            self.stages.append(_prefix(contract(self.prepended.encode(), self.codes)))
            self.prepended = ""

    def _normal_form(self, form: Form) -> None:
        if self.prepended:
            self._flush()
        self.chain.normal_form(form)

    def _map(self, table: dict[int, str]) -> None:
        if self.prepended:
            if "" in table.values():
                self._flush()
            self.prepended = "".join(table.get(ord(char), char) for char in self.prepended)
        self.chain.map(table)

    def _replace(self, pattern: spec.Pattern, content: str) -> None:
        if not pattern.text:
            raise UnsupportedError("normalizer Replace of the empty string")
        if not pattern.regex:
            if len(pattern.text) == 1:
                self._map({ord(pattern.text): content})
            else:
                self._replace_string(pattern.text, content)
            return
        found = _CLASS.fullmatch(pattern.text)
        if found is None:
            self._replace_matches(pattern, content)
            return
        mask = self.probe(found["one"], self.of.dialect)
        if found["more"] and content:
            pool = contract(content.encode(), self.codes)
            self._stage(RewriteStage(RunPlan(len(pool)), (mask,), RewriteTables(pool=pool_of(pool))))
            return
        characters = np.flatnonzero(mask).tolist()
        if len(characters) > _MOST_REPLACED:
            self._replace_matches(pattern, content)
            return
        self._map(dict.fromkeys(characters, content))

    def _replace_matches(self, pattern: spec.Pattern, content: str) -> None:
        (stage,) = split_stages([spec.Split(pattern, "Isolated", False)], self.of.dialect, probe=self.probe)
        pool = contract(content.encode(), self.codes)
        tables = RewriteTables(pool=pool_of(pool))
        self._stage(RewriteStage(MatchPlan(len(pool)), stage.masks, tables, stage))

    def _replace_string(self, text: str, content: str) -> None:
        literal, last, new = (contract(part.encode(), self.codes) for part in (text, text[-1], content))
        find = added_stage([spec.AddedToken(0, text)], lambda _: literal)
        assert find is not None
        plan = LiteralPlan(find.plan, len(literal), len(last), len(new))
        tables = RewriteTables(pool=pool_of(new), find=added_tables(find, np.zeros((0, 0), bool)))
        self._stage(RewriteStage(plan, (), tables))

    def _bert(self, step: spec.BertNormalizer) -> None:
        if step.handle_chinese_chars:
            self._stage(RewriteStage(IsolatePlan(), (self._chinese(step),), RewriteTables()))
        if step.clean_text:
            self._map(character_table("clean"))
        if step.lowercase if step.strip_accents is None else step.strip_accents:
            self._normal_form("NFD")
            self._map(character_table("accents"))
        if step.lowercase:
            self._map(character_table("lowercase"))

    def _chinese(self, step: spec.BertNormalizer) -> Mask:
        """Characters that get spaces on both sides. Where white space is removed next, that is a cut on both sides."""
        steps = self.of.normalizers
        place = next(index for index, each in enumerate(steps) if each is step)
        later = steps[place + 1 :]
        if not all(isinstance(each, spec.Lowercase | spec.StripAccents | spec.Unicode | spec.Strip) for each in later):
            raise UnsupportedError(
                "normalizer BertNormalizer with handle_chinese_chars before one that sees its spaces"
            )
        removing = spec.BertPreTokenizer | spec.Whitespace | spec.WhitespaceSplit
        if not self.of.pre_tokenizers or not isinstance(self.of.pre_tokenizers[0], removing):
            raise UnsupportedError("normalizer BertNormalizer with handle_chinese_chars where white space is kept")
        mask = np.zeros(CODE_POINTS, bool)
        mask[list(character_table("chinese"))] = True
        if step.clean_text:
            mask[[code for code, text in character_table("clean").items() if not text]] = False
        for token in self.of.added_tokens:
            text = token.content
            touches = token.lstrip or token.rstrip or text != text.strip() or any(mask[ord(char)] for char in text)
            if token.normalized and touches:
                raise UnsupportedError(f"added token {text!r} beside the spaces that handle_chinese_chars inserts")
        return mask


_CLASS = re.compile(
    r"(?P<one>\\[sSdDwWhHtnrfv]|\\[pP]\{\^?[\w ]+\}|\[(?:[^\[\]\\&]|\\[^bBAzZGKkgRX0-9])+\]|[^\\\[\](){}.*+?^$|])"
    r"(?P<more>\+?)"
)
