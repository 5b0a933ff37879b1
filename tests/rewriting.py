"""Runs the steps before the splits of a spec on texts, and asks the reference for the same characters and offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers

from toktier_jax.ops.added import match_added
from toktier_jax.ops.classify import classify
from toktier_jax.ops.move import origins
from toktier_jax.ops.quickcheck import quick_check
from toktier_jax.ops.rewrite import rewrite
from toktier_jax.plan import AddedPlan, MapPlan, QuickCheckPlan
from toktier_jax.program.added import AddedStage, added_stage, added_tables, effective_tokens
from toktier_jax.program.classes import everything, partition, probe
from toktier_jax.program.normalizers import reference_normalizer
from toktier_jax.program.rewrite import (
    QuickCheckStage,
    codes_of,
    literals_in_text,
    normalizer_stages,
    prefix_stages,
    quick_check_flags,
    rewrite_tables,
)
from toktier_jax.spec import types as spec
from toktier_jax.types import FIRST_CODE, REMOVED, Buffer

BATCH, SIZE = 64, 128
"""Every text is run in a batch of this shape, so that a plan is compiled once."""

Character = tuple[str, int, int]
"""What the text is after the rewrites: a character or an added token (`<id>`), with the reference's offsets."""


@dataclass(frozen=True, eq=False)
class Program:
    """Plans and tables of the steps, and what classifies characters."""

    plans: tuple[Any, ...]
    tables: tuple[Any, ...]
    pages: np.ndarray
    table: np.ndarray
    codes: np.ndarray
    characters: tuple[str, ...]


def spec_of(
    normalizers: Sequence[spec.Normalizer] = (),
    pre: Sequence[spec.PreTokenizer] = (),
    added: Sequence[spec.AddedToken] = (),
    model: spec.Model | None = None,
) -> spec.TokenizerSpec:
    return spec.TokenizerSpec(
        source="tokenizer.json",
        fingerprint="",
        dialect="oniguruma",
        model=model or spec.WordLevel({}, "?"),
        normalizers=tuple(normalizers),
        pre_tokenizers=tuple(pre),
        added_tokens=tuple(added),
    )


def compiled(of: spec.TokenizerSpec) -> Program:
    added = effective_tokens(of.added_tokens)
    stages: list[Any] = [_general(added_stage([token for token in added if not token.normalized]))]
    stages += normalizer_stages(of)
    stages.append(_general(added_stage([token for token in added if token.normalized], literals_in_text(of))))
    for index in range(len(of.pre_tokenizers)):
        stages += prefix_stages(of, index)
    stages = [stage for stage in stages if stage is not None]
    masks = [mask for stage in stages for mask in stage.masks]
    parts = partition([*masks, everything()])
    characters = codes_of(of)
    codes = np.zeros(8, np.uint8)
    codes[: len(characters)] = parts.lookup(np.array([ord(char) for char in characters], np.int64))
    tables, at = [], 0
    for stage in stages:
        members = parts.members[:, at : at + len(stage.masks)]
        at += len(stage.masks)
        make = {AddedStage: added_tables, QuickCheckStage: quick_check_flags}.get(type(stage), rewrite_tables)
        tables.append(make(stage, members))
    return Program(tuple(stage.plan for stage in stages), tuple(tables), parts.pages, parts.table, codes, characters)


QUICK = {"xla_backend_optimization_level": 0}
"""Compiler options: compiling takes half the time, and short texts do not need fast code."""

GENERAL = AddedPlan(longest=64, pairs=0, lstrip=True, rstrip=True, single_word=True)
"""Finds any tokens, at a price."""


def _one_size(plan: Any, tables: Any) -> Any:
    """Longer tables of the same meaning."""
    if isinstance(plan, AddedPlan):
        trie, tokens = np.full((4, 2048), -1, np.int32), np.zeros((3, 64), np.int32)
        trie[:, : tables.trie.shape[1]] = tables.trie
        tokens[:, : tables.tokens.shape[1]] = tables.tokens
        return tables._replace(trie=trie, tokens=tokens, rejected=np.resize(tables.rejected, 64))
    if isinstance(plan, MapPlan) and plan.wide:
        pages, pool = np.full((256, 256), -1, np.int32), np.zeros(1 << 17, np.uint8)
        pages[: len(tables.pages)] = tables.pages
        pool[: len(tables.pool)] = tables.pool
        return tables._replace(pages=pages, pool=pool)
    return tables


def _general(stage: AddedStage | None) -> AddedStage | None:
    masks = probe("Whitespace.space", "component"), probe("Whitespace.word", "component")
    return stage and replace(stage, plan=GENERAL, masks=masks)


@cache
def _runner(plan: Any, at_end: bool):
    """One step on a batch, compiled once for each plan: buffers go in and come out with all fields, in one size."""

    def step(part, pages, table, codes, buffer, at_start):
        symbols = classify(buffer.data, buffer.length, pages, table, codes, lowering="walk")
        failed = jnp.bool_(False)
        if isinstance(plan, AddedPlan):
            buffer = match_added(plan, part, buffer, symbols, at_end=at_end, lowering="walk")
        elif isinstance(plan, QuickCheckPlan):
            buffer, failed = quick_check(part, buffer, symbols, at_end=at_end)
        else:
            buffer = rewrite(plan, part, buffer, symbols, at_start=at_start, at_end=at_end, lowering="walk")
        failed = failed | (buffer.length > SIZE)
        cut = jax.tree.map(lambda leaf: leaf[..., :SIZE] if leaf.ndim else leaf, buffer)
        return cut._replace(origin=origins(cut)), failed

    return jax.jit(jax.vmap(step, in_axes=(None, None, None, None, 0, 0)), compiler_options=QUICK)


def _padded_pages(program: Program) -> tuple[np.ndarray, np.ndarray]:
    table = np.zeros((512, 256), np.uint8)
    table[: len(program.table)] = program.table
    return program.pages.astype(np.uint16), table


@dataclass(frozen=True, eq=False)
class Row:
    """The buffer of one text after all steps, as numpy, and whether the quick check failed or the text did not fit."""

    buffer: Buffer
    failed: bool


def run(
    program: Program, texts: Sequence[str], *, at_end: bool = True, at_start: Sequence[bool] | None = None
) -> list[Row]:
    """The steps of a program on texts of at most SIZE bytes."""
    rows: list[Row] = []
    starts = list(at_start) if at_start is not None else [True] * len(texts)
    pages, table = _padded_pages(program)
    index = np.broadcast_to(np.arange(SIZE, dtype=np.int32), (BATCH, SIZE))
    for at in range(0, len(texts), BATCH):
        raw = [text.encode() for text in texts[at : at + BATCH]]
        data = np.full((BATCH, SIZE), 0x20, np.uint8)
        for row, text in zip(data, raw, strict=False):
            row[: len(text)] = np.frombuffer(text, np.uint8)
        lengths = np.array([*map(len, raw), *[0] * (BATCH - len(raw))], np.int32)
        flags = np.array([*starts[at : at + BATCH], *[True] * (BATCH - len(raw))])
        everywhere = np.ones((BATCH, SIZE), bool)
        buffer = Buffer(
            data, lengths, index == 0, index == 0, np.zeros((BATCH, SIZE), np.uint8), np.full_like(index, -1),
            np.stack([index, index + 1], axis=1), lengths, everywhere,
        )  # fmt: skip
        failed = np.zeros(BATCH, bool)
        for plan, part in zip(program.plans, program.tables, strict=True):
            step = _runner(GENERAL if isinstance(plan, AddedPlan) else plan, at_end)
            buffer, bad = step(_one_size(plan, part), pages, table, program.codes, buffer, flags)
            failed |= np.asarray(bad)
        buffer = jax.tree.map(np.asarray, buffer)
        for number in range(len(raw)):
            rows.append(Row(jax.tree.map(lambda leaf, number=number: leaf[number], buffer), bool(failed[number])))
    return rows


def characters_of(program: Program, row: Row, text: str) -> list[Character]:
    """The characters and tokens of a buffer, with offsets as the reference counts them."""
    buffer = row.buffer
    length, original = int(buffer.length), text.encode()
    char_at = np.cumsum([byte & 0xC0 != 0x80 for byte in original] + [True]) - 1  # character that a byte lies in
    origin = buffer.origin
    out: list[Character] = []
    at = 0
    while at < length:
        if buffer.kind[at] == REMOVED:
            at += 1
            continue
        stop = at + 1
        if buffer.token is not None and buffer.token[at] >= 0:
            while stop < length and not buffer.starts[stop]:
                stop += 1
            shown = f"<{buffer.token[at]}>"
        elif buffer.data[at] >= FIRST_CODE:
            shown = program.characters[buffer.data[at] - FIRST_CODE]
        else:
            while stop < length and buffer.data[stop] & 0xC0 == 0x80:
                stop += 1
            shown = bytes(buffer.data[at:stop]).decode()
        start, end = int(origin[0, at]), int(origin[1, stop - 1])
        if start == end:  # inserted: the reference gives it the place of what follows
            follows = stop
            while origin[0, follows] == origin[1, follows]:
                follows += 1
            end = int(origin[1, follows])
        out.append((shown, int(char_at[start]), int(char_at[end - 1]) + 1))
        at = stop
    return out


class Reference:
    """A tokenizer that gives each character an id of its own."""

    def __init__(self, of: spec.TokenizerSpec, alphabet: str) -> None:
        normalizer = reference_normalizer(of.normalizers)
        chars = set(alphabet) | set("".join(normalizer.normalize_str(char) for char in alphabet))
        chars |= {char for text in self._inserted(of) for char in text} | set(normalizer.normalize_str("".join(chars)))
        self.characters = ["?", *sorted(chars - {"?"})]
        vocab = {char: index for index, char in enumerate(self.characters)}
        self.tokenizer = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="?"))
        if of.normalizers:
            self.tokenizer.normalizer = normalizer
        each = pre_tokenizers.Split(tokenizers.Regex(r"(?m:.)"), "isolated")
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*map(self._pre, of.pre_tokenizers), each])
        self.ids: dict[int, int] = {}
        for token in of.added_tokens:
            flags = {
                name: getattr(token, name) for name in ("normalized", "lstrip", "rstrip", "single_word", "special")
            }
            self.tokenizer.add_tokens([tokenizers.AddedToken(token.content, **flags)])
            found = self.tokenizer.token_to_id(token.content)
            assert found is not None
            self.ids[found] = token.id

    def characters_of(self, text: str) -> list[Character]:
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        out = []
        for id, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            shown = f"<{self.ids[id]}>" if id in self.ids else self.characters[id]
            out.append((shown, start, stop))
        return out

    @staticmethod
    def _inserted(of: spec.TokenizerSpec) -> list[str]:
        texts = [" "]
        for step in (*of.normalizers, *of.pre_tokenizers):
            texts += [getattr(step, name, "") for name in ("prepend", "content", "replacement")]
        return texts

    @staticmethod
    def _pre(step: spec.PreTokenizer) -> Any:
        match step:
            case spec.Metaspace(replacement, scheme, split):
                return pre_tokenizers.Metaspace(replacement, scheme, split)
        raise NotImplementedError(type(step).__name__)
