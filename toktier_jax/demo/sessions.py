"""The demo's agent: a transcript that grows turn by turn, its ids kept by a session, with a table as it goes."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from toktier_jax.sessions import Engine, SessionStore
from toktier_jax.tokenizer import Tokenizer

TURNS = 12
COLUMNS = "turn  characters  appended     ms  ids      equal"


def replay_agent(tokenizer: Tokenizer | Engine, source: str, *, turns: int = TURNS, out: TextIO = sys.stdout) -> bool:
    """Replays an agent that reads `source` piece by piece; prints a line a turn. True where all ids are equal."""
    print(f"\n== an agent's transcript, replayed turn by turn\n{COLUMNS}", file=out)
    text, equal = "", True
    with SessionStore(tokenizer) as store:
        session = store.open("agent", "warm up")
        session.update("")
        for turn in range(turns):
            part = source[turn * 1400 : (turn + 1) * 1400]
            reply = (
                f"<|im_start|>tool\n{part}<|im_end|>\n<|im_start|>assistant\nReading on, part {turn + 2}.<|im_end|>\n"
            )
            text += reply
            start = time.perf_counter()
            session.append(reply)
            seconds = time.perf_counter() - start
            expected = store.engine.reference_ids(text.encode()).tolist()
            same = session.ids.tolist() == [*store.engine.info.leading, *expected]
            equal = equal and same
            row = f"{turn + 1:4}  {len(text):10,}  {len(reply):8,}  {1e3 * seconds:5.2f}  {len(session):7,}"
            print(f"{row}  {'yes' if same else 'NO'}", file=out, flush=True)
    return equal
