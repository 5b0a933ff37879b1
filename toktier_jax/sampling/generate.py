"""`generate` and `stream`: a prompt's boundary repaired, then the decode loop. Holds no algorithm of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from toktier_jax.errors import InputError
from toktier_jax.sampling.constraints import Constraint
from toktier_jax.sampling.prefill import PrefixCache
from toktier_jax.sampling.prepare import Prepared, prepare
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
    """A Completion of `prompt`, or a list of them for a list of prompts. All log-probs in it are in nats.

    lm                  a Model: see docs/models.md
    tok                 the Tokenizer that the model was trained with
    prompt              str, bytes (it may end inside a character), ids, or a list of these. Ids are taken as they are
                        unless `boundary` is given
    boundary            "exact": from the model's distribution over text that begins with the prompt; "heal": the last
                        tokens are dropped and spelled again; "none": from the prompt's ids. See docs/sampling.md
    max_tokens          tokens with bytes past the prompt
    temperature         0 is greedy (for "exact": the most probable cover at temperature 1); the least is 1e-6
    top_k, top_p, min_p truncation, in this order; 0, 1 and 0 are off
    seed                a whole number of 64 bits
    stop                strings at which the text ends; they are not part of it
    logprobs            how many alternatives to report a token (see TokenLogprob)
    constraint          see Constraint; it sees bytes past the prompt only
    repetition_penalty  divides positive logits of tokens seen before, multiplies negative ones (arXiv 1909.05858)
    heal_tokens         tokens to go back for "heal", or "auto"
    context_start       an id that every context begins with; needed where the tokenizer adds no BOS and the prompt's
                        covers reach its start. Not put before a prompt that begins with it, if it is special
    stop_ids            ids that end the text (default: the special tokens that are known as ends of text); they are
                        not part of it, but for one that spells the prompt's end and goes on
    reuse               a PrefixCache of this model: only what it does not hold is prefilled (one prompt only)

    Raises InputError for arguments, prompts and models that cannot work together, a prompt that fills the context or
    that the file truncates, NaN logits, and a constraint that allows nothing; UnsupportedError, by name, for tokenizers
    that have no exact covers ("exact"), and for those whose tokens change their neighbours' bytes ("exact", "heal",
    `stop`); CapacityError for a PrefixCache that is too short.
    """
    options = dict(locals())
    run = Run(prepare(_request(options, "generate()")))
    run.decode()
    completions = run.completions()
    return completions if run.batch else completions[0]


def stream(lm: Any, tok: TokenizerLike, prompt: Any, **options: Any) -> Iterator[Event]:
    """As `generate`, with the same options, but an iterator: an Event a step and row that runs.

    The last Event of a row has its `finish_reason` and `completion`; the texts of a row's events make its
    `Completion.text`. What may begin a stop string, and half a character, are held back.

    Arguments and prompts are checked at once: the call itself raises what `generate` raises for them, and InputError
    for an unknown option. The model is not called before the first event is asked for; from then on the iterator
    raises InputError for NaN logits and a constraint that allows nothing.
    """
    options = {"lm": lm, "tok": tok, "prompt": prompt, **options}
    return _events(prepare(_request(options, "stream()")))


def _events(ready: Prepared) -> Iterator[Event]:
    yield from Run(ready).events()


def _request(options: dict[str, Any], caller: str) -> Request:
    try:
        return Request(**options)
    except TypeError as error:
        raise InputError(str(error).replace("Request.__init__()", caller)) from None
