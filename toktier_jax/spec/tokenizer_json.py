"""Reads a Hugging Face tokenizer.json into a TokenizerSpec: the top level, added tokens, truncation and padding."""

from __future__ import annotations

import hashlib
from typing import Literal

from toktier_jax.spec import types
from toktier_jax.spec.decoders import read_decoder
from toktier_jax.spec.fields import INT32, Node, parse_object
from toktier_jax.spec.models import host_only_reasons, read_model
from toktier_jax.spec.normalizers import read_normalizer
from toktier_jax.spec.post_processors import read_post_processor
from toktier_jax.spec.pre_tokenizers import read_pre_tokenizer

_STRATEGIES = ("LongestFirst", "OnlyFirst", "OnlySecond")


def read_tokenizer_json(
    data: bytes,
    *,
    file: str = "tokenizer.json",
    source: Literal["tokenizer.json", "tekken", "gguf"] = "tokenizer.json",
    fingerprint: str | None = None,
) -> types.TokenizerSpec:
    """`data` as plain values.

    `file` names the file in errors. `source` and `fingerprint` are given by readers that convert another format first;
    the fingerprint is otherwise the sha256 of `data`. Raises SpecError with the byte offset or the key.
    """
    root = parse_object(data, file)
    version = root.string("version", "1.0")
    if version != "1.0":
        raise root.fail(f"unknown version {version!r}; expected '1.0'")
    model = read_model(root.child("model"))
    post_processor, post_reasons = read_post_processor(root.optional("post_processor"))
    truncation = _read_truncation(root.optional("truncation"))
    reasons = host_only_reasons(model) + post_reasons
    if truncation is not None and truncation.strategy == "OnlySecond":
        reasons.append("truncation: OnlySecond needs a second text")
    if truncation is not None and truncation.max_length < len(post_processor.before) + len(post_processor.after):
        reasons.append("truncation: max_length is less than the number of template ids")
    return types.TokenizerSpec(
        source=source,
        fingerprint=fingerprint or hashlib.sha256(data).hexdigest(),
        dialect="oniguruma",
        model=model,
        normalizers=read_normalizer(root.optional("normalizer")),
        pre_tokenizers=read_pre_tokenizer(root.optional("pre_tokenizer")),
        post_processor=post_processor,
        decoder=read_decoder(root.optional("decoder")),
        added_tokens=_read_added_tokens(root, model),
        truncation=truncation,
        padding=_read_padding(root.optional("padding")),
        host_only=tuple(reasons),
    )


def vocab_ids(model: types.Model) -> dict[str, int]:
    """The model's token strings and their ids (those of BytePairRanks are bytes: see spec/tiktoken.py)."""
    if isinstance(model, types.Unigram):
        return {token: index for index, (token, _) in enumerate(model.pieces)}
    assert isinstance(model, types.BPE | types.WordPiece | types.WordLevel)
    return model.vocab


def _read_added_tokens(root: Node, model: types.Model) -> tuple[types.AddedToken, ...]:
    """Added tokens with the ids that the reference gives them: the model's id, else the next free one.

    The `id` field of the file is not looked at by the reference; files in use agree with it.
    """
    if "added_tokens" not in root.value:
        return ()
    vocab = vocab_ids(model)
    size = len(vocab)
    ids: dict[str, int] = {}
    tokens: dict[int, types.AddedToken] = {}
    next_id = size
    for node in root.items("added_tokens"):
        if not isinstance(node.value, dict):
            raise node.fail("must be an object")
        node.integer("id")
        token = types.AddedToken(
            id=0,
            content=node.string("content"),
            special=node.boolean("special"),
            normalized=node.boolean("normalized"),
            lstrip=node.boolean("lstrip"),
            rstrip=node.boolean("rstrip"),
            single_word=node.boolean("single_word"),
        )
        if not token.content:
            continue
        index = ids.get(token.content, vocab.get(token.content))
        if index is None:
            index, next_id = next_id, next_id + 1
        ids[token.content] = index
        tokens[index] = types.AddedToken(**{**token.__dict__, "id": index})
    return tuple(tokens.values())


def _read_truncation(node: Node | None) -> types.Truncation | None:
    if node is None:
        return None
    return types.Truncation(
        max_length=node.integer("max_length", below=1 << 63),
        stride=node.integer("stride", below=1 << 63),
        strategy=node.choice("strategy", _STRATEGIES),
        direction=node.choice("direction", ("Left", "Right"), "Right"),
    )


def _read_padding(node: Node | None) -> types.Padding | None:
    if node is None:
        return None
    strategy = node.get("strategy")
    if strategy.value == "BatchLongest":
        length = None
    elif isinstance(strategy.value, dict) and list(strategy.value) == ["Fixed"]:
        length = strategy.integer("Fixed", below=1 << 63)
    else:
        raise strategy.fail('must be "BatchLongest" or {"Fixed": length}')
    multiple = None if node.value.get("pad_to_multiple_of") is None else node.integer("pad_to_multiple_of")
    return types.Padding(
        length=length,
        direction=node.choice("direction", ("Left", "Right")),
        pad_to_multiple_of=multiple or None,
        pad_id=node.integer("pad_id", below=INT32),
        pad_type_id=node.integer("pad_type_id"),
        pad_token=node.string("pad_token"),
    )
