"""Finds a tokenizer in a file, a directory, the hub or a loaded object, and says how to read it. Encodes nothing."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from toktier_jax.errors import SpecError
from toktier_jax.spec import types
from toktier_jax.spec.fields import parse_object
from toktier_jax.spec.gguf import gguf_to_tokenizer_json, special_tokens
from toktier_jax.spec.gguf_metadata import MAGIC, read_metadata
from toktier_jax.spec.tekken import tekken_to_tokenizer_json
from toktier_jax.spec.tiktoken import read_encoding
from toktier_jax.spec.tokenizer_json import read_tokenizer_json

Kind = Literal["tokenizer.json", "tiktoken", "tekken", "gguf"]

_EXPECTED = "expected a tokenizer.json, a tekken.json or a GGUF"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_HUB_FILES = ("tokenizer.json", "tekken.json")
_HUB_EXTRAS = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


@dataclass(frozen=True)
class ChatFiles:
    """What the files beside a tokenizer say about chats: templates by name (`default` first of all), named tokens."""

    templates: dict[str, str] = field(default_factory=dict)
    special_tokens: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Source:
    """A tokenizer as it was found: its raw content, not yet read.

    `data` is the content of the file, the metadata part of a GGUF, or a `tiktoken.Encoding`.
    """

    kind: Kind
    name: str
    data: Any
    chat: ChatFiles = ChatFiles()

    @cached_property
    def fingerprint(self) -> str:
        """sha256, hex: of the file's bytes, of a GGUF's metadata, of an encoding's content."""
        return self.spec.fingerprint if self.kind == "tiktoken" else hashlib.sha256(self.data).hexdigest()

    @cached_property
    def tokenizer_json(self) -> bytes:
        """The bytes from which `tokenizers` builds the reference. Not for tiktoken."""
        if self.kind == "tekken":
            return tekken_to_tokenizer_json(self.data)
        if self.kind == "gguf":
            return gguf_to_tokenizer_json(read_metadata(self.data, self.name)[0])
        assert self.kind == "tokenizer.json"
        return self.data

    @cached_property
    def spec(self) -> types.TokenizerSpec:
        """The tokenizer as plain values; raises SpecError."""
        if self.kind == "tiktoken":
            return read_encoding(self.data)
        return read_tokenizer_json(self.tokenizer_json, file=self.name, source=self.kind, fingerprint=self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        return Source, (self.kind, self.name, self.data, self.chat)


def from_bytes(data: bytes, name: str = "tokenizer.json", chat: ChatFiles | None = None) -> Source:
    """The tokenizer in `data`, its format recognized by the content. Raises SpecError for an unknown one."""
    if data[:4] == MAGIC:
        metadata, end = read_metadata(data, name)
        return Source("gguf", name, bytes(data[:end]), chat or _gguf_chat(metadata))
    # The whole is parsed when the specification is read: never, where a compiled program is in the cache
    if b'"default_num_special_tokens"' in data and b'"token_bytes"' in data:
        return Source("tekken", name, data, chat or ChatFiles())
    if data.lstrip()[:1] == b"{" and b'"model"' in data:
        return Source("tokenizer.json", name, data, chat or ChatFiles())
    keys = list(parse_object(data, name).value)
    shown = f"its keys ({', '.join(keys[:5])}{', …' if len(keys) > 5 else ''}) are those" if keys else "{} is"
    raise SpecError(f"{name}: {shown} of no known format; {_EXPECTED}")


def from_file(path: str | os.PathLike[str]) -> Source:
    """The tokenizer in the file at `path`, with the chat files beside a tokenizer.json or tekken.json."""
    path = Path(path)
    try:
        if path.is_dir():
            raise SpecError(f"{path} is a directory; use from_pretrained for directories")
        with path.open("rb") as file:
            if file.read(4) == MAGIC:
                data = MAGIC + _read_gguf(file, str(path))
            else:
                file.seek(0)
                data = file.read()
    except OSError as error:
        hub = "; a hub id is for from_pretrained" if len(path.parts) == 2 and not path.is_absolute() else ""
        raise SpecError(f"cannot read {path}: {error.strerror}; {_EXPECTED}{hub}") from error
    beside = _read_chat(path.parent) if path.name in _HUB_FILES else None
    return from_bytes(data, str(path), beside)


def from_directory(path: str | os.PathLike[str]) -> Source:
    """The tokenizer.json, else the tekken.json, else the only GGUF in a directory."""
    path = Path(path)
    found = [path / name for name in _HUB_FILES if (path / name).is_file()] or sorted(path.glob("*.gguf"))
    if not found:
        raise SpecError(f"{path} holds no tokenizer.json, tekken.json or GGUF")
    if found[0].suffix == ".gguf" and len(found) > 1:
        raise SpecError(f"{path} holds {len(found)} GGUF files; use from_file with one of them")
    return from_file(found[0])


def from_hub(name: str) -> Source:
    """The tokenizer files of a hub repository, by huggingface_hub and its cache. Raises SpecError, also offline."""
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        path = huggingface_hub.snapshot_download(name, allow_patterns=[*_HUB_FILES, *_HUB_EXTRAS])
    except HFValidationError as error:
        raise SpecError(f"{name!r} is neither a local directory nor a hub id: {error}") from error
    except HfHubHTTPError as error:
        raise SpecError(f"the hub refused {name!r}: {error}") from error
    except Exception as error:
        # Which class it is depends on the version and on the transport below it
        offline = " (HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else ""
        raise SpecError(
            f"{name!r} is no local file or directory, and the hub cannot be reached{offline} while its files are not "
            f"in the local cache: {type(error).__name__}; pass a local directory, or fetch the files first"
        ) from error
    return from_directory(path)


def _kind_of(path: str | os.PathLike[str]) -> Literal["directory", "file"] | None:
    try:
        return "directory" if Path(path).is_dir() else "file" if Path(path).exists() else None
    except OSError:  # a name that no file can have
        return None


def from_pretrained(name: str | os.PathLike[str]) -> Source:
    """A local directory, else a hub id."""
    kind = _kind_of(name)
    if kind == "directory":
        return from_directory(name)
    if not isinstance(name, str) or kind == "file":
        raise SpecError(f"{os.fspath(name)!r} is not a directory; use from_file for files")
    return from_hub(name)


def from_object(obj: Any) -> Source:
    """A `tokenizers.Tokenizer`, or a fast tokenizer of transformers with its chat template."""
    backend = getattr(obj, "backend_tokenizer", obj)
    if not hasattr(backend, "to_str"):
        raise SpecError(
            f"{type(obj).__name__} is neither a tokenizers.Tokenizer nor a fast tokenizer of transformers; "
            "slow tokenizers have to be converted first"
        )
    try:
        data = backend.to_str().encode()
    except Exception as error:
        raise SpecError(f"the {type(obj).__name__} cannot be written as a tokenizer.json: {error}") from error
    chat = ChatFiles()
    if backend is not obj:
        chat = ChatFiles(_templates(getattr(obj, "chat_template", None)), dict(getattr(obj, "special_tokens_map", {})))
    return Source("tokenizer.json", type(obj).__name__, data, chat)


def from_encoding(encoding: Any) -> Source:
    """A `tiktoken.Encoding`."""
    return Source("tiktoken", getattr(encoding, "name", "tiktoken"), encoding)


def _read_gguf(file: Any, name: str) -> bytes:
    """The metadata of an open GGUF after its magic, read in growing pieces: the tensors behind it can be large."""
    data = file.read(1 << 22)
    while True:
        more = file.read(len(data))
        try:
            return data[: read_metadata(MAGIC + data, name)[1] - len(MAGIC)]
        except SpecError:
            if not more:
                raise
        data += more


def _gguf_chat(metadata: dict[str, Any]) -> ChatFiles:
    template = metadata.get("tokenizer.chat_template")
    return ChatFiles(_templates(template if isinstance(template, str) else None), special_tokens(metadata))


def _templates(value: Any) -> dict[str, str]:
    """A template, or several as `{name: template}` or `[{"name": …, "template": …}]`, by name."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    if isinstance(value, list):
        return {str(item["name"]): str(item["template"]) for item in value}
    return {str(name): str(template) for name, template in value.items()}


def _read_chat(directory: Path) -> ChatFiles:
    """tokenizer_config.json, special_tokens_map.json and chat_template.jinja (which wins), where they are."""
    config = _read_json(directory / "tokenizer_config.json")
    legacy = _read_json(directory / "special_tokens_map.json")
    try:
        templates = _templates(config.get("chat_template"))
    except (KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"{directory / 'tokenizer_config.json'}: chat_template: not a template: {error!r}") from error
    jinja = directory / "chat_template.jinja"
    if jinja.is_file():
        templates["default"] = jinja.read_text(encoding="utf-8")
    for extra in sorted((directory / "additional_chat_templates").glob("*.jinja")):
        templates[extra.stem] = extra.read_text(encoding="utf-8")
    named = {name: config.get(name) or legacy.get(name) for name in _NAMED}
    tokens = {name: value["content"] if isinstance(value, dict) else value for name, value in named.items() if value}
    return ChatFiles(templates, tokens)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return parse_object(path.read_bytes(), str(path)).value
