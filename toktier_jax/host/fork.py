"""Tells a forked child that JAX, which its parent had started, does not work in it: calls would hang."""

from __future__ import annotations

import os
import sys

from toktier_jax.errors import UnsupportedError

_forked_after_jax = False


def check_fork() -> None:
    """Raises UnsupportedError in a child that was forked after JAX had started."""
    if _forked_after_jax:
        raise UnsupportedError(
            "this process was forked after JAX had started, and JAX hangs in such a child; start workers with "
            'multiprocessing\'s "spawn" or "forkserver", fork before the first use, or encode text by text with '
            'route="reference"'
        )


def _note_fork() -> None:
    global _forked_after_jax
    bridge = sys.modules.get("jax._src.xla_bridge")  # there is no public way to ask without starting a backend
    started = getattr(bridge, "backends_are_initialized", None)
    _forked_after_jax = started is not None and started()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
