"""The command line: what each verb prints, the exit codes, and errors in one line."""

from __future__ import annotations

import gzip
import importlib.resources
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import tokenizers

from toktier_jax import cli
from toktier_jax.cli import encoding
from toktier_jax.demo import encoding as demo

TEXT = "The quick brown fox, naïve café 数据 <|im_start|>user\n"


@pytest.fixture(scope="module")
def reference() -> tokenizers.Tokenizer:
    asset = importlib.resources.files("toktier_jax") / "assets" / "default.json.gz"
    return tokenizers.Tokenizer.from_buffer(gzip.decompress(asset.read_bytes()))


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))

    return give


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def out(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def error(capsys: pytest.CaptureFixture[str], argv: list[str], code: int) -> str:
    """The one line on stderr of a failing command."""
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("toktier-jax: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_encode_prints_the_references_ids(
    file: str, reference: tokenizers.Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["encode", file]) == 0
    assert [int(word) for word in out(capsys).split()] == reference.encode(TEXT).ids


def test_encode_json_with_spans(file: str, reference: tokenizers.Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["encode", file, "--json", "--spans", "--route", "reference"]) == 0
    printed = json.loads(out(capsys))
    expected = reference.encode(TEXT)
    assert printed["ids"] == expected.ids
    assert [tuple(span) for span in printed["char_spans"]] == expected.offsets
    assert (printed["route"], printed["truncated"]) == ("reference", False)


def test_encode_spans_a_token_a_line(
    file: str, reference: tokenizers.Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["encode", file, "--spans"]) == 0
    rows = [[int(field) for field in line.split("\t")] for line in out(capsys).splitlines()]
    assert [row[0] for row in rows] == reference.encode(TEXT).ids
    assert rows[-1][2] == len(TEXT.encode())


def test_special_tokens_as_text(file: str, reference: tokenizers.Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["encode", file, "--special", "text"]) == 0
    assert reference.token_to_id("<|im_start|>") not in [int(word) for word in out(capsys).split()]
    assert "<|im_start|>" in error(capsys, ["encode", file, "--special", "error"], 1)


@pytest.mark.parametrize("options", [[], ["--json"], ["--spans"], ["--json", "--spans"]])
def test_decode_reads_what_encode_prints(
    options: list[str],
    file: str,
    stdin: Callable[[bytes], None],
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    assert cli.main(["encode", file, *options]) == 0
    stdin(capfdbinary.readouterr().out)
    assert cli.main(["decode", "--keep-special", *(["--spans"] if options == ["--spans"] else [])]) == 0
    assert capfdbinary.readouterr().out == TEXT.encode()


@pytest.mark.parametrize("form", ["plain", "json"])
def test_decode_returns_the_text(
    form: str,
    stdin: Callable[[bytes], None],
    reference: tokenizers.Tokenizer,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    ids = reference.encode(TEXT).ids
    stdin((json.dumps(ids) if form == "json" else " ".join(map(str, ids))).encode())
    assert cli.main(["decode", "--keep-special"]) == 0
    assert capfdbinary.readouterr().out == TEXT.encode()


def test_count(file: str, reference: tokenizers.Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    number = len(reference.encode(TEXT).ids)
    assert cli.main(["count", file]) == 0
    assert out(capsys) == f"{number}\n"
    assert cli.main(["count", file, "--json"]) == 0
    assert json.loads(out(capsys)) == {"counts": [{"file": file, "ids": number}], "total": number}


def test_count_of_stdin(stdin: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]) -> None:
    stdin(b"")
    assert cli.main(["count"]) == 0
    assert out(capsys) == "0\n"


def test_count_shows_a_bar_on_large_files_only(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert cli.main(["count", file]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(encoding, "PROGRESS_FROM", 1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert cli.main(["count", file]) == 0
    assert "100%" in capsys.readouterr().err


def test_the_bar_moves_within_a_file(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Blocks:
        def count(self, data: bytes, progress: Callable[[int], object]) -> int:
            progress(len(data) // 2)
            progress(0)  # a text that fails the quick check begins again
            progress(len(data))
            return 7

    monkeypatch.setattr(encoding, "load", lambda name: Blocks())
    monkeypatch.setattr(encoding, "PROGRESS_FROM", 1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert cli.main(["count", file, file]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "14\ttotal"
    assert "100%" in printed.err


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain"]) == 0
    assert "xla" in out(capsys)
    assert cli.main(["explain", "--json"]) == 0
    assert json.loads(out(capsys))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version", "--json"]) == 0
    assert json.loads(out(capsys))["tokenizers"] == tokenizers.__version__


def test_invalid_utf8_names_the_offset(stdin: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]) -> None:
    stdin(b"abc\xff")
    assert "3" in error(capsys, ["encode"], 1)


def test_ids_that_are_none(stdin: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]) -> None:
    stdin(b"1 2 three")
    assert "item 2" in error(capsys, ["decode"], 1)
    stdin(b"1 " + b"2" * 5000)
    assert "item 1" in error(capsys, ["decode"], 1)
    for damaged, says in (
        (b"[1,2", "is none"),
        (b"[1, true]", "item 1"),
        (b"[1, -2]", "item 1"),
        (b"[[1]]", "item 0"),
        (b"[1.5]", "item 0"),
        (b'{"id": [1]}', "without a list"),
        (b'{"ids": 1}', "without a list"),
        (b"[" * 9999, "is none"),
        (b"1\t2\t3\t4\t5\n", "pass --spans"),
    ):
        stdin(damaged)
        assert says in error(capsys, ["decode"], 1)


@pytest.mark.parametrize(
    ("argv", "code", "word"),
    [
        (["encode", "/no/such/file"], 1, "/no/such/file"),
        (["encode", "--tokenizer", "./no-such.json"], 1, "no-such.json"),
        (["encode", "--route", "fast"], 2, "fast"),
        (["encode", "--tokenizer", ""], 1, "non-empty"),
        (["verify", "--seconds", "nan"], 2, "nan"),
        (["verify", "--seconds", "-5"], 2, "-5"),
        (["sing"], 2, "sing"),
        ([], 2, "VERB"),
    ],
)
def test_errors(
    argv: list[str], code: int, word: str, stdin: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(b"")
    assert word in error(capsys, argv, code)


def test_a_damaged_tokenizer_file(tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"model": ')
    error(capsys, ["encode", file, "--tokenizer", str(path)], 1)


@pytest.mark.slow  # compiles several sizes of block
def test_verify_reports_and_sets_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "--seconds", "1"]) == 0
    assert "0 differences" in out(capsys)


def test_demo_compares_with_the_reference(file: str) -> None:
    printed = io.StringIO()
    assert demo.run_demo(Path(file), repeats=1, out=printed)
    assert "equal to the reference's" in printed.getvalue()
    assert "MB/s" in printed.getvalue()


def test_demo_text_is_over_a_megabyte() -> None:
    assert len(demo.library_sources()) > 1_000_000


def test_module_runs_as_a_program() -> None:
    child = subprocess.run([sys.executable, "-m", "toktier_jax", "version"], capture_output=True, text=True, check=True)
    assert "tokenizers" in child.stdout


def test_a_name_that_is_no_utf8_is_printed_as_it_is(tmp_path: Path) -> None:
    names = [os.path.join(os.fsencode(tmp_path), name) for name in (b"a\xff", b"b")]
    for name in names:
        Path(os.fsdecode(name)).write_text("text")
    run = subprocess.run([sys.executable, "-m", "toktier_jax", "count", *names], capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (0, b"")
    assert [line.split(b"\t")[1] for line in run.stdout.splitlines()] == [*names, b"total"]
