"""Many documents: packed into buffers for one and two host devices, encode_batch, and the native batch calls.

    python -m benchmarks.batch [--small] [--out DIR]

Documents are 4 K characters of mixed text. Packed: whole documents fill buffers of 1 MiB, `ops.encode_bytes` gets their
starts, and `shard_map` spreads the buffers over the devices. Every engine's ids of all documents are compared with the
reference's. Each row is a process of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests import artifacts

from . import peers, report, texts, worker

COLUMNS = ("engine", "devices", "ms", "documents_s", "mb_s", "x_reference", "ids")
TOKENIZER = "qwen-3"
DOCUMENT = 4_096


class Packed(NamedTuple):
    """Documents in B buffers: data uint8 [B, N], lengths int32 [B], starts int32 [B, S] padded with N."""

    data: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a few documents: tests the script, not the machine")
    parser.add_argument("--out", type=Path, default=report.RESULTS)
    arguments = parser.parse_args(argv)
    count, capacity, text = (12, 1 << 14, "code") if arguments.small else (2_000, 1 << 20, "mixed")
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    for engine, devices in (("tokenizers", 1), ("fastokens", 1), ("encode_batch", 1), ("packed", 1), ("packed", 2)):
        task = {"engine": engine, "devices": devices, "count": count, "capacity": capacity, "text": text}
        row = worker.call("batch", task, {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"})
        if "skipped" in row:
            skipped.append(f"{engine}: {row['skipped']}")
            continue
        rows.append(row)
        row["ids"] = "equal" if row["digest"] == rows[0]["digest"] else "DIFFERENT"
        row["x_reference"] = rows[0]["ms"] / row["ms"]
    print(report.table(rows, COLUMNS))
    for reason in skipped:
        print(f"SKIPPED {reason}")
    report.write("batch", {"tokenizer": TOKENIZER, "rows": rows, "skipped": skipped}, arguments.out)
    plot(rows, arguments.out)
    wrong = sum(row["ids"] != "equal" for row in rows)
    if wrong:
        print(f"error: {wrong} rows have other ids than the reference", file=sys.stderr)
    return 1 if wrong else 0


def measure(engine: str, devices: int, count: int, capacity: int, text: str = "mixed") -> dict[str, Any]:
    """One row, in this process. `capacity` is in bytes and used by "packed" alone."""
    content = texts.make(text, count * DOCUMENT)
    documents = [content[at : at + DOCUMENT] for at in range(0, len(content), DOCUMENT)]
    run, ids = ENGINES[engine](documents, devices, capacity)
    result = run()
    seconds = report.median(report.seconds_of(run))
    size = len(content.encode())
    return {
        "engine": engine,
        "devices": devices,
        "documents": len(documents),
        "bytes": size,
        "ms": seconds * 1e3,
        "documents_s": len(documents) / seconds,
        "mb_s": size / seconds / 1e6,
        "digest": report.digest(ids(result)),
    }


Runner = tuple[Callable[[], Any], Callable[[Any], np.ndarray]]


def _tokenizers(documents: list[str], devices: int, capacity: int) -> Runner:
    tokenizer = artifacts.load(TOKENIZER).reference
    return (
        lambda: tokenizer.encode_batch(documents, add_special_tokens=False),
        lambda out: np.concatenate([np.asarray(one.ids, np.int32) for one in out]),
    )


def _fastokens(documents: list[str], devices: int, capacity: int) -> Runner:
    tokenizer = peers.load("fastokens", artifacts.load(TOKENIZER)).tokenizer
    return lambda: tokenizer.encode_batch_flat(documents)[0], lambda out: np.frombuffer(out, np.uint32).astype(np.int32)


def _encode_batch(documents: list[str], devices: int, capacity: int) -> Runner:
    import jax

    tokenizer = artifacts.load(TOKENIZER).tokenizer
    length = DOCUMENT  # no document has more tokens than this one has characters, but for rare scripts: then it raises

    def ids(batch: Any) -> np.ndarray:
        rows = zip(np.asarray(batch.ids), np.asarray(batch.lengths), strict=True)
        return np.concatenate([row[:count] for row, count in rows])

    def run() -> Any:
        return jax.block_until_ready(tokenizer.encode_batch(documents, length=length, side="right"))

    return run, ids


def _packed(documents: list[str], devices: int, capacity: int) -> Runner:
    import jax
    from jax.sharding import Mesh
    from jax.sharding import PartitionSpec as Spec

    from toktier_jax import ops

    program = artifacts.load(TOKENIZER).tokenizer.program
    mesh = Mesh(np.array(jax.devices()[:devices]), ("buffers",))

    def encode_one(program: Any, packed: Packed) -> tuple[jax.Array, jax.Array, jax.Array]:
        """One buffer on one device: the leading axis of its shard has length 1."""
        data, length, starts = (leaf[0] for leaf in packed)
        out = ops.encode_bytes(program, data, length, segment_starts=starts)
        return out.ids[None], out.count[None], out.status[None]

    shards = Spec("buffers")
    encode = jax.jit(jax.shard_map(encode_one, mesh=mesh, in_specs=(Spec(), shards), out_specs=shards, check_vma=False))
    buffers = pack([document.encode() for document in documents], capacity, devices)
    groups = [Packed(*(leaf[at : at + devices] for leaf in buffers)) for at in range(0, len(buffers.data), devices)]

    def run() -> list[tuple[jax.Array, ...]]:
        return jax.block_until_ready([encode(program, group) for group in groups])

    def ids(out: list[tuple[jax.Array, ...]]) -> np.ndarray:
        found = []
        for tokens, counts, status in out:
            assert not np.any(np.asarray(status)), f"status {np.asarray(status)}"
            found += [row[:count] for row, count in zip(np.asarray(tokens), np.asarray(counts), strict=True)]
        return np.concatenate(found)

    return run, ids


def pack(documents: Sequence[bytes], capacity: int, multiple: int) -> Packed:
    """Whole documents in order into buffers of `capacity` bytes; the number of buffers is a multiple of `multiple`."""
    groups: list[list[bytes]] = [[]]
    room = capacity
    for document in documents:
        if len(document) > room:
            groups.append([])
            room = capacity
        groups[-1].append(document)
        room -= len(document)
    groups += [[] for _ in range(-len(groups) % multiple)]
    slots = max(map(len, groups))
    data = np.zeros((len(groups), capacity), np.uint8)
    lengths = np.zeros(len(groups), np.int32)
    starts = np.full((len(groups), slots), capacity, np.int32)
    for at, group in enumerate(groups):
        joined = b"".join(group)
        data[at, : len(joined)] = np.frombuffer(joined, np.uint8)
        lengths[at] = len(joined)
        starts[at, : len(group)] = np.cumsum([0, *map(len, group)])[:-1]
    return Packed(data, lengths, starts)


ENGINES: dict[str, Callable[[list[str], int, int], Runner]] = {
    "tokenizers": _tokenizers,
    "fastokens": _fastokens,
    "encode_batch": _encode_batch,
    "packed": _packed,
}


def plot(rows: Sequence[report.Row], folder: Path) -> None:
    """MB/s of each engine."""
    drawing, axes = report.figure(height=3.2)
    names = [f"{row['engine']}, {row['devices']} device{'s' * (row['devices'] > 1)}" for row in rows]
    bars = axes.barh(names, [row["mb_s"] for row in rows], color="#7ba7d7")
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.invert_yaxis()
    axes.set(xlabel="MB/s", title=f"{rows[0]['documents']:,} documents of 4 K characters")
    report.save(drawing, "batch", folder)


if __name__ == "__main__":
    sys.exit(main())
