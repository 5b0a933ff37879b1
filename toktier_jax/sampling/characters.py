"""UTF-8 on the host, of texts that may end inside a character: what is unfinished, and many rows of bytes decoded."""

from __future__ import annotations

import numpy as np

from toktier_jax.errors import InputError


def unfinished(data: bytes, strict: bool = True, what: str = "the prompt") -> bytes:
    """The last bytes of `data` that begin a character and do not end it.

    If `strict`, raises InputError, which names the data `what`, for other invalid UTF-8.
    """
    part = b""
    for count in range(1, min(3, len(data)) + 1):
        byte = data[-count]
        if byte & 0xC0 != 0x80:
            if byte >= 0xC0 and size_of(byte) > count:
                part = data[-count:]
            break
    if strict:
        try:
            data[: len(data) - len(part)].decode()
            if part and not possible(part):
                raise UnicodeDecodeError("utf-8", data, len(data) - len(part), len(data), "no character begins so")
        except UnicodeDecodeError as error:
            raise InputError(f"{what} is not UTF-8 at byte {error.start}, and no bytes after it make it so") from None
    return part


def possible(part: bytes) -> bool:
    """Whether some character begins with these bytes, which are no whole one."""
    if part[0] < 0xC2 or part[0] > 0xF4:
        return False
    if len(part) == 1:
        return True
    least = {0xE0: 0xA0, 0xF0: 0x90}.get(part[0], 0x80)
    most = {0xED: 0x9F, 0xF4: 0x8F}.get(part[0], 0xBF)
    return least <= part[1] <= most


def code_points(part: bytes) -> range:
    """The code points, surrogates among them, of the characters that begin with these bytes."""
    size = size_of(part[0])
    value = part[0] & (0x7F >> size)
    for byte in part[1:]:
        value = value << 6 | byte & 0x3F
    missing = size - len(part)
    low = max(value << 6 * missing, {1: 0, 2: 0x80, 3: 0x800, 4: 0x10000}[size])
    return range(low, min((value + 1) << 6 * missing, 0x110000))


def size_of(lead: int) -> int:
    """Bytes of a character by its first one."""
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def decode_rows(data: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Code points at first bytes (0 elsewhere) [R, n], whether a byte continues a character [R, n], whether a row is
    valid UTF-8 [R], for bytes [R, n] of which each row has its first `lengths` [R]."""
    size = data.shape[1]
    wide = np.pad(data, ((0, 0), (0, 3))).astype(np.int32)
    b0, b1, b2, b3 = (wide[:, k : k + size] for k in range(4))
    inside = (b0 & 0xC0) == 0x80
    codes = np.select(
        [b0 < 0x80, b0 < 0xC0, b0 < 0xE0, b0 < 0xF0],
        [b0, 0, (b0 & 31) << 6 | b1 & 63, (b0 & 15) << 12 | (b1 & 63) << 6 | b2 & 63],
        (b0 & 7) << 18 | (b1 & 63) << 12 | (b2 & 63) << 6 | b3 & 63,
    )
    lead = np.select([b0 < 0x80, b0 < 0xC0, b0 < 0xE0, b0 < 0xF0], [0, 0, 1, 2], 3)
    follows = np.zeros((len(data), size + 3), np.int32)
    for k in (1, 2, 3):
        follows[:, k : k + size] += lead >= k
    least = np.array([0, 0x80, 0x800, 0x10000])[lead]
    bad = (follows[:, :size] != inside) | ((lead > 0) & ((codes < least) | (codes > 0x10FFFF)))
    bad |= (lead > 0) & (codes >= 0xD800) & (codes < 0xE000)
    bad |= follows[:, :size].astype(bool) & (np.arange(size)[None, :] >= lengths[:, None])
    return np.where(codes > 0x10FFFF, 0, codes), inside, ~bad.any(axis=1) & ~follows[:, size:].any(axis=1)
