"""What the installed reference says about one character, asked of itself and remembered. No Unicode table of ours."""

from __future__ import annotations

import functools
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers


@functools.cache
def in_class(expression: str, char: str) -> bool:
    """Whether the class expression, read by Oniguruma, matches exactly this character."""
    return not _splitter(expression).pre_tokenize_str(char)


@functools.cache
def _splitter(expression: str) -> pre_tokenizers.Split:
    return pre_tokenizers.Split(Regex(expression), "removed")


@functools.cache
def is_space(char: str) -> bool:
    """White space for Rust: `WhitespaceSplit`, `Strip`, `lstrip` and `rstrip`, trimming of offsets."""
    return not pre_tokenizers.WhitespaceSplit().pre_tokenize_str(char)


@functools.cache
def is_word(char: str) -> bool:
    r"""`\w` for Rust's regex crate: `Whitespace` and `single_word`. It is not Oniguruma's."""
    return [text for text, _ in pre_tokenizers.Whitespace().pre_tokenize_str("a" + char)] == ["a" + char]


@functools.cache
def is_numeric(char: str) -> bool:
    """`Digits`."""
    return len(pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str("a" + char)) == 2


@functools.cache
def is_punctuation(char: str) -> bool:
    """`Punctuation` and `BertPreTokenizer`."""
    return not pre_tokenizers.Punctuation("removed").pre_tokenize_str(char)


@functools.cache
def is_bert_control(char: str) -> bool:
    """What `BertNormalizer(clean_text)` removes."""
    return not _clean.normalize_str(char)


@functools.cache
def lower(char: str) -> str:
    return normalizers.Lowercase().normalize_str(char)


@functools.cache
def is_combining_mark(char: str) -> bool:
    """What `StripAccents` removes."""
    return not normalizers.StripAccents().normalize_str(char)


@functools.cache
def is_nonspacing_mark(char: str) -> bool:
    """What `BertNormalizer(strip_accents)` removes after decomposition."""
    return not _accents.normalize_str(char)


@functools.cache
def decomposed(char: str, *, compatible: bool) -> str:
    """The full decomposition of one character, in canonical order."""
    return (_NFKD if compatible else _NFD).normalize_str(char)


@functools.cache
def combining_class(char: str) -> int:
    """From Python's tables: the classes of a character never change once it is assigned."""
    return unicodedata.combining(char)


@functools.cache
def composed(first: str, second: str) -> str | None:
    """The primary composite of two characters, None where there is none."""
    both = _NFC.normalize_str(first + second)
    return both if len(both) == 1 else None


_NFC, _NFD, _NFKD = normalizers.NFC(), normalizers.NFD(), normalizers.NFKD()
_clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
_accents = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
