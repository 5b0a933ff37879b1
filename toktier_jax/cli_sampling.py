"""The verbs `complete` and `boundary` of the command line. Thin calls into toktier_jax.sampling."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toktier_jax.tokenizer import Tokenizer

Add = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


def add_sampling(add: Add) -> None:
    """Adds both verbs to the parser, by the command line's own `add`."""
    model = "a GGUF file or a directory with config.json and safetensors (its tokenizer is used, too)"
    start = "an id that the context begins with, where the tokenizer adds no BOS (SmolLM2: 0)"

    sub = add("complete", complete, "go on with a text, from the text and not from its last token")
    sub.add_argument("prompt", help="the text, or - for stdin")
    sub.add_argument("-m", "--model", required=True, metavar="PATH", help=model)
    sub.add_argument("-t", "--tokenizer", metavar="NAME", help="another tokenizer than the model's own")
    sub.add_argument("--boundary", choices=("exact", "heal", "none"), default="exact")
    sub.add_argument("--heal-tokens", default="1", metavar="N|auto", help="tokens to go back for heal (default 1)")
    sub.add_argument("--context-start", type=int, metavar="ID", help=start)
    sub.add_argument("-n", "--max-tokens", type=int, default=64)
    sub.add_argument("--temperature", type=float, default=1.0)
    sub.add_argument("--top-k", type=int, default=0)
    sub.add_argument("--top-p", type=float, default=1.0)
    sub.add_argument("--min-p", type=float, default=0.0)
    sub.add_argument("--repetition-penalty", type=float, default=1.0)
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be repeated"
    )

    sub = add("boundary", boundary, "print the covers of a prompt's end: nodes, leaves, probabilities")
    sub.add_argument("prompt", help="the text, or - for stdin")
    sub.add_argument("-m", "--model", metavar="PATH", help=f"for probabilities: {model}")
    sub.add_argument("-t", "--tokenizer", metavar="NAME", help="default: the model's own, else the embedded one")
    sub.add_argument("--context-start", type=int, metavar="ID", help=start)
    sub.add_argument("--top", type=int, default=5, metavar="N", help="leaves to show of each node (default 5)")


def complete(arguments: argparse.Namespace) -> int:
    from toktier_jax import models, sampling
    from toktier_jax.errors import InputError

    heal: Any = arguments.heal_tokens
    if heal != "auto":
        if not heal.isdigit():
            raise InputError(f'--heal-tokens {heal}: expected a number of tokens or "auto"')
        heal = int(heal)
    lm, tok = models.load(arguments.model), _tokenizer(arguments)
    events = sampling.stream(
        lm,
        tok,
        _prompt(arguments.prompt),
        boundary=arguments.boundary,
        heal_tokens=heal,
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
    from toktier_jax.cli import load

    if arguments.tokenizer is not None:
        return load(arguments.tokenizer)
    return load("default" if arguments.model is None else str(Path(arguments.model)))


def _prompt(text: str) -> bytes:
    return sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
