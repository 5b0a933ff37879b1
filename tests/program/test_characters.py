"""Characters that are said to be made before anything else, against merging by definition."""

import random
from itertools import pairwise

import numpy as np

from toktier_jax.ops.characters import BUCKETS, left_bucket, right_bucket
from toktier_jax.program.characters import character_tables
from toktier_jax.program.merges import Rules, pair_table, parts_of

ALPHABET = ("é", "è", "中", "丮", "乭", "亮", "a", " ")
BYTES = sorted({byte for character in ALPHABET for byte in character.encode()})


def _draw_rules(draw: random.Random) -> tuple[Rules, dict[tuple[bytes, bytes], int]]:
    """Rules that join tokens which strings of the alphabet hold; ids are bytes, then 256 and on."""
    ids = {bytes([byte]): byte for byte in range(256)}
    ranks: dict[tuple[bytes, bytes], int] = {}
    for _ in range(40):
        text = "".join(draw.choices(ALPHABET, k=3)).encode()
        start = draw.randrange(len(text) - 1)
        string = text[start : start + draw.randint(2, 4)]
        cut = draw.randrange(1, len(string)) if len(string) > 1 else 0
        pair = (string[:cut], string[cut:])
        # one way to make a token, out of tokens
        if cut and all(part in ids for part in pair) and string not in ids:
            ranks[pair] = len(ranks)
            ids[string] = 256 + len(ids)
    rows = [(ids[left], ids[right], rank, ids[left + right]) for (left, right), rank in ranks.items()]
    return Rules(*np.array(rows, np.int64).reshape(-1, 4).T), ranks


def _first_foreign(text: bytes, ranks: dict[tuple[bytes, bytes], int], begin: int, end: int) -> bool:
    """Whether merging by definition joins a part of [begin, end) with what is beside it before the whole is made."""
    tokens = [(at, at + 1) for at in range(len(text))]
    while True:
        merges = [
            (ranks[pair], number)
            for number, ((a, b), (_, c)) in enumerate(pairwise(tokens))
            if (pair := (text[a:b], text[b:c])) in ranks
        ]
        if (begin, end) in tokens:
            return False
        if not merges:
            return True
        _, number = min(merges)
        new = tokens[number][0], tokens[number + 1][1]
        if new[0] < end and new[1] > begin and not (begin <= new[0] and new[1] <= end):
            return True
        tokens[number : number + 2] = [new]


def test_a_character_is_made_first_beside_every_neighbour_that_is_no_risk() -> None:
    seen = 0
    for seed in range(60):
        draw = random.Random(seed)
        rules, ranks = _draw_rules(draw)
        parts = parts_of(rules, 1024)
        tables = character_tables(rules, pair_table(rules), parts, np.arange(256))
        if tables is None:
            continue
        for _ in range(10):
            text = "".join(draw.choices(ALPHABET, k=6))
            data = text.encode()
            for number in range(1, len(text) - 1):
                if ord(text[number]) < 0x80:
                    continue
                begin = len(text[:number].encode())
                end = begin + len(text[number].encode())
                bits = 1 << int(left_bucket(data[begin - 1])) | 1 << (BUCKETS + int(right_bucket(data[end])))
                if not int(tables.risks[ord(text[number])]) & bits:
                    seen += 1
                    assert not _first_foreign(data, ranks, begin, end), (seed, text, number)
    assert seen > 100


def test_no_merges_make_no_tables() -> None:
    rules = Rules(*np.zeros((4, 0), np.int64))
    assert character_tables(rules, pair_table(rules), parts_of(rules, 256), np.arange(256)) is None
