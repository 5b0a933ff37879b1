"""A BPE model of a spec -> BPEPlan and BPETables, or the reason why only the reference can run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import BPEPlan
from toktier_jax.program.characters import character_tables
from toktier_jax.program.cuts import cut_tables
from toktier_jax.program.merges import Rules, merge_tables, pair_table, parts_of, rules_of
from toktier_jax.program.vocabulary import (
    END,
    START,
    Entries,
    entries,
    join,
    lexicon,
    pick,
    self_encoding,
    strings,
    symbols,
    whole_pieces,
)
from toktier_jax.spec.types import BPE, BytePairRanks
from toktier_jax.types import FIRST_CODE, SHORT, BPETables

_MOST_IDS = 1 << 24


def compile_bpe(
    model: BPE | BytePairRanks, *, byte_level: bool, codes: Sequence[str] = ()
) -> tuple[BPEPlan, BPETables]:
    """Compiles a model whose buffers hold raw bytes (`byte_level`), or UTF-8 with code 0xF8 + k for `codes[k]`.

    Raises UnsupportedError, which names what the device cannot do, and SpecError where merges refer to no token.
    """
    _check(model)
    unit = "byte" if byte_level else "char"
    rules = rules_of(model)
    pairs = pair_table(rules)
    every = entries(model, byte_level=byte_level, codes=codes)
    base = symbols(every, unit)
    own = self_encoding(every, base, pairs)
    byte_ids = _byte_ids(every)
    unknown, unknown_ids = _unknown(model, rules, unit, byte_ids, codes)
    places = bool(np.any(every.places))
    known = np.ones(256, bool) if unknown != "fuse" else np.all(byte_ids >= 0, axis=0)
    cuts = cut_tables(every, base, ~known)
    usable, usable_own = _usable(model, every, own, byte_level, codes)
    size = 1 + max(int(every.ids.max(initial=0)), int(rules.new.max(initial=0)))
    plain = unit == "byte" and not places and bool(np.all(byte_ids >= 0))
    parts = parts_of(rules, size)
    characters = None
    if plain:
        parts = parts.as_bytes(byte_ids[0])
        characters = character_tables(rules, pairs, parts, byte_ids[0])
    merges, cascades = merge_tables(rules, pairs, parts, byte_ids[0] if plain else None)
    by_place = places and isinstance(model, BPE) and model.ignore_merges  # an entry may be for whole pieces alone
    plan = BPEPlan(
        unit=unit,
        unknown=unknown,
        places=places,
        wholes=not places and not usable_own.all(),
        long_wholes=bool(np.any((usable.sizes > SHORT) & (~usable_own | by_place))),
        cascades=cascades,
    )
    return plan, BPETables(lexicon(usable, usable_own), merges, cuts, byte_ids, unknown_ids, characters)


def _check(model: BPE | BytePairRanks) -> None:
    ids = list(model.ranks.values() if isinstance(model, BytePairRanks) else model.vocab.values())
    if not ids:
        raise UnsupportedError("the vocabulary is empty")
    if len(set(ids)) != len(ids):
        raise UnsupportedError("two tokens of the vocabulary have the same id")
    if min(ids) < 0 or max(ids) >= _MOST_IDS:
        raise UnsupportedError(f"an id of the vocabulary is not in 0 to {_MOST_IDS - 1}")
    if isinstance(model, BytePairRanks):
        missing = [byte for byte in range(256) if bytes([byte]) not in model.ranks]
        if missing:
            raise UnsupportedError(f"byte {missing[0]:#04x} has no rank")
        return
    if model.dropout:
        raise UnsupportedError(f"model.dropout = {model.dropout} draws merges at random")
    prefix = model.continuing_subword_prefix
    for rank, (_, right) in enumerate(model.merges if prefix else ()):
        if not right.startswith(prefix) or right == prefix:
            raise UnsupportedError(f"model.merges[{rank}]: {right!r} does not continue a word (prefix {prefix!r})")


def _byte_ids(every: Entries) -> np.ndarray:
    """The token that each byte is as a symbol, by its place: int32 [4, 256], -1 where it is none."""
    table = np.full((4, 256), -1, np.int32)
    single = pick(every, every.sizes == 1)
    table[single.places, single.data] = single.ids
    return table if np.any(every.places) else np.broadcast_to(table[0], table.shape).copy()


def _unknown(
    model: BPE | BytePairRanks, rules: Rules, unit: str, byte_ids: np.ndarray, codes: Sequence[str]
) -> tuple[Literal["none", "bytes", "token", "fuse", "host"], np.ndarray]:
    """What becomes of a symbol without a token, and the ids that this takes: int32 [257]."""
    ids = np.full(257, -1, np.int32)
    if isinstance(model, BytePairRanks) or (unit == "byte" and np.all(byte_ids >= 0)):
        return "none", ids
    if model.byte_fallback:
        tokens = [model.vocab.get(f"<0x{byte:02X}>", -1) for byte in range(256)]
        missing = [byte for byte, id in enumerate(tokens) if id < 0]
        if unit == "byte":
            raise UnsupportedError("model.byte_fallback over a byte alphabet with missing characters")
        if missing and len(missing) < 256:
            raise UnsupportedError(f"model.byte_fallback without the token <0x{missing[0]:02X}>")
        if not missing:
            lost = [code for k, code in enumerate(codes) if np.any(byte_ids[:, FIRST_CODE + k] < 0)]
            if lost:
                raise UnsupportedError(f"model.byte_fallback, and the vocabulary has no {lost[0]!r}")
            if model.continuing_subword_prefix or model.end_of_word_suffix:
                raise UnsupportedError("model.byte_fallback with a prefix or suffix of subwords")
            ids[:256] = tokens
            _refuse_operands(rules, ids[:256], "the bytes of byte_fallback")
            return "bytes", ids
    unk = None if model.unk_token is None else model.vocab.get(model.unk_token)
    if unk is None:
        return "host", ids
    ids[256] = unk
    _refuse_operands(rules, ids[256:], f"unk_token {model.unk_token!r}")
    return ("fuse" if model.fuse_unk else "token"), ids


def _refuse_operands(rules: Rules, ids: np.ndarray, what: str) -> None:
    if np.any(np.isin(rules.left, ids) | np.isin(rules.right, ids)):
        raise UnsupportedError(f"model.merges merge {what}")


def _usable(
    model: BPE | BytePairRanks, every: Entries, own: np.ndarray, byte_level: bool, codes: Sequence[str]
) -> tuple[Entries, np.ndarray]:
    """The entries that look-ups may find, and whether each encodes itself."""
    if isinstance(model, BytePairRanks):
        return every, own
    alone = pick(every, own)
    if not model.ignore_merges:
        return alone, np.ones(len(alone.ids), bool)
    if not np.any(every.places):
        return every, own
    wholes = whole_pieces(model, byte_level=byte_level, codes=codes)
    known = set(strings(wholes))
    whole = alone.places == START | END
    again = np.array([w and s in known for w, s in zip(whole, strings(alone), strict=True)], bool)
    usable = join([wholes, pick(alone, ~again)])
    return usable, np.ones(len(usable.ids), bool)
