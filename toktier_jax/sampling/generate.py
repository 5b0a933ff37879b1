"""`generate` and `stream`: a prompt's boundary repaired, then the decode loop. Holds no algorithm of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from toktier_jax.errors import InputError
from toktier_jax.sampling.constraints import Constraint
from toktier_jax.sampling.prefill import PrefixCache
from toktier_jax.sampling.prompt import EXACT
from toktier_jax.sampling.request import Request
from toktier_jax.sampling.results import Event
from toktier_jax.sampling.run import Run
from toktier_jax.sampling.vocabulary import TokenizerLike


def generate(
    lm: Any,
    tok: TokenizerLike,
    prompt: Any,
    *,
    boundary: Literal["exact", "heal", "none"] = EXACT,
    max_tokens: int = 128,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
    stop: str | bytes | Sequence[str | bytes] = (),
    logprobs: int = 0,
    constraint: Constraint | None = None,
    repetition_penalty: float = 1.0,
    heal_tokens: int | Literal["auto"] = 1,
    context_start: int | None = None,
    stop_ids: Sequence[int] | None = None,
    reuse: PrefixCache | None = None,
) -> Any:
    """A Completion of `prompt`, or a list of them for a list of prompts.

    prompt              str, bytes (it may end inside a character), ids, or a list of these. Ids are taken as they are
                        unless `boundary` is given
    boundary            "exact": from the model's distribution over text that begins with the prompt; "heal": the last
                        tokens are dropped and spelled again; "none": from the prompt's ids. See docs/sampling.md
    max_tokens          tokens with bytes past the prompt
    temperature         0 is greedy (for "exact": the most probable cover at temperature 1); the least is 1e-6
    top_k, top_p, min_p truncation, in this order; 0, 1 and 0 are off
    stop                strings at which the text ends; they are not part of it
    logprobs            how many alternatives to report a token
    constraint          see Constraint; it sees bytes past the prompt only
    heal_tokens         tokens to go back for "heal", or "auto"
    context_start       an id that every context begins with; needed where the tokenizer adds no BOS and the prompt's
                        covers reach its start
    stop_ids            ids that end the text (default: the special tokens that are known as ends of text)
    reuse               a PrefixCache of this model: only what it does not hold is prefilled (one prompt only)

    Raises InputError for arguments, prompts and models that cannot work together, NaN logits, and a constraint that
    allows nothing; UnsupportedError, by name, for tokenizers that have no exact covers.
    """
    options = dict(locals())
    run = Run(_request(options))
    run.decode()
    completions = run.completions()
    return completions if run.batch else completions[0]


def stream(lm: Any, tok: TokenizerLike, prompt: Any, **options: Any) -> Iterator[Event]:
    """As `generate`, but yields an Event a step and row; the last of a row has its `finish_reason` and `completion`.

    The texts of a row's events make its `Completion.text`. What may begin a stop string is held back.
    """
    run = Run(_request({"lm": lm, "tok": tok, "prompt": prompt, **options}))
    yield from run.events()


def _request(options: dict[str, Any]) -> Request:
    try:
        return Request(**options)
    except TypeError as error:
        raise InputError(str(error).replace("Request.__init__()", "generate()")) from None
