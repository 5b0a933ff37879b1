"""The verbs `complete` and `boundary` of the command line. Thin calls into toktier_jax.sampling."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from toktier_jax.cli.files import Add, load, read

if TYPE_CHECKING:
    from toktier_jax.tokenizer import Tokenizer


def add_sampling(add: Add) -> None:
    """Adds both verbs to the parser, by the command line's own `add`."""
    model = "a GGUF file or a directory with config.json and safetensors (its tokenizer is used, too)"
    start = "an id that the context begins with, where the tokenizer adds no BOS (SmolLM2: 0)"

    sub = add("complete", complete, "go on with a text, from the text and not from its last token")
    sub.add_argument("prompt", help="the text, or - for stdin")
    sub.add_argument("-m", "--model", required=True, metavar="PATH", help=model)
    sub.add_argument("-t", "--tokenizer", metavar="NAME", help="another tokenizer than the model's own")
    sub.add_argument("--boundary", choices=("exact", "heal", "none"), default="exact")
    sub.add_argument("--heal-tokens", type=_heal, default=1, metavar="N|auto", help="tokens to go back for heal")
    sub.add_argument("--context-start", type=_whole, metavar="ID", help=start)
    sub.add_argument("-n", "--max-tokens", type=_number("max_tokens"), default=64, metavar="N")
    sub.add_argument("--temperature", type=_number("temperature"), default=1.0, metavar="T", help="0: greedy")
    sub.add_argument("--top-k", type=_number("top_k"), default=0, metavar="N", help="0: all")
    sub.add_argument("--top-p", type=_number("top_p"), default=1.0, metavar="P")
    sub.add_argument("--min-p", type=_number("min_p"), default=0.0, metavar="P")
    penalty = _number("repetition_penalty")
    sub.add_argument("--repetition-penalty", type=penalty, default=1.0, metavar="X", help="1: none")
    sub.add_argument("--seed", type=_number("seed"), default=0, metavar="N")
    text = "end before this text; may be repeated"
    sub.add_argument("--stop", action="append", type=_stop, default=[], metavar="TEXT", help=text)

    sub = add("boundary", boundary, "print the covers of a prompt's end: nodes, leaves, probabilities")
    sub.add_argument("prompt", help="the text, or - for stdin")
    sub.add_argument("-m", "--model", metavar="PATH", help=f"for probabilities: {model}")
    sub.add_argument("-t", "--tokenizer", metavar="NAME", help="default: the model's own, else the embedded one")
    sub.add_argument("--context-start", type=_whole, metavar="ID", help=start)
    sub.add_argument("--top", type=_whole, default=5, metavar="N", help="leaves to show of each node (default 5)")


def _number(name: str) -> Callable[[str], float]:
    """The type of an option whose value `generate` takes as `name`."""

    def number(text: str) -> float:
        from toktier_jax.errors import InputError
        from toktier_jax.sampling.request import LIMITS, check_number

        value: float | str = text
        if "_" not in text:  # which Python's own numbers may have
            with contextlib.suppress(ValueError):
                value = int(text) if isinstance(LIMITS[name][0], int) else float(text)
        try:
            check_number(name, value)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return value  # type: ignore[return-value]  # checked above

    return number


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, 0 or more")
    return int(text)


def _heal(text: str) -> int | str:
    if text == "auto":
        return text
    if not 0 < (tokens := _whole(text)) < 1000:
        raise argparse.ArgumentTypeError(f'{text!r}: expected a number of tokens from 1 to 999, or "auto"')
    return tokens


def _stop(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("an empty text ends everything; leave the option out")
    return text


@contextlib.contextmanager
def _option_names() -> Iterator[None]:
    """Says what is missing as the command line spells it."""
    from toktier_jax.errors import InputError, UnsupportedError

    try:
        yield
    except (InputError, UnsupportedError) as error:
        text = re.sub(r'use boundary="(\w+)"', r"use --boundary \1", str(error))
        raise type(error)(text.replace("context_start=", "--context-start ")) from error


@_option_names()
def complete(arguments: argparse.Namespace) -> int:
    from toktier_jax import models, sampling

    lm, tok = models.load(arguments.model), _tokenizer(arguments)
    events = sampling.stream(
        lm,
        tok,
        _prompt(arguments.prompt),
        boundary=arguments.boundary,
        heal_tokens=arguments.heal_tokens,
        context_start=arguments.context_start,
        max_tokens=arguments.max_tokens,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        repetition_penalty=arguments.repetition_penalty,
        seed=arguments.seed,
        stop=arguments.stop,
    )
    for event in events:
        print(event.text, end="", flush=True)
    print()
    return 0


@_option_names()
def boundary(arguments: argparse.Namespace) -> int:
    from toktier_jax.sampling.explain import explain_boundary

    lm = None
    if arguments.model is not None:
        from toktier_jax import models

        lm = models.load(arguments.model)
    print(
        explain_boundary(
            _tokenizer(arguments),
            _prompt(arguments.prompt),
            lm,
            context_start=arguments.context_start,
            top=arguments.top,
        )
    )
    return 0


def _tokenizer(arguments: argparse.Namespace) -> Tokenizer:
    if arguments.tokenizer is not None:
        return load(arguments.tokenizer)
    return load("default" if arguments.model is None else str(Path(arguments.model)))


def _prompt(text: str) -> bytes:
    return read("-") if text == "-" else text.encode("utf-8", "surrogateescape")
