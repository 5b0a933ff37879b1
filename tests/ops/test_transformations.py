"""`encode_bytes` inside a user's program: jit, vmap, shard_map on two devices, export. Ids are the reference's."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import toktier_jax as tt
from tests.tokenizer_files import added, bpe, byte_level, tokenizer_json
from toktier_jax.ops.scan import Lowering
from toktier_jax.spec.byte_alphabet import ALPHABET

SIZE = 128
TEXTS = (
    "",
    "the thing",
    "naïve <x> é in the\n\n  end ing",
    "ab" * (SIZE // 2),
    " the<x><x>ababab\0日本 a" * 3,
    "ninth 'll 1234 \t",
)


@functools.cache
def tokenizer() -> tt.Tokenizer:
    """Byte-level BPE behind GPT-2's pattern, with few merges and an added token."""
    merges = [("t", "h"), ("th", "e"), ("i", "n"), ("Ġ", "the"), ("in", "g"), ("Ã", "©"), ("a", "b"), ("ab", "ab")]
    vocab = {token: id for id, token in enumerate([*ALPHABET, *map("".join, merges)])}
    file = tokenizer_json(
        bpe(vocab, merges), pre_tokenizer=byte_level(), added=[added(len(vocab), "<x>", special=True)]
    )
    return tt.Tokenizer.from_bytes(file)


def rows(texts: Sequence[str], size: int = SIZE) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [B, size] and int32 [B]; what is past a text is no UTF-8."""
    data = np.full((len(texts), size), 0xFF, np.uint8)
    for row, text in zip(data, texts, strict=True):
        row[: len(text.encode())] = np.frombuffer(text.encode(), np.uint8)
    return data, np.array([len(text.encode()) for text in texts], np.int32)


def check(text: str, out: Any) -> None:
    """Ids of the reference; spans that lie end to end and hold the bytes of their tokens."""
    count, data = int(out.count), text.encode()
    assert int(out.status) == 0, text
    assert out.ids[:count].tolist() == tokenizer().reference.encode(text).ids, text
    assert (np.asarray(out.ids[count:]) == -1).all()
    spans = np.stack([out.byte_starts, out.byte_ends], 1)[:count].tolist()
    parts = [data[start:end] for start, end in spans]
    assert parts == [tokenizer().token_bytes(id) for id in out.ids[:count].tolist()]
    assert b"".join(parts) == data


def row_of(out: Any, row: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[row], out)


def test_in_a_jitted_function_that_goes_on_with_the_ids() -> None:
    """Traced once for all lengths; between the caller's device arrays and the result nothing crosses to the host."""

    @jax.jit
    @chex.assert_max_traces(n=1)
    def embed(program: Any, table: jax.Array, data: jax.Array, length: jax.Array) -> tuple[jax.Array, Any]:
        out = tt.ops.encode_bytes(program, data, length, lowering="walk")
        used = jnp.arange(SIZE) < out.count
        return jnp.where(used[:, None], table[out.ids], 0).sum(0), out

    table = np.random.default_rng(0).integers(-99, 99, (300, 4), np.int32)
    program, on_device = tokenizer().program, jax.device_put(table)
    for text, data, length in zip(TEXTS, *map(jax.device_put, rows(TEXTS)), strict=True):
        with jax.transfer_guard("disallow"):
            total, out = embed(program, on_device, data, length)
        check(text, out)
        assert total.tolist() == table[tokenizer().reference.encode(text).ids].sum(0).tolist()


@pytest.mark.parametrize("lowering", ["arrays", pytest.param("walk", marks=pytest.mark.slow)])
def test_over_a_batch(lowering: Lowering) -> None:
    """Each row has a status of its own: what is no UTF-8 and what has too many tokens leaves the others alone."""
    bad = [b"a\xff", b"\xe6\x97", b"\xed\xa0\x80", "é".encode()[1:]]
    data, lengths = rows([*TEXTS, "x" * 100, "x" * 101, *["" for _ in bad]])
    for row, part in enumerate(bad, len(TEXTS) + 2):
        data[row, : len(part)], lengths[row] = np.frombuffer(part, np.uint8), len(part)
    encode = functools.partial(tt.ops.encode_bytes, lowering=lowering, capacity=100)
    out = jax.jit(jax.vmap(encode, (None, 0, 0)))(tokenizer().program, data, lengths)
    for row, text in enumerate(TEXTS):
        check(text, row_of(out, row))
    assert out.status.tolist() == [0] * len(TEXTS) + [0, 1] + [3] * len(bad)
    failed = out.status != 0
    assert not out.count[failed].any()
    assert (out.ids[failed] == -1).all()


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        (np.zeros((2, 8), np.uint8), {}, r"uint8 \[N\], not uint8 \[2, 8\]; use vmap"),
        (np.zeros(8, np.int32), {}, r"uint8 \[N\], not int32 \[8\]"),
        (np.zeros(0, np.uint8), {}, "at least one byte"),
        (np.zeros(8, np.uint8), {"capacity": 0}, "capacity must be at least 1, not 0"),
        (np.zeros(8, np.uint8), {"segment_starts": np.zeros(2, np.float32)}, r"int32 \[S\], not float32 \[2\]"),
    ],
)
def test_arguments_of_another_shape(data: np.ndarray, options: dict[str, Any], says: str) -> None:
    with pytest.raises(tt.InputError, match=says):
        jax.eval_shape(functools.partial(tt.ops.encode_bytes, **options), tokenizer().program, data, np.int32(1))


CHILD = """
import json, os, sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np
from jax.sharding import Mesh, PartitionSpec
import toktier_jax as tt
from tests.ops import test_transformations as tests

def shard(program, data, length):
    out = tt.ops.encode_bytes(program, data[0], length[0], lowering=sys.argv[1])
    return jax.tree.map(lambda leaf: leaf[None], out)

assert len(jax.devices()) == 2
mesh, along = Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data")
run = jax.jit(jax.shard_map(
    shard, mesh=mesh, in_specs=(PartitionSpec(), along, along), out_specs=along, check_vma=False
))
for texts in zip(tests.TEXTS[::2], tests.TEXTS[1::2]):
    out = run(tests.tokenizer().program, *tests.rows(texts))
    assert len(out.ids.sharding.device_set) == 2
    for row, text in enumerate(texts):
        tests.check(text, tests.row_of(out, row))
print(len(jax.devices()), "devices")
"""


@pytest.mark.parametrize("lowering", ["arrays", pytest.param("walk", marks=pytest.mark.slow)])
def test_on_two_devices(lowering: Lowering) -> None:
    cache = {"JAX_COMPILATION_CACHE_DIR": str(jax.config.values["jax_compilation_cache_dir"] or "")}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, lowering],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, **cache},
    )
    assert done.stdout == "2 devices\n", done.stderr[-3000:]


@pytest.mark.parametrize(
    ("lowering", "platforms"),
    [
        pytest.param("arrays", ("cpu", "cuda", "rocm", "tpu"), id="arrays"),
        pytest.param("walk", ("cpu",), id="walk", marks=pytest.mark.slow),
    ],
)
def test_exported(lowering: Lowering, platforms: tuple[str, ...]) -> None:
    """Written to bytes for every platform, read back, and run on this one."""
    leaves, tree = jax.tree.flatten(tokenizer().program)

    def encode(leaves: Any, data: jax.Array, length: jax.Array) -> dict[str, jax.Array]:
        return tt.ops.encode_bytes(jax.tree.unflatten(tree, leaves), data, length, lowering=lowering)._asdict()

    data, lengths = rows(TEXTS)
    written = jax.export.export(jax.jit(encode), platforms=platforms)(leaves, data[0], lengths[0]).serialize()
    read = jax.export.deserialize(written)
    assert read.platforms == platforms
    run = jax.jit(read.call)
    for text, row, length in zip(TEXTS, data, lengths, strict=True):
        out = run(leaves, row, length)
        check(text, type("Out", (), out))
