"""Which encode a text or a window takes, by its size. Plain numbers; the engine follows them and counts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from toktier_jax.errors import InputError

Where = Literal["reference", "host", "device"]


@dataclass(frozen=True)
class Policy:
    """Sizes are bytes.

    reference_below    cold texts smaller than this go to the reference (0: none)
    cold_device_from   cold texts from this size on go through the device encode; None: on an accelerator from 256 Ki
    append_device_from windows of changes likewise, from where work is resumed; None: on an accelerator from 256 Ki
    """

    reference_below: int = 0
    cold_device_from: int | None = None
    append_device_from: int | None = None

    def __post_init__(self) -> None:
        """Raises InputError for what is no size."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError(f"Policy: {field.name} must be a number of bytes, not {value!r}")

    def cold(self, size: int, accelerator: bool) -> Where:
        """For a whole text."""
        if size < self.reference_below:
            return "reference"
        return self._large(size, self.cold_device_from, accelerator)

    def change(self, size: int, accelerator: bool) -> Where:
        """For the window of a change."""
        return self._large(size, self.append_device_from, accelerator)

    def _large(self, size: int, limit: int | None, accelerator: bool) -> Where:
        if limit is None:
            return "device" if accelerator and size >= 1 << 18 else "host"
        return "device" if size >= limit else "host"
