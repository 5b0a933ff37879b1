"""Tokenizer: the façade. Checks input, has it encoded by one of the routes, and holds no algorithm."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import importlib.metadata
import importlib.resources
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import jax
import numpy as np

from toktier_jax.engine import DeviceEngine, open_device
from toktier_jax.errors import CapacityError, InputError
from toktier_jax.host import decoders, fork, inputs, layout
from toktier_jax.host.assemble import Assembler
from toktier_jax.host.decoders import StreamDecoder
from toktier_jax.host.reference import Reference, Special, load_reference
from toktier_jax.host.specials import find_special
from toktier_jax.host.vocabulary import Vocabulary, build_vocabulary
from toktier_jax.program.load import load_program
from toktier_jax.results import Encoding, Explain, Packed, TokenBatch
from toktier_jax.routes import Routes
from toktier_jax.spec import source as sources
from toktier_jax.spec.types import TokenizerSpec
from toktier_jax.types import EncodeProgram

T = TypeVar("T")
Text = str | bytes


class Tokenizer:
    """An immutable, thread-safe, picklable tokenizer: the ids of its reference, or the reason why it asked it."""

    def __init__(self, source: sources.Source) -> None:
        """Use the `from_…` constructors."""
        if not isinstance(source, sources.Source):
            raise InputError(f"a Tokenizer is made by from_file, from_pretrained and so on, not of {source!r:.80}")
        self._source = source
        loaded = load_program(source.fingerprint, lambda: source.spec)
        self._spec = loaded.outline
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}
        self._routes = Routes(source.name, open_device(loaded), loaded.refusal)
        self._assembler = self._assembler_of(self._spec, lambda: self._reference)

    # ---- constructors: each raises SpecError, saying what is wrong where; InputError for another type ----

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """A tokenizer.json, a tekken.json or the tokenizer inside a GGUF, and the chat files beside it."""
        return cls(sources.from_file(inputs.check_path(path)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Tokenizer:
        """The content of such a file."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InputError(f"data must be bytes, not {type(data).__name__}; use from_file for a path")
        return cls(sources.from_bytes(bytes(data)))

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike[str]) -> Tokenizer:
        """A local directory, else a hub id: the only constructor that may use the network."""
        return cls(sources.from_pretrained(inputs.check_path(name)))

    @classmethod
    def from_tokenizers(cls, obj: Any) -> Tokenizer:
        """A loaded `tokenizers.Tokenizer`, or a fast tokenizer of transformers with its chat template."""
        return cls(sources.from_object(obj))

    @classmethod
    def from_tiktoken(cls, encoding: Any) -> Tokenizer:
        """A `tiktoken.Encoding`."""
        return cls(sources.from_encoding(encoding))

    @classmethod
    def default(cls) -> Tokenizer:
        """The embedded tokenizer: byte-level BPE of 32 K tokens. Needs no network."""
        asset = importlib.resources.files("toktier_jax") / "assets" / "default.json.gz"
        return cls(sources.from_bytes(gzip.decompress(asset.read_bytes()), "default"))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._source,)

    def __repr__(self) -> str:
        return f"Tokenizer({self._source.name!r}, {self._source.kind}, {self.vocab_size} tokens)"

    # ---- encode ----

    def encode(
        self,
        text: Text,
        add_special_tokens: bool = True,
        special: Literal["parse", "text", "error"] = "parse",
        route: Literal["auto", "xla", "reference"] = "auto",
    ) -> Encoding:
        """The ids and spans of a text (str, or UTF-8 bytes).

        `special`: special tokens written in the text become ids ("parse"), are ordinary text ("text"), or raise
        ("error"). `route`: "auto" sends texts of less than TINY bytes, and what the device path cannot do, to the
        reference; "xla" raises UnsupportedError instead. Invalid input raises InputError with the offset.
        """
        return self._encode(text, self._assembler, add_special_tokens, special, route)

    def encode_iter(
        self,
        texts: Iterable[Text],
        add_special_tokens: bool = True,
        special: Literal["parse", "text", "error"] = "parse",
        route: Literal["auto", "xla", "reference"] = "auto",
    ) -> Iterator[Encoding]:
        """The Encodings of texts one after the other, with no more than one text in memory."""
        return (self.encode(text, add_special_tokens, special, route) for text in inputs.check_iterable(texts))

    def encode_batch(
        self,
        texts: Sequence[Text],
        length: int | None = None,
        pad_id: int | None = None,
        side: Literal["left", "right"] | None = None,
        overflow: Literal["raise", "status"] = "raise",
        add_special_tokens: bool = True,
        special: Literal["parse", "text", "error"] = "parse",
        route: Literal["auto", "xla", "reference"] = "auto",
    ) -> TokenBatch:
        """Padded rows on the device.

        `length` is by default what the file's padding says, else that of the longest row; `pad_id` and `side` are the
        file's, else 0 and right. A row that does not fit `length` raises CapacityError, or with `overflow="status"`
        has status 1.
        """
        fork.check_fork()
        inputs.check_choice("overflow", overflow, ("raise", "status"))
        length = None if length is None else inputs.check_count("length", length)
        pad_id = None if pad_id is None else inputs.check_id("pad_id", pad_id)
        side = None if side is None else inputs.check_choice("side", side, ("left", "right"))
        rows = self._rows(inputs.check_texts(texts), add_special_tokens, special, route)
        batch = layout.batch(rows, self._spec.padding, length=length, pad_id=pad_id, side=side)
        if overflow == "raise" and batch.status.any():
            row = int(np.argmax(batch.status))
            raise CapacityError(
                f"row {row} has {batch.lengths[row]} ids and length is {length}; "
                'raise length, or pass overflow="status" to have such rows marked'
            )
        return TokenBatch(*(jax.numpy.asarray(part) for part in batch))

    def pack(
        self,
        docs: Sequence[Text],
        length: int,
        add_special_tokens: bool = True,
        special: Literal["parse", "text", "error"] = "parse",
        route: Literal["auto", "xla", "reference"] = "auto",
    ) -> Packed:
        """Documents laid end to end in rows of `length`, for training. See Packed."""
        fork.check_fork()
        length = inputs.check_count("length", length)
        rows = self._rows(inputs.check_texts(docs), add_special_tokens, special, route)
        padding = self._spec.padding
        packed = layout.pack(rows, length, 0 if padding is None else padding.pad_id)
        return Packed(*(jax.numpy.asarray(part) for part in packed))

    def count(
        self,
        text: Text,
        add_special_tokens: bool = True,
        special: Literal["parse", "text", "error"] = "parse",
        route: Literal["auto", "xla", "reference"] = "auto",
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """The number of ids that `encode` gives, padding not counted.

        `progress` is called with the bytes done so far, after each block of a text on the device path.
        """
        return len(self._rows([inputs.check_text(text)], add_special_tokens, special, route, progress)[0])

    # ---- decode ----

    def decode(self, ids: Sequence[int] | np.ndarray | jax.Array, skip_special_tokens: bool = True) -> str:
        """The reference's text, U+FFFD included. Ids out of range raise InputError."""
        checked = inputs.check_ids(ids, self._id_limit)
        return decoders.decode(self._vocabulary, checked, skip_special_tokens=skip_special_tokens)

    def decode_bytes(self, ids: Sequence[int] | np.ndarray | jax.Array) -> bytes:
        """The bytes of the text without loss, special tokens included."""
        return decoders.decode_bytes(self._vocabulary, inputs.check_ids(ids, self._id_limit))

    def stream_decoder(self, skip_special_tokens: bool = True) -> StreamDecoder:
        """A decoder for ids as they come, which never shows half a character. For one thread."""
        return StreamDecoder(self._vocabulary, skip_special_tokens=skip_special_tokens)

    def token_bytes(self, id: int) -> bytes:
        """The bytes of the text that one token stands for."""
        return self._vocabulary.token_bytes(inputs.check_ids([id], self._id_limit)[0])

    # ---- chat ----

    def apply_chat_template(self, messages: Any, **options: Any) -> Any:
        """As in transformers: the same options, defaults and results (`tokenize=False` gives the text).

        Lists of ids are returned instead of its classes. See host/chat.py.
        """
        from toktier_jax.host import chat  # with jinja2, which nothing else needs

        files = self._source.chat
        return chat.apply(files.templates, files.special_tokens, self._encode_chat, messages, **options)

    # ---- about ----

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added tokens included."""
        return self._vocabulary.size

    @property
    def fingerprint(self) -> str:
        """sha256, hex, of the file's bytes (of a GGUF's metadata, of an encoding's content)."""
        return self._source.fingerprint

    @property
    def spec(self) -> TokenizerSpec:
        """The file as plain values."""
        return self._source.spec

    @property
    def reference(self) -> Any:
        """The `tokenizers.Tokenizer` or `tiktoken.Encoding` that defines the right ids."""
        return self._reference.shown

    @property
    def program(self) -> EncodeProgram:
        """For `toktier_jax.ops`. Raises UnsupportedError where there is none."""
        device = self._routes.need_device()
        fork.check_fork()
        return device.program

    def warmup(self) -> None:
        """Loads the reference, and compiles ahead what `encode` and `count` need at every length.

        `encode_batch` and `pack` cut their blocks by another executable, compiled when a block is first full of texts.
        """
        _ = self._reference
        if self._routes.device is not None:
            fork.check_fork()
            self._routes.device.warmup()

    def explain(self) -> Explain:
        """What runs where, and why, so far."""
        device, refusal = self._routes.device, self._routes.refusal
        calls, fallbacks = self._routes.counts()
        return Explain(
            name=self._source.name,
            source=self._source.kind,
            fingerprint=self.fingerprint,
            vocab_size=self.vocab_size,
            route="reference" if device is None else "xla",
            device=() if device is None else tuple(device.steps),
            reference=() if refusal is None else (refusal,),
            calls=calls,
            fallbacks=fallbacks,
            compiles={} if device is None else dict(device.compiles),
            versions=_versions(),
        )

    # ---- inside ----

    def _encode(
        self, text: Text, assembler: Assembler, add_special_tokens: bool, special: str, route: str
    ) -> Encoding:
        value, data = inputs.check_text(text)
        parse = self._check_special([value], special)

        def on_device(device: DeviceEngine) -> Encoding:
            found = device.encode(data, parse)
            return assembler.from_device(value, data, found, add_special_tokens=add_special_tokens, special=parse)

        def on_reference(reason: str) -> Encoding:
            return assembler.from_reference(value, add_special_tokens=add_special_tokens, special=parse, reason=reason)

        return self._routes.run(route, len(data), on_device, on_reference)

    def _rows(
        self,
        texts: list[tuple[str, bytes]],
        add_special_tokens: bool,
        special: str,
        route: str,
        progress: Callable[[int], object] | None = None,
    ) -> list[np.ndarray]:
        """Ids of each text with template and truncation, without padding: int32 [n] each."""
        parse = self._check_special((value for value, _ in texts), special)
        rows: list[np.ndarray] = []
        together = self._routes.run_together(route, [data for _, data in texts], parse)
        for (value, data), ids in zip(texts, together, strict=True):
            if ids is None:
                ids = self._routes.run(
                    route,
                    len(data),
                    lambda device, data=data: device.encode(data, parse, progress).ids,
                    lambda reason, value=value: self._reference.encode_many([value], special=parse)[0],
                )
            rows.append(self._assembler.frame_ids(ids, add_special_tokens=add_special_tokens))
        return rows

    def _encode_chat(self, text: str) -> Encoding:
        """Without the file's truncation and padding, which transformers switches off for chats."""
        spec = dataclasses.replace(self._spec, truncation=None, padding=None)
        assembler = self._once("chat", lambda: self._assembler_of(spec, lambda: self._reference.unlimited()))
        return self._encode(text, assembler, False, "parse", "auto")

    def _assembler_of(self, spec: TokenizerSpec, reference: Callable[[], Reference]) -> Assembler:
        made = functools.cache(reference)
        return Assembler(spec, made, lambda: self._vocabulary, lambda: self._source.spec.model)

    def _check_special(self, texts: Iterable[str], special: str) -> Special:
        """How to read special tokens in texts; raises InputError where one holds one and `special` is "error"."""
        if inputs.check_choice("special", special, ("parse", "text", "error")) == "text":
            return "text"
        for text in texts if special == "error" else ():
            if (at := find_special(text, self._spec, lambda: self._reference)) is not None:
                raise InputError(
                    f"text holds a special token at character {at}: {text[at : at + 20]!r}…; remove it, or pass "
                    'special="text" to encode it as text or special="parse" to encode it as itself'
                )
        return "parse"

    @property
    def _reference(self) -> Reference:
        return self._once("reference", lambda: load_reference(self._source))

    @property
    def _vocabulary(self) -> Vocabulary:
        return self._once(
            "vocabulary", lambda: build_vocabulary(self._source.spec, lambda text: self._reference.normalize(text))
        )

    @property
    def _id_limit(self) -> int:
        return len(self._vocabulary.strings)

    def _once(self, key: str, make: Callable[[], T]) -> T:
        """Makes a part when it is first needed, once for all threads."""
        if key not in self._made:
            with self._lock:
                if key not in self._made:
                    self._made[key] = make()
        return self._made[key]


def _versions() -> dict[str, str]:
    found = {}
    for package in ("toktier-jax", "jax", "jaxlib", "tokenizers", "tiktoken", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
