"""Reads the `model` part of a tokenizer.json: vocabulary, merges and their options. Encodes nothing."""

from __future__ import annotations

from typing import Any

from toktier_jax.spec import types
from toktier_jax.spec.fields import VOCABULARY, Node


def read_model(node: Node) -> types.Model:
    """Files from before models had a `type` are recognized by their keys, as the reference does."""
    kind = node.string("type", None) or _guess_kind(node)
    match kind:
        case "BPE":
            return _read_bpe(node)
        case "WordPiece":
            return types.WordPiece(
                vocab=_read_vocab(node),
                unk_token=node.string("unk_token"),
                continuing_subword_prefix=node.string("continuing_subword_prefix"),
                max_input_chars_per_word=node.integer("max_input_chars_per_word", below=1 << 63),
            )
        case "WordLevel":
            return types.WordLevel(_read_vocab(node), node.string("unk_token"))
        case "Unigram":
            return _read_unigram(node)
    raise node.fail(f"unknown model type {kind!r}; expected BPE, WordPiece, WordLevel or Unigram")


def host_only_reasons(model: types.Model) -> list[str]:
    """What of `model` only the reference can do."""
    if isinstance(model, types.Unigram):
        return ["model: Unigram runs on the reference"]
    if isinstance(model, types.BPE) and model.dropout:
        return [f"model: dropout {model.dropout} makes the ids random"]
    vocab = getattr(model, "vocab", None)
    if vocab is not None and len(set(vocab.values())) < len(vocab):
        return ["model: two tokens share one id"]
    return []


def _guess_kind(node: Node) -> str:
    keys = node.value
    if "merges" in keys:
        return "BPE"
    if "max_input_chars_per_word" in keys:
        return "WordPiece"
    if isinstance(keys.get("vocab"), list):
        return "Unigram"
    if "vocab" in keys and "unk_token" in keys:
        return "WordLevel"
    raise node.fail("has no type, and its keys are those of no known model")


def _read_vocab(node: Node) -> dict[str, int]:
    vocab = node.child("vocab").value
    for token, index in vocab.items():
        if type(index) is not int or not 0 <= index < VOCABULARY:
            raise node.fail(f"vocab: the id of {token!r} must be an integer from 0 to {VOCABULARY - 1}, not {index!r}")
    return vocab


def _read_bpe(node: Node) -> types.BPE:
    dropout = _nullable(node, "dropout", node.number)
    if dropout is not None and not 0.0 <= dropout <= 1.0:
        raise node.get("dropout").fail(f"must be from 0 to 1, not {dropout}")
    vocab = _read_vocab(node)
    prefix = _nullable(node, "continuing_subword_prefix", node.string) or ""
    return types.BPE(
        vocab=vocab,
        merges=_read_merges(node, vocab, prefix),
        unk_token=_nullable(node, "unk_token", node.string),
        fuse_unk=bool(_nullable(node, "fuse_unk", node.boolean)),
        byte_fallback=bool(_nullable(node, "byte_fallback", node.boolean)),
        ignore_merges=bool(_nullable(node, "ignore_merges", node.boolean)),
        continuing_subword_prefix=prefix,
        end_of_word_suffix=_nullable(node, "end_of_word_suffix", node.string) or "",
        dropout=dropout or None,
    )


def _nullable(node: Node, key: str, read: Any) -> Any:
    return None if node.value.get(key) is None else read(key)


def _read_merges(node: Node, vocab: dict[str, int], prefix: str) -> list[tuple[str, str]]:
    """Merges by rank, as "a b" strings or as pairs.

    A pair that is listed twice has its last rank, as in the reference.
    """
    merges = node.get("merges")
    if not isinstance(merges.value, list):
        raise merges.fail("must be a list")
    entries = merges.value
    if entries and isinstance(entries[0], str):
        # In this form, lines that start with "#version" are comments
        entries = [entry for entry in entries if not (isinstance(entry, str) and entry.startswith("#version"))]
        pairs: list[Any] = [tuple(entry.split(" ")) if isinstance(entry, str) else entry for entry in entries]
    else:
        pairs = [tuple(entry) if isinstance(entry, list) else entry for entry in entries]
    for i, pair in enumerate(pairs):
        if not (type(pair) is tuple and len(pair) == 2 and type(pair[0]) is str and type(pair[1]) is str):
            raise merges.fail(f"entry {i} must be two tokens, not {entries[i]!r}")
    for i, (left, right) in enumerate(pairs):
        if prefix and len(right.encode()) < len(prefix.encode()):
            raise merges.fail(f"entry {i}: {right!r} is shorter than the continuing_subword_prefix {prefix!r}")
        joined = left + (_without(right, prefix) if prefix else right)
        if left not in vocab or right not in vocab or joined not in vocab:
            missing = next(token for token in (left, right, joined) if token not in vocab)
            raise merges.fail(
                f"entry {i} ({left!r}, {right!r}) refers to the token {missing!r}, which is not in the vocabulary"
            )
    unique = dict.fromkeys(reversed(pairs))
    return list(unique)[::-1]


def _without(token: str, prefix: str) -> str:
    """`token` less as many bytes as the prefix has, which the reference cuts without looking at them."""
    return token.encode()[len(prefix.encode()) :].decode("utf-8", "replace")


def _read_unigram(node: Node) -> types.Unigram:
    pieces: list[tuple[str, float]] = []
    for item in node.items("vocab"):
        entry = item.value
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and _is_number(entry[1])):
            raise item.fail(f"must be [token, score], not {entry!r}")
        pieces.append((entry[0], float(entry[1])))
    unk_id = _nullable(node, "unk_id", node.integer)
    if unk_id is not None and unk_id >= len(pieces):
        raise node.get("unk_id").fail(f"is {unk_id}, but there are {len(pieces)} pieces")
    return types.Unigram(pieces, unk_id, node.boolean("byte_fallback", False))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
