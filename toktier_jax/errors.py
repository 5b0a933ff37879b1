"""The one error hierarchy. Every message says what is wrong, where, and what to do."""


class ToktierError(Exception):
    """Base class of every error raised by toktier_jax."""


class InputError(ToktierError, ValueError):
    """The caller's text, ids or arguments are invalid (lone surrogate, bad UTF-8, wrong type, id out of range)."""


class SpecError(ToktierError):
    """A tokenizer or model file is damaged, contradictory or of an unknown format."""


class UnsupportedError(ToktierError):
    """The request names something that the device path or this machine cannot do.

    `reason` is the message without the place, for those who count.
    """

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = message if reason is None else reason


class CapacityError(ToktierError):
    """A result does not fit the capacity that the caller fixed."""


class SessionError(ToktierError):
    """Base class of session and store errors."""


class RevisionConflict(SessionError):
    """Another process changed the stored session since this store last read it; nothing was changed."""


class UnknownSession(SessionError):
    """No session of that name is in the store."""


class ClosedSession(SessionError):
    """The session handle or its store was closed."""
