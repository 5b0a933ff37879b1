"""Serves many agents from one process with asyncio: each request re-sends its transcript, each answer is a patch.

    python examples/serving_sessions.py

The store's calls take well under a millisecond for an append, but a cold start takes longer, so all of them run in
threads; sessions do not wait for each other.
"""

from __future__ import annotations

import asyncio
import random

from toktier_jax import Patch, SessionStore, Tokenizer

AGENTS, TURNS = 16, 8


async def handle(store: SessionStore, agent: str, transcript: str) -> Patch:
    """What a server does with a request. The model's cache stays valid for the first `patch.keep` ids."""

    def work() -> Patch:
        with store.open(agent) as session:
            return session.update(transcript)

    return await asyncio.to_thread(work)


async def run_agent(store: SessionStore, agent: str) -> int:
    """An agent that talks for a while. Returns how many ids its KV cache saved."""
    draw = random.Random(agent)
    transcript, saved = "", 0
    for turn in range(TURNS):
        words = " ".join(draw.choices(("file", "error", "42", "return", "self.value", "\n", "build"), k=200))
        transcript += f"<turn {turn}>\n{words}\n"
        patch = await handle(store, agent, transcript)
        saved += patch.keep
        await asyncio.sleep(0.01)
    return saved


async def main() -> None:
    with SessionStore(Tokenizer.default(), shadow=0.05) as store:
        saved = await asyncio.gather(*(run_agent(store, f"agent-{number}") for number in range(AGENTS)))
        stats = store.stats()
        print(f"{AGENTS} agents, {AGENTS * TURNS} requests: {sum(saved):,} ids did not have to be computed again")
        print(f"changes: {stats['changes']}, verified in the background: {stats['shadow']}")


if __name__ == "__main__":
    asyncio.run(main())
