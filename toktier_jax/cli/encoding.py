"""The verbs `encode`, `decode`, `count`, `explain`, `verify`, `demo` and `version` of the command line."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import platform
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from toktier_jax.cli.files import Add, add_tokenizer, keep_executables, load, naming, read, shown

PROGRESS_FROM = 4 << 20
"""Bytes from which `count` shows a progress bar (on a terminal)."""

SPANS_FIELDS = 5
"""Fields of a line of `encode --spans`: the id, and two spans."""

VERSIONED = ("toktier-jax", "jax", "jaxlib", "numpy", "tokenizers")


def add_encoding(add: Add) -> None:
    """Adds the verbs to the parser, by the command line's own `add`."""
    sub = add("encode", encode, "print the ids of a text")
    sub.add_argument("file", nargs="?", default="-", help="a UTF-8 file, or - for stdin (default)")
    add_tokenizer(sub)
    _add_reading(sub)
    sub.add_argument("--spans", action="store_true", help="also the byte and character spans, a token a line")
    sub.add_argument("--json", action="store_true", help="one JSON object")

    sub = add("decode", decode, "print the text of ids")
    text = "ids in decimal, or JSON as encode prints it; - for stdin (default)"
    sub.add_argument("file", nargs="?", default="-", help=text)
    add_tokenizer(sub)
    sub.add_argument("--spans", action="store_true", help="the ids are what encode --spans prints")
    sub.add_argument("--keep-special", action="store_true", help="print special tokens too")

    sub = add("count", count, "print the number of tokens of each file")
    sub.add_argument("files", nargs="*", default=["-"], help="UTF-8 files, or - for stdin (default)")
    add_tokenizer(sub)
    sub.add_argument("--json", action="store_true", help="one JSON object")

    sub = add("explain", explain, "say what runs on the device, what on the reference, and why")
    add_tokenizer(sub)
    sub.add_argument("--json", action="store_true", help="one JSON object")

    sub = add("verify", verify, "compare piece starts and ids with the reference on generated and real text")
    add_tokenizer(sub)
    text = "how long to search (default 30); what has begun by then, such as compiling, is finished"
    sub.add_argument("--seconds", type=_seconds, default=30.0, help=text)
    sub.add_argument("--corpus", type=Path, metavar="DIR", help="text files to draw from as well")
    sub.add_argument("--seed", type=int, default=0)

    sub = add("demo", demo, "encode a file with two tokenizers, compare with the reference and time both")
    sub.add_argument("file", nargs="?", type=Path, help="a UTF-8 file (default: the interpreter's own sources)")


def add_version(add: Add) -> None:
    """Adds `version`, the last of all verbs."""
    sub = add("version", version, "print versions")
    sub.add_argument("--json", action="store_true", help="one JSON object")


def _add_reading(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--route", choices=("auto", "xla", "reference"), default="auto")
    text = "special tokens written in the text: parse them to ids, take them as text, or refuse them"
    sub.add_argument("--special", choices=("parse", "text", "error"), default="parse", help=text)
    sub.add_argument("--no-template", action="store_true", help="leave out template tokens such as BOS and EOS")


def encode(arguments: argparse.Namespace) -> int:
    data = read(arguments.file)
    tokenizer = load(arguments.tokenizer)
    with naming(arguments.file):
        encoding = tokenizer.encode(
            data,
            add_special_tokens=not arguments.no_template,
            special=arguments.special,
            route=arguments.route,
        )
    ids = encoding.ids.tolist()
    if arguments.json:
        result: dict[str, Any] = {"ids": ids, "route": encoding.route, "fallback_reason": encoding.fallback_reason}
        result["truncated"] = encoding.truncated
        if arguments.spans:
            result |= {"byte_spans": encoding.byte_spans.tolist(), "char_spans": encoding.char_spans.tolist()}
        print(json.dumps(result))
    elif arguments.spans:
        rows = zip(ids, encoding.byte_spans.tolist(), encoding.char_spans.tolist(), strict=True)
        sys.stdout.writelines(f"{id}\t{b[0]}\t{b[1]}\t{c[0]}\t{c[1]}\n" for id, b, c in rows)
    else:
        print(*ids)
    return 0


def decode(arguments: argparse.Namespace) -> int:
    ids = _parse_ids(read(arguments.file), shown(arguments.file), arguments.spans)
    text = load(arguments.tokenizer).decode(ids, skip_special_tokens=not arguments.keep_special)
    sys.stdout.buffer.write(text.encode())
    return 0


def count(arguments: argparse.Namespace) -> int:
    for name in arguments.files:
        if name != "-" and stat.S_ISDIR(Path(name).stat().st_mode):  # said before anything is compiled
            raise IsADirectoryError(None, "Is a directory", name)
    tokenizer = load(arguments.tokenizer)
    counts: list[tuple[str, int]] = []
    before = 0
    with _progress(arguments.files) as reach:
        for name in arguments.files:
            data = read(name)
            with naming(name):
                number = tokenizer.count(data, progress=lambda done, before=before: reach(before + done))
            counts.append((name, number))
            before += len(data)
            reach(before)
    total = sum(number for _, number in counts)
    if arguments.json:
        print(json.dumps({"counts": [{"file": name, "ids": number} for name, number in counts], "total": total}))
    elif len(counts) == 1:
        print(total)
    else:
        for name, number in (*counts, ("total", total)):
            print(f"{number}\t{name}")
    return 0


def explain(arguments: argparse.Namespace) -> int:
    explained = load(arguments.tokenizer).explain()
    print(json.dumps(explained.to_dict(), indent=2) if arguments.json else explained)
    return 0


def verify(arguments: argparse.Namespace) -> int:
    from toktier_jax.verify.campaign import run_campaign

    report = run_campaign(
        load(arguments.tokenizer), seconds=arguments.seconds, corpus=arguments.corpus, seed=arguments.seed
    )
    print(report)
    return 0 if report.ok else 1


def demo(arguments: argparse.Namespace) -> int:
    from toktier_jax.demo.encoding import run_demo
    from toktier_jax.demo.sampling import show_completions

    keep_executables()
    equal = run_demo(arguments.file)
    show_completions(sys.stdout)
    return 0 if equal else 1


def version(arguments: argparse.Namespace) -> int:
    versions = {"python": platform.python_version()}
    for package in VERSIONED:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    print(json.dumps(versions) if arguments.json else "\n".join(f"{name} {value}" for name, value in versions.items()))
    return 0


def _parse_ids(data: bytes, name: str, spans: bool) -> list[int]:
    """Ids as a JSON list, in the JSON object that `encode` prints, or as decimal numbers between white space or commas;
    with `spans` the first field of each line."""
    from toktier_jax.errors import InputError

    text = data.decode("utf-8", "replace").strip()
    items: Any
    if text.startswith(("[", "{")):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}: starts like JSON and is none: {error}") from None
        items = parsed.get("ids") if isinstance(parsed, dict) else parsed
        if not isinstance(items, list):
            raise InputError(f'{name}: JSON without a list of ids; give the list, or an object with one under "ids"')
    else:
        rows = [line.split("\t") for line in text.splitlines()]
        if rows and not spans and all(len(row) == SPANS_FIELDS for row in rows):
            raise InputError(f"{name}: is this what encode --spans prints? pass --spans, or put spaces between ids")
        items = [row[0] for row in rows] if spans else text.replace(",", " ").split()
    for index, item in enumerate(items):
        word = item if isinstance(item, str) else "" if isinstance(item, bool) else str(item)
        if not word.isascii() or not word.isdigit() or len(word) > 20:
            raise InputError(f"{name}: item {index}, {str(item)[:40]!r}, is not a token id; give decimal numbers")
    return [int(item) for item in items]


def _seconds(text: str) -> float:
    """A number of seconds, as an option's value."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds above 0")
    return value


@contextlib.contextmanager
def _progress(names: Sequence[str]) -> Iterator[Callable[[int], object]]:
    """A bar on stderr over the bytes of `names`, where they are many and it is a terminal; yields what sets it."""
    total = sum(Path(name).stat().st_size for name in names if name != "-")
    if total < PROGRESS_FROM or not sys.stderr.isatty():
        yield lambda done: None
        return
    from tqdm import tqdm

    with tqdm(total=total, unit="B", unit_scale=True, file=sys.stderr) as bar:
        yield lambda done: bar.update(done - bar.n)
