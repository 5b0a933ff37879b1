"""The parser: what each dialect reads, and what is refused by name."""

from __future__ import annotations

import pytest

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import Alt, Atom, End, Look, Repeat, Seq
from toktier_jax.program.pattern import literal_class, nullable, parse, parse_literal, parse_pattern
from toktier_jax.spec.types import Dialect, Pattern

DIALECTS: tuple[Dialect, ...] = ("oniguruma", "tiktoken")
A, B, C = Atom(0), Atom(1), Atom(2)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("pattern", "root", "classes"),
    [
        ("ab", Seq((A, B)), ("a", "b")),
        ("aa", Seq((A, A)), ("a",)),
        ("a|b|c", Alt((A, B, C)), ("a", "b", "c")),
        ("(?:a|(?:b|c))", Alt((A, B, C)), ("a", "b", "c")),
        ("(a)b", Seq((A, B)), ("a", "b")),
        ("a*b", Seq((Repeat(A, 0, None), B)), ("a", "b")),
        ("a++b?+", Seq((Repeat(A, 1, None, True), Repeat(B, 0, 1, True))), ("a", "b")),
        ("(?>a+)b", Seq((Repeat(A, 1, None, True), B)), ("a", "b")),
        ("a{2,}b{1}c{0}", Seq((Repeat(A, 2, None), B)), ("a", "b", "c")),
        (r"\p{L}[^\s\p{L}]\S", Seq((A, B, C)), (r"\p{L}", r"[^\s\p{L}]", r"\S")),
        (r"[a[b]&&[^\]]]c", Seq((A, B)), (r"[a[b]&&[^\]]]", "c")),
        (r"[[:alpha:]]'", Seq((A, B)), ("[[:alpha:]]", r"\x{27}")),
        ("(?i:'s)t", Seq((A, B, C)), (r"(?i:\x{27})", "(?i:s)", "t")),
        ("(?i:a(?-i:b))", Seq((A, B)), ("(?i:a)", "b")),
        ("(?i)ab", Seq((A, B)), ("(?i:a)", "(?i:b)")),
        (r"\n\x{20}\.\x41", Seq((A, B, C, Atom(3))), (r"\x{a}", r"\x{20}", r"\x{2e}", "A")),
        ("a(?=b)(?!c)", Seq((A, Look(B, False), Look(C, True))), ("a", "b", "c")),
        (".", A, (".",)),
    ],
)
def test_both_dialects(pattern: str, root: object, classes: tuple[str, ...], dialect: Dialect) -> None:
    parsed = parse(pattern, dialect)
    assert (parsed.root, parsed.classes) == (root, classes)


@pytest.mark.parametrize(
    ("pattern", "oniguruma", "tiktoken"),
    [
        ("a{1,3}+", Repeat(Repeat(A, 1, 3), 1, None), Repeat(A, 1, 3, True)),
        ("a{2}?b", Seq((Repeat(Repeat(A, 2, 2), 0, 1), B)), None),
        ("ba{,3}", Seq((A, Repeat(B, 0, 3))), None),
        ("a$", Seq((A, End(B))), Seq((A, End(None)))),
        (r"\u0041", A, A),
        ("a{x", Seq((A, B, C)), None),
        (r"\pLa", None, Seq((A, B))),
    ],
)
def test_dialects_differ(pattern: str, oniguruma: object, tiktoken: object) -> None:
    for dialect, root in zip(DIALECTS, (oniguruma, tiktoken), strict=True):
        if root is None:
            with pytest.raises(UnsupportedError):
                parse(pattern, dialect)
        else:
            assert parse(pattern, dialect).root == root


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a*", "empty string"),
        ("", "empty string"),
        ("a|", "empty string"),
        ("(?:a?)+b", "loop whose body"),
        ("(?:a|b?){2}", "loop whose body"),
        ("(?<=a)b", "look-behind"),
        ("(?<!a)b", "look-behind"),
        (r"(a)\1", "back-reference"),
        (r"(?<x>a)", "named group"),
        ("a+?", "lazy"),
        ("a??b", "lazy"),
        ("(?:ab)++", "possessive loop beyond one class"),
        ("(?>ab)", "atomic group beyond one class"),
        ("^a", "anchor"),
        (r"\Aa", "anchor"),
        (r"\bx", "word boundary"),
        (r"a\Kb", "keep operator"),
        (r"\R", "line break"),
        (r"\X", "grapheme"),
        ("(?x) a", "option group"),
        ("a(?i)b", "option group"),
        ("a$+", "quantified assertion"),
        ("a(?!b)*", "quantified assertion"),
        ("a{3,2}", "swapped"),
        ("+a", "nothing to repeat"),
        ("(a", "not closed"),
        ("a)", "unmatched"),
        ("[a", "not closed"),
        ("[]a]", "first in a class"),
        (r"\q", "escape"),
        (r"\x{D800}", "no character"),
        (r"\x{110000}", "no character"),
    ],
)
def test_refused_by_name(pattern: str, reason: str, dialect: Dialect) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        parse(pattern, dialect)


@pytest.mark.parametrize("pattern", ["(?i:ss)", "(?i:s{2})", "(?i:xs[s])", "(?i:f+i)", "(?i:s(?:a|t))", "(?i:s)(?i:t)"])
def test_letters_that_one_code_point_folds_to(pattern: str) -> None:
    """Oniguruma lets `ß` match `(?i:ss)`; the Rust engine folds code points one to one."""
    with pytest.raises(UnsupportedError, match="single code point"):
        parse(pattern, "oniguruma")
    parse(pattern, "tiktoken")


def test_literals() -> None:
    assert parse_literal("abba").root == Seq((A, B, B, A))
    assert parse_literal(" ").classes == (r"\x{20}",)
    assert parse_pattern(Pattern(r"\s", regex=False), "oniguruma").classes == (r"\x{5c}", "s")
    with pytest.raises(UnsupportedError, match="empty"):
        parse_literal("")
    assert [literal_class(char) for char in "aé0 "] == ["a", r"\x{e9}", "0", r"\x{20}"]


def test_nullable() -> None:
    assert nullable(Seq((Repeat(A, 0, 1), Look(A, False), End(None))))
    assert not nullable(Alt((A, Seq((Repeat(A, 0, 1), B)))))
