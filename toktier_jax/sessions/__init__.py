"""Token sessions: the ids of a growing text, kept equal to a full encode for the price of what changed.

Pure Python and numpy; knows a tokenizer only as an Engine (engine.py).
"""

from toktier_jax.sessions.engine import Engine, EngineInfo, Window
from toktier_jax.sessions.patch import Patch
from toktier_jax.sessions.policy import Policy
from toktier_jax.sessions.session import Session
from toktier_jax.sessions.shadow import Mismatch, ShadowVerifier
from toktier_jax.sessions.store import SessionStore

__all__ = [
    "Engine",
    "EngineInfo",
    "Mismatch",
    "Patch",
    "Policy",
    "Session",
    "SessionStore",
    "ShadowVerifier",
    "Window",
]
