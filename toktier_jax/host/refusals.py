"""What the host's parts raise to each other, or with one wording, where a text is not for them. No public classes."""

from __future__ import annotations

from toktier_jax.errors import UnsupportedError


class QuickCheckFailed(Exception):
    """The text is not in the normal form, and has to be normalized first. Never reaches a caller of the package."""


def beyond_program() -> UnsupportedError:
    """What every path raises for text that only the reference can encode."""
    return UnsupportedError("the text holds characters that only the reference can handle")
