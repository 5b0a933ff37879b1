"""The command line `toktier-jax`: argument parsing and printing. Each verb is a thin call into the package.

Exit codes: 0 done, 1 the work failed or `verify` / `demo` found a difference, 2 wrong usage. Errors are one line on
stderr. The package is imported by the verbs that need it, so that `version`, `--help` and usage errors are immediate.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from toktier_jax.cli_sessions import add_session_verbs

if TYPE_CHECKING:
    from toktier_jax.tokenizer import Tokenizer

PROGRESS_FROM = 4 << 20
"""Bytes from which `count` shows a progress bar (on a terminal)."""

MODEL_PACKAGES = ("flax", "gguf", "safetensors")

SPANS_FIELDS = 5
"""Fields of a line of `encode --spans`: the id, and two spans."""

VERSIONED = ("toktier-jax", "jax", "jaxlib", "numpy", "tokenizers")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        fail(f"{message} (see {self.prog} --help)", 2)


def fail(message: str, code: int) -> NoReturn:
    print(f"toktier-jax: error: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns its exit code."""
    from toktier_jax.errors import ToktierError

    if sys.stdout is None:
        fail("the standard output is closed", 1)
    try:
        arguments = build_parser().parse_args(argv)
        verb: Callable[[argparse.Namespace], int] = arguments.verb
        code = verb(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away, as in `encode FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}", 1)
    except ModuleNotFoundError as error:
        hint = "; pip install 'toktier-jax[models,gguf]' brings it" if error.name in MODEL_PACKAGES else ""
        fail(f"{error}{hint}", 1)
    except ToktierError as error:
        fail(str(error), 1)
    return code


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="toktier-jax", description="Exact tokenization on any XLA device.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    def add(name: str, verb: Callable[[argparse.Namespace], int], summary: str) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=summary, description=summary)
        sub.set_defaults(verb=verb)
        return sub

    def add_tokenizer(sub: argparse.ArgumentParser) -> None:
        text = "a file (tokenizer.json, tekken.json, .gguf), a directory, a hub id, or 'default' (the embedded one)"
        sub.add_argument("-t", "--tokenizer", default="default", metavar="NAME", help=text)

    def add_encoding(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--route", choices=("auto", "xla", "reference"), default="auto")
        text = "special tokens written in the text: parse them to ids, take them as text, or refuse them"
        sub.add_argument("--special", choices=("parse", "text", "error"), default="parse", help=text)
        sub.add_argument("--no-template", action="store_true", help="leave out template tokens such as BOS and EOS")

    sub = add("encode", encode, "print the ids of a text")
    sub.add_argument("file", nargs="?", default="-", help="a UTF-8 file, or - for stdin (default)")
    add_tokenizer(sub)
    add_encoding(sub)
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
    sub.add_argument("--seconds", type=seconds, default=30.0, help="how long to search (default 30)")
    sub.add_argument("--corpus", type=Path, metavar="DIR", help="text files to draw from as well")
    sub.add_argument("--seed", type=int, default=0)

    add_session_verbs(verbs, add_tokenizer, load)

    sub = add("demo", demo, "encode a file with two tokenizers, compare with the reference and time both")
    sub.add_argument("file", nargs="?", type=Path, help="a UTF-8 file (default: the interpreter's own sources)")

    from toktier_jax.cli_sampling import add_sampling

    add_sampling(add)

    sub = add("version", version, "print versions")
    sub.add_argument("--json", action="store_true", help="one JSON object")
    return parser


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
    ids = parse_ids(read(arguments.file), shown(arguments.file), arguments.spans)
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
    with progress(arguments.files) as reach:
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
    from toktier_jax.verify import run_campaign

    report = run_campaign(
        load(arguments.tokenizer), seconds=arguments.seconds, corpus=arguments.corpus, seed=arguments.seed
    )
    print(report)
    return 0 if report.ok else 1


def demo(arguments: argparse.Namespace) -> int:
    from toktier_jax.demo import run_demo
    from toktier_jax.demo_sampling import show_completions

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


def load(name: str) -> Tokenizer:
    """The tokenizer of a file, a directory, a hub id, or the embedded one."""
    keep_executables()
    from toktier_jax.tokenizer import Tokenizer

    if name == "default":
        return Tokenizer.default()
    path = Path(name)
    if path.is_file():
        return Tokenizer.from_file(path)
    if (path.is_absolute() or name.startswith(".") or path.suffix in (".json", ".gguf")) and not path.is_dir():
        raise FileNotFoundError(None, "no such tokenizer file", name)
    return Tokenizer.from_pretrained(name)


def keep_executables() -> None:
    """Has JAX keep what it compiles beside the package's own cache, unless the user has said where: a process that
    encodes once would else compile for longer than it runs."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    import jax

    from toktier_jax.program.cache import cache_dir

    try:
        folder = cache_dir() / "xla"
    except FileNotFoundError:  # there is no place for it
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def read(name: str) -> bytes:
    from toktier_jax.errors import InputError

    if name == "-" and sys.stdin is None:
        raise InputError("the standard input is closed; name a file")
    if not name:
        raise InputError("the name of the file is empty")
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def parse_ids(data: bytes, name: str, spans: bool) -> list[int]:
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


def shown(name: str) -> str:
    """A file's name, as messages have it."""
    return "stdin" if name == "-" else name


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Says in which file the text is that is refused."""
    from toktier_jax.errors import InputError

    try:
        yield
    except InputError as error:
        raise InputError(f"{shown(name)}: {error}") from error


def seconds(text: str) -> float:
    """A number of seconds, as an option's value."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds above 0")
    return value


@contextlib.contextmanager
def progress(names: Sequence[str]) -> Iterator[Callable[[int], object]]:
    """A bar on stderr over the bytes of `names`, where they are many and it is a terminal; yields what sets it."""
    total = sum(Path(name).stat().st_size for name in names if name != "-")
    if total < PROGRESS_FROM or not sys.stderr.isatty():
        yield lambda done: None
        return
    from tqdm import tqdm

    with tqdm(total=total, unit="B", unit_scale=True, file=sys.stderr) as bar:
        yield lambda done: bar.update(done - bar.n)


if __name__ == "__main__":
    sys.exit(main())
