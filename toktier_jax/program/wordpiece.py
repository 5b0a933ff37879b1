"""A WordPiece or WordLevel model of a spec -> WordPiecePlan and WordPieceTables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import WordPiecePlan
from toktier_jax.program.added import double_array
from toktier_jax.program.sizes import stepped
from toktier_jax.program.vocabulary import Entries, lexicon, pick, spelled, strings
from toktier_jax.spec.types import WordLevel, WordPiece
from toktier_jax.types import SHORT, WordPieceTables

_MOST_IDS = 1 << 24
_CONTINUES, _NEVER = 0xC1, 0xC0  # bytes that no UTF-8 has


def compile_words(
    model: WordPiece | WordLevel, *, byte_level: bool, codes: Sequence[str] = ()
) -> tuple[WordPiecePlan, WordPieceTables]:
    """Compiles a model whose buffers hold raw bytes (`byte_level`), or UTF-8 with code 0xF8 + k for `codes[k]`.

    Raises UnsupportedError for ids that a table cannot hold.
    """
    ids = model.vocab.values()
    if ids and max(ids) >= _MOST_IDS:
        raise UnsupportedError(f"an id of the vocabulary is not in 0 to {_MOST_IDS - 1}")
    words = spelled(model.vocab, byte_level=byte_level, codes=codes)
    unknown = model.vocab.get(model.unk_token, -1)
    if isinstance(model, WordLevel):
        plan, most, trie = WordPiecePlan("char", False, _any_long(words), unknown >= 0), np.iinfo(np.int32).max, _trie()
    else:
        most = min(model.max_input_chars_per_word, int(np.iinfo(np.int32).max))
        words = pick(words, _characters(words, byte_level) <= most)
        prefix = model.continuing_subword_prefix
        inside = {token[len(prefix) :]: id for token, id in model.vocab.items() if token.startswith(prefix)}
        rest = spelled(inside, byte_level=byte_level, codes=codes)
        plan = WordPiecePlan("byte" if byte_level else "char", True, _any_long(words), unknown >= 0)
        trie = _trie(words, rest)
    own = np.ones(len(words.ids), bool)
    return plan, WordPieceTables(lexicon(words, own), *trie, np.int32(most), np.int32(unknown))


def _any_long(words: Entries) -> bool:
    return bool(np.any(words.sizes > SHORT))


def _characters(words: Entries, byte_level: bool) -> np.ndarray:
    """Characters of each string as the model counts them, int64 [n]."""
    if byte_level or not len(words.ids):
        return words.sizes
    return np.add.reduceat(((words.data & 0xC0) != 0x80).astype(np.int64), words.begins)


def _trie(words: Entries | None = None, rest: Entries | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Trie, tokens and roots of WordPieceTables: `words` begin a piece, `rest` goes on in one."""
    literals, ids = [bytes([_CONTINUES, _NEVER])], [-1]
    for mark, entries in ((b"", words), (bytes([_CONTINUES]), rest)):
        for literal, id in zip(strings(entries), entries.ids.tolist(), strict=True) if entries is not None else ():
            if literal[0] not in (_CONTINUES, _NEVER):  # of bytes that a text never has
                literals.append(mark + literal)
                ids.append(id)
    trie = double_array(literals)
    tokens = np.zeros((2, stepped(len(ids), 1024)), np.int32)
    tokens[0, : len(ids)] = ids
    tokens[1, : len(ids)] = [len(literal) - (literal[0] == _CONTINUES) for literal in literals]
    return trie, tokens, np.array([0, trie[0, 0] + _CONTINUES], np.int32)
