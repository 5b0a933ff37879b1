"""Parses a regular expression into plan nodes over class expressions. Compiles nothing, knows no code point.

The reference decides how a pattern is read, so each dialect has its own reading (`Dialect` in spec/types.py):

- "oniguruma": Ruby syntax. `X{n,m}+` is `(?:X{n,m})+`, `X{n}?` is `(?:X{n})?`, `$` is also before a newline;
- "tiktoken": the Rust crates fancy-regex and regex. `X{n,m}+` is possessive, `$` is the end only.

Whatever the compilers after this cannot reproduce exactly is refused by name.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

from toktier_jax.errors import UnsupportedError
from toktier_jax.plan import Alt, Atom, End, Look, Node, Repeat, Seq
from toktier_jax.spec.types import Dialect, Pattern

_INTERVAL = re.compile(r"\{(\d*)(,?)(\d*)\}")
_PROPERTY = re.compile(r"\{\^?[\w ()&=:.-]+\}")
_POSIX = re.compile(r"\[:\^?[a-z]+:\]")
_FLAGS = re.compile(r"\?(-?)i:")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_GROUPS = {
    "?<=": "look-behind",
    "?<!": "look-behind",
    "?<": "named group",
    "?P": "named group",
    "?#": "comment",
    "?~": "absence operator",
    "?(": "conditional",
}
_ESCAPES = {
    "b": "word boundary",
    "B": "word boundary",
    "A": "anchor",
    "z": "anchor",
    "Z": "anchor",
    "G": "anchor",
    "K": "keep operator",
    "k": "back-reference",
    "g": "subexpression call",
    "R": "line break",
    "X": "grapheme cluster",
}


@dataclass(frozen=True)
class Parsed:
    """A pattern. `Atom(k)` in `root` is a character that the expression `classes[k]` matches, alone, in the dialect."""

    root: Node
    classes: tuple[str, ...]


def parse(pattern: str, dialect: Dialect) -> Parsed:
    """Reads `pattern` as `dialect` does.

    Raises UnsupportedError, naming the construct and its offset, for what has no exact compilation: look-behind,
    back-references, `\\b ^ \\A \\G \\K \\R \\X`, lazy quantifiers, atomic groups and possessive loops beyond one class,
    patterns and loop bodies that can match nothing, letters under `(?i:` that one code point can match together.
    """
    parser = _Parser(pattern, dialect)
    root = parser.whole()
    if nullable(root):
        raise parser.unsupported("it can match the empty string", 0)
    return Parsed(root, tuple(parser.classes))


def parse_literal(text: str) -> Parsed:
    """A literal string as a pattern: one class for each distinct character."""
    if not text:
        raise UnsupportedError("a pattern that is an empty string")
    classes = list(dict.fromkeys(map(literal_class, text)))
    return Parsed(_seq([Atom(classes.index(literal_class(c))) for c in text]), tuple(classes))


def parse_pattern(pattern: Pattern, dialect: Dialect) -> Parsed:
    """`parse` or `parse_literal`, as the file says."""
    return parse(pattern.text, dialect) if pattern.regex else parse_literal(pattern.text)


def literal_class(char: str) -> str:
    """The class expression of one character, the same in both dialects."""
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):x}}}"


def nullable(node: Node) -> bool:
    """Whether `node` can match without consuming a character."""
    match node:
        case Atom():
            return False
        case Seq(items):
            return all(map(nullable, items))
        case Alt(items):
            return any(map(nullable, items))
        case Repeat(item, minimum):
            return minimum == 0 or nullable(item)
        case Look() | End():
            return True


@dataclass
class _Parser:
    pattern: str
    dialect: Dialect
    position: int = 0
    ignore_case: bool = False
    classes: list[str] = field(default_factory=list)
    folded: dict[int, str] = field(default_factory=dict)  # class index -> the letter, for letters under (?i:

    def unsupported(self, what: str, position: int | None = None) -> UnsupportedError:
        where = self.position if position is None else position
        return UnsupportedError(f"pattern {self.pattern!r} at {where}: {what}")

    # ---- grammar ----

    def whole(self) -> Node:
        if self.pattern.startswith("(?i)"):  # first of all it holds for the whole pattern in both dialects
            self.ignore_case, self.position = True, 4
        node = self.alternation()
        if self.position < len(self.pattern):
            raise self.unsupported("unmatched )")
        if self.dialect == "oniguruma":
            self.check_folds(node)
        return node

    def alternation(self) -> Node:
        items: list[Node] = []
        while not items or self.take("|"):
            item = self.sequence()
            items.extend(item.items if isinstance(item, Alt) else (item,))
        return items[0] if len(items) == 1 else Alt(tuple(items))

    def sequence(self) -> Node:
        items: list[Node] = []
        while self.position < len(self.pattern) and self.peek() not in "|)":
            items.append(self.quantified())
        return _seq(items)

    def quantified(self) -> Node:
        node = self.item()
        while (bounds := self.quantifier()) is not None:
            minimum, maximum, interval = bounds
            if isinstance(node, Look | End):
                raise self.unsupported("a quantified assertion")
            if maximum != 1 and nullable(node):
                raise self.unsupported("a loop whose body can match the empty string")
            possessive = False
            fixed = interval and minimum == maximum and self.dialect == "oniguruma"  # {n}? is (?:{n})? there
            if not fixed and self.take("?"):
                raise self.unsupported("a lazy quantifier")
            if not (interval and self.dialect == "oniguruma") and self.take("+"):  # {n,m}+ is a loop of loops there
                possessive = True
                if not isinstance(node, Atom):
                    raise self.unsupported("a possessive loop beyond one class")
            node = _repeat(node, minimum, maximum, possessive)
        return node

    def quantifier(self) -> tuple[int, int | None, bool] | None:
        """(minimum, maximum, written as an interval), or None where no quantifier follows."""
        for char, bounds in (("*", (0, None, False)), ("+", (1, None, False)), ("?", (0, 1, False))):
            if self.take(char):
                return bounds
        interval = _INTERVAL.match(self.pattern, self.position)
        if interval is None or not (interval[1] or interval[3]):
            return None
        low, comma, high = interval.groups()
        if not low and self.dialect == "tiktoken":
            raise self.unsupported("an interval without a lower bound")
        minimum = int(low or 0)
        maximum = (int(high) if high else None) if comma else minimum
        if maximum is not None and maximum < minimum:
            raise self.unsupported("an interval whose bounds are swapped")
        self.position = interval.end()
        return minimum, maximum, True

    def item(self) -> Node:
        char = self.peek()
        if char == "(":
            return self.group()
        if char == "[":
            return self.bracket()
        if char == "\\":
            return self.escape()
        if char in "*+?":
            raise self.unsupported("a quantifier with nothing to repeat")
        if char == "^":
            raise self.unsupported("the anchor ^")
        if char == "{" and self.dialect == "tiktoken":
            raise self.unsupported("an unescaped {")
        self.position += 1
        if char == ".":
            return self.leaf(".")
        if char == "$":
            return End(self.plain_leaf("\\n") if self.dialect == "oniguruma" else None)
        return self.letter(char)

    def group(self) -> Node:
        start = self.position
        self.position += 1
        if self.take("?:") or self.peek() != "?":
            return self.close(start)
        if self.take("?="):
            return Look(self.close(start), negative=False)
        if self.take("?!"):
            return Look(self.close(start), negative=True)
        if self.take("?>"):
            return self.atomic(self.close(start), start)
        flag = _FLAGS.match(self.pattern, self.position)
        if flag:
            outer, self.ignore_case, self.position = self.ignore_case, not flag[1], flag.end()
            node = self.close(start)
            self.ignore_case = outer
            return node
        for prefix, name in _GROUPS.items():
            if self.pattern.startswith(prefix, self.position):
                raise self.unsupported(f"a {name}", start)
        raise self.unsupported("an option group", start)

    def close(self, start: int) -> Node:
        node = self.alternation()
        if not self.take(")"):
            raise self.unsupported("a group that is not closed", start)
        return node

    def atomic(self, node: Node, start: int) -> Node:
        match node:
            case Atom():
                return node
            case Repeat(Atom() as item, minimum, maximum):
                return Repeat(item, minimum, maximum, possessive=True)
        raise self.unsupported("an atomic group beyond one class", start)

    # ---- leaves ----

    def bracket(self) -> Node:
        """A bracketed class with what is nested in it, verbatim: the engine itself will be asked for its members."""
        start, depth, text = self.position, 0, self.pattern
        while True:
            char = text[self.position : self.position + 1]
            if not char:
                raise self.unsupported("a class that is not closed", start)
            if char == "\\":
                self.position += 2
            elif posix := _POSIX.match(text, self.position) if depth else None:
                self.position = posix.end()
            else:
                self.position += 1
                if char == "[":
                    if depth and text[self.position : self.position + 1] == ":":  # [. and [= are nested classes
                        raise self.unsupported("a bracket expression", start)
                    depth += 1
                    self.take("^")
                    if self.peek() == "]":
                        raise self.unsupported("an unescaped ] first in a class", start)
                depth -= char == "]"
            if not depth:
                break
        body = text[start + 1 : self.position - 1]
        return self.letter(body) if len(body) == 1 else self.leaf(text[start : self.position])

    def escape(self) -> Node:
        start = self.position
        self.position += 1
        char = self.peek()
        self.position += 1
        if char in _CONTROLS:
            return self.letter(_CONTROLS[char])
        if char == "e" and self.dialect == "oniguruma":
            return self.letter("\x1b")
        if char in tuple("sSdDwWhH"):
            return self.leaf("\\" + char)
        if char in ("p", "P"):
            named = _PROPERTY.match(self.pattern, self.position)
            if named is None and self.dialect == "oniguruma":
                raise self.unsupported("a property without braces", start)
            self.position = named.end() if named else self.position + 1
            return self.leaf(self.pattern[start : self.position])
        if char in ("x", "u"):
            return self.letter(self.code_point(char, start))
        if char.isdigit():
            raise self.unsupported("a back-reference or octal escape", start)
        if char in _ESCAPES:
            raise self.unsupported(f"the {_ESCAPES[char]} \\{char}", start)
        if not char or not char.isascii() or char.isalnum() or char in "_<>":
            raise self.unsupported(f"the escape \\{char}", start)
        return self.letter(char)

    def code_point(self, kind: str, start: int) -> str:
        braces = r"\{([0-9A-Fa-f]{1,8})\}"
        short = r"([0-9A-Fa-f]{2})" if kind == "x" else r"([0-9A-Fa-f]{4})"
        allowed = short if kind == "u" and self.dialect == "oniguruma" else f"(?:{braces}|{short})"
        digits = re.compile(allowed).match(self.pattern, self.position)
        if digits is None:
            raise self.unsupported(f"a damaged \\{kind} escape", start)
        braced = digits[0].startswith("{")
        value = int(next(filter(None, digits.groups())), 16)
        if value > 0x10FFFF or 0xD800 <= value < 0xE000 or (kind == "x" and not braced and value > 0x7F):
            raise self.unsupported(f"the escape \\{kind}{digits[0]} is no character", start)
        self.position = digits.end()
        return chr(value)

    def letter(self, char: str) -> Atom:
        leaf = self.leaf(literal_class(char))
        if self.ignore_case:
            self.folded[leaf.index] = char.casefold()
        return leaf

    def leaf(self, expression: str) -> Atom:
        return self.plain_leaf(f"(?i:{expression})" if self.ignore_case else expression)

    def plain_leaf(self, expression: str) -> Atom:
        if expression not in self.classes:
            self.classes.append(expression)
        return Atom(self.classes.index(expression))

    # ---- helpers ----

    def peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def take(self, text: str) -> bool:
        found = self.pattern.startswith(text, self.position)
        self.position += len(text) * found
        return found

    def check_folds(self, root: Node) -> None:
        """Refuses letters under `(?i:` that follow one another where one code point folds to both (`ss`, ß)."""
        for left, right in _neighbours(root):
            pair = self.folded.get(left, "") + self.folded.get(right, "")
            if left in self.folded and right in self.folded and pair in _fold_prefixes():
                raise self.unsupported(f"{pair!r} under (?i:, which a single code point can match", 0)


def _seq(items: list[Node]) -> Node:
    flat: list[Node] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Seq) else (item,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def _repeat(item: Node, minimum: int, maximum: int | None, possessive: bool) -> Node:
    if maximum == 0:
        return Seq(())
    return item if (minimum, maximum) == (1, 1) else Repeat(item, minimum, maximum, possessive)


def _edges(node: Node) -> tuple[set[int], set[int], set[tuple[int, int]]]:
    """The atoms that `node` can begin with, those it can end with, and the pairs that can follow one another in it."""
    match node:
        case Atom(index):
            return {index}, {index}, set()
        case Seq(items):
            first, last, pairs = set[int](), set[int](), set[tuple[int, int]]()
            leading = True
            for item in items:
                begin, end, inside = _edges(item)
                pairs |= inside | {(left, right) for left in last for right in begin}
                first |= begin if leading else set()
                last = last | end if nullable(item) else end
                leading = leading and nullable(item)
            return first, last, pairs
        case Alt(items):
            parts = [_edges(item) for item in items]
            return (
                set().union(*(part[0] for part in parts)),
                set().union(*(part[1] for part in parts)),
                set().union(*(part[2] for part in parts)),
            )
        case Repeat(item, _, maximum):
            begin, end, inside = _edges(item)
            again = {(left, right) for left in end for right in begin} if maximum != 1 else set()
            return begin, end, inside | again
        case Look(item):
            return set(), set(), _edges(item)[2]
        case End():
            return set(), set(), set()


def _neighbours(root: Node) -> set[tuple[int, int]]:
    return _edges(root)[2]


@functools.cache
def long_folds() -> frozenset[str]:
    """Every full case folding that is longer than one character (stable since Unicode 5.1)."""
    found = set[str]()
    for start in range(0, 0x110000, 256):
        block = "".join(map(chr, range(start, start + 256)))
        if len(block.casefold()) > len(block):  # a few blocks: a folding is never empty
            found |= {fold for char in block if len(fold := char.casefold()) > 1}
    return frozenset(found)


@functools.cache
def _fold_prefixes() -> frozenset[str]:
    return frozenset(fold[:2] for fold in long_folds())
