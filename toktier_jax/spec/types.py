"""TokenizerSpec: a tokenizer file as plain, frozen data. No JSON, no JAX, no algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dialect = Literal["oniguruma", "tiktoken"]
Behavior = Literal["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


@dataclass(frozen=True)
class AddedToken:
    """A literal that is matched in the text before anything else and becomes one id."""

    id: int
    content: str
    special: bool = False
    normalized: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


@dataclass(frozen=True)
class Pattern:
    """What a Split or Replace looks for: a literal string or a regular expression in the spec's dialect."""

    text: str
    regex: bool


# ---- normalizers, flattened from `Sequence`, in order of application ----


@dataclass(frozen=True)
class Unicode:
    """NFC, NFD, NFKC or NFKD."""

    form: Literal["NFC", "NFD", "NFKC", "NFKD"]


@dataclass(frozen=True)
class Lowercase:
    """Unicode lower-casing, one to one or one to many."""


@dataclass(frozen=True)
class Replace:
    """Replaces each match of `pattern` by the literal `content`."""

    pattern: Pattern
    content: str


@dataclass(frozen=True)
class Prepend:
    """Inserts `prepend` before each non-empty segment."""

    prepend: str


@dataclass(frozen=True)
class Strip:
    """Removes white space at the ends of each segment."""

    left: bool
    right: bool


@dataclass(frozen=True)
class StripAccents:
    """Removes combining marks."""


@dataclass(frozen=True)
class Nmt:
    """The NMT clean-up of control characters."""


@dataclass(frozen=True)
class BertNormalizer:
    """BERT's clean-up; `strip_accents=None` follows `lowercase`."""

    clean_text: bool
    handle_chinese_chars: bool
    strip_accents: bool | None
    lowercase: bool


@dataclass(frozen=True)
class Precompiled:
    """SentencePiece's compiled character map (base64)."""

    charsmap: str


@dataclass(frozen=True)
class ByteLevelNormalizer:
    """Maps bytes to the printable byte alphabet, as a normalizer."""


Normalizer = (
    Unicode
    | Lowercase
    | Replace
    | Prepend
    | Strip
    | StripAccents
    | Nmt
    | BertNormalizer
    | Precompiled
    | ByteLevelNormalizer
)

# ---- pre-tokenizers, flattened from `Sequence`, in order of application ----


@dataclass(frozen=True)
class Split:
    pattern: Pattern
    behavior: Behavior
    invert: bool


GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class ByteLevel:
    """Maps bytes to the byte alphabet; splits with GPT-2's pattern first when `use_regex`."""

    add_prefix_space: bool
    trim_offsets: bool
    use_regex: bool


@dataclass(frozen=True)
class Digits:
    individual_digits: bool


@dataclass(frozen=True)
class Punctuation:
    behavior: Behavior


@dataclass(frozen=True)
class Whitespace:
    r"""`\w+|[^\w\s]+`, gaps removed."""


@dataclass(frozen=True)
class WhitespaceSplit:
    """Removes white space, splitting at each."""


@dataclass(frozen=True)
class BertPreTokenizer:
    """Removes white space, isolates punctuation."""


@dataclass(frozen=True)
class CharDelimiterSplit:
    delimiter: str


@dataclass(frozen=True)
class Metaspace:
    replacement: str
    prepend_scheme: Literal["always", "never", "first"]
    split: bool


@dataclass(frozen=True)
class UnicodeScripts:
    """Splits where the script changes."""


@dataclass(frozen=True)
class FixedLength:
    length: int


PreTokenizer = (
    Split
    | ByteLevel
    | Digits
    | Punctuation
    | Whitespace
    | WhitespaceSplit
    | BertPreTokenizer
    | CharDelimiterSplit
    | Metaspace
    | UnicodeScripts
    | FixedLength
)

# ---- models. Token strings are as in the file; `byte_alphabet` on the spec says how they map to bytes ----


@dataclass(frozen=True, eq=False)
class BPE:
    """`vocab[token] = id`; `merges[rank] = (left, right)`. Rank is not id."""

    vocab: dict[str, int]
    merges: list[tuple[str, str]]
    unk_token: str | None = None
    fuse_unk: bool = False
    byte_fallback: bool = False
    ignore_merges: bool = False
    continuing_subword_prefix: str = ""
    end_of_word_suffix: str = ""
    dropout: float | None = None


@dataclass(frozen=True, eq=False)
class BytePairRanks:
    """tiktoken: `ranks[token bytes] = rank`; the pair that forms the lowest rank merges first.

    `id = rank + offset`. A whole piece that is a token is that token.
    """

    ranks: dict[bytes, int]
    offset: int = 0


@dataclass(frozen=True, eq=False)
class WordPiece:
    vocab: dict[str, int]
    unk_token: str
    continuing_subword_prefix: str
    max_input_chars_per_word: int


@dataclass(frozen=True, eq=False)
class WordLevel:
    vocab: dict[str, int]
    unk_token: str


@dataclass(frozen=True, eq=False)
class Unigram:
    pieces: list[tuple[str, float]]
    unk_id: int | None
    byte_fallback: bool


@dataclass(frozen=True)
class Omitted:
    """Stands for a model that was not read: its program was in the cache."""


Model = BPE | BytePairRanks | WordPiece | WordLevel | Unigram | Omitted


@dataclass(frozen=True)
class PostProcessor:
    """What is added round the ids (`before`, `after`) and how offsets are trimmed.

    `trim_offsets` is that of the last ByteLevel or Roberta post-processor that acts, None where none does.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    trim_offsets: bool | None = None
    add_prefix_space: bool = True


@dataclass(frozen=True)
class Truncation:
    max_length: int
    stride: int
    strategy: str
    direction: Literal["Left", "Right"]


@dataclass(frozen=True)
class Padding:
    length: int | None  # None: the longest of the batch
    direction: Literal["Left", "Right"]
    pad_to_multiple_of: int | None
    pad_id: int
    pad_type_id: int
    pad_token: str


@dataclass(frozen=True, eq=False)
class TokenizerSpec:
    """A whole tokenizer. `host_only` names what only the reference can do, with the reason (empty: none known yet)."""

    source: Literal["tokenizer.json", "tiktoken", "tekken", "gguf"]
    fingerprint: str  # sha256 of the file's bytes (or of the encoding's canonical content), hex
    dialect: Dialect
    model: Model
    normalizers: tuple[Normalizer, ...] = ()
    pre_tokenizers: tuple[PreTokenizer, ...] = ()
    post_processor: PostProcessor = PostProcessor()
    decoder: dict | None = None  # as in the file: decoders are the reference's work or host/decoders.py's
    added_tokens: tuple[AddedToken, ...] = ()
    truncation: Truncation | None = None
    padding: Padding | None = None
    host_only: tuple[str, ...] = ()

    @property
    def byte_level(self) -> bool:
        """Whether token strings spell bytes in the byte alphabet (a ByteLevel step is present) or are bytes."""
        steps = (*self.normalizers, *self.pre_tokenizers)
        spelled = any(isinstance(step, ByteLevel | ByteLevelNormalizer) for step in steps)
        return spelled or isinstance(self.model, BytePairRanks)
