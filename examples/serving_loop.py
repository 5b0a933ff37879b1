"""An agent conversation on a small model: time to first token with and without sessions and a reused KV cache.

    python examples/serving_loop.py [--turns 6] [--model PATH.gguf]

Without --model a random model of two layers is used, so that the tokenizer's share can be seen.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from toktier_jax import SessionStore, Tokenizer, models, sampling

TOOL = "tool: ls src\nsrc/main.py src/util.py src/parser.py\nresult: 3 files, {n} lines changed\n"


def main(argv: Sequence[str] | None = None) -> list[dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--model", help="a GGUF file or a model directory")
    parser.add_argument("--context-start", type=int, default=0)
    arguments = parser.parse_args(argv)
    if arguments.model:
        tok, lm = Tokenizer.from_file(arguments.model), models.load(arguments.model)
    else:
        tok = Tokenizer.default()
        lm = small_model(tok.vocab_size)
    converse(lm, tok, arguments.turns, arguments.context_start)  # compiles what the second time needs
    rows = converse(lm, tok, arguments.turns, arguments.context_start)
    print("turn  prompt ids  new ids  first token, ms: all anew  sessions and reuse")
    for number, row in enumerate(rows):
        print(f"{number:4}  {row['ids']:10}  {row['new']:7}  {1e3 * row['fresh']:26.1f}  {1e3 * row['reused']:18.1f}")
    return rows


def converse(lm: Any, tok: Any, turns: int, start: int) -> list[dict[str, float]]:
    """Each turn appends a tool's output to the transcript and asks for a token; both ways give the same one."""
    transcript = "You are a coding agent. Read the files, then answer.\n" * 40
    cache = sampling.PrefixCache(lm, 4096)
    session = SessionStore(tok).open("agent")
    options: dict[str, Any] = {"boundary": "exact", "max_tokens": 1, "temperature": 0.0, "context_start": start}
    rows = []
    for turn in range(turns):
        transcript += TOOL.format(n=turn)
        begin = time.perf_counter()
        ids = tok.encode(transcript, False).ids
        anew = sampling.generate(lm, tok, ids, **options)
        fresh = time.perf_counter() - begin
        begin = time.perf_counter()
        session.update(transcript)
        ids = session.ids
        again = sampling.generate(lm, tok, ids, reuse=cache, **options)
        reused = time.perf_counter() - begin
        assert anew.ids == again.ids
        new = len(ids) - max(0, again.boundary.reused - 1)  # the cache also holds the id that the context starts with
        rows.append({"ids": len(ids), "new": new, "fresh": fresh, "reused": reused})
        transcript += again.text
    return rows


def small_model(vocab_size: int) -> Any:
    config = models.DecoderConfig(
        vocab_size=vocab_size, width=128, heads=4, kv_heads=2, head_dim=32, hidden=256, context_length=4096,
        windows=(0, 0), rope=models.rope_frequencies(1e4, 32), rope_window=models.rope_frequencies(1e4, 32),
        norm_eps=1e-5, query_scale=32**-0.5,
    )  # fmt: skip
    return models.random_lm(config)


if __name__ == "__main__":
    main()
