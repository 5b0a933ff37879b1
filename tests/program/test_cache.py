"""The on-disk cache: what is stored comes back whole or not at all, whatever happened to the file."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toktier_jax as tt
from tests.tokenizer_files import added, bpe, byte_level, tokenizer_json
from toktier_jax.program import cache, load
from toktier_jax.spec import source
from toktier_jax.spec.byte_alphabet import ALPHABET

ROOT = Path(__file__).resolve().parents[2]
SCALE = float(os.environ.get("TOKTIER_JAX_TEST_SCALE", "1"))
KEY = "programs/some-key"
HEADER = {"a": [1, None, "é"], "b": {"c": 2.5}}
ARRAYS = {
    "empty": np.zeros((0, 3), np.int32),
    "bytes": np.arange(7, dtype=np.uint8),
    "table": np.arange(24, dtype=np.uint32).reshape(2, 3, 4),
    "flags": np.array([True, False]),
    "scalar": np.array(-5, np.int32),
}


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the classes that `file` needs: they take most of the time."""
    path = tmp_path_factory.mktemp("probes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKTIER_JAX_CACHE", str(path))
        tt.Tokenizer.from_bytes(file())
    return path / "classes"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, probes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKTIER_JAX_CACHE", str(tmp_path / "cache"))
    shutil.copytree(probes, tmp_path / "cache" / "classes")
    return tmp_path / "cache"


def check_stored() -> None:
    found = cache.load(KEY)
    assert found is not None
    assert found[0] == HEADER
    assert found[1].keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[1][name].dtype == array.dtype
        np.testing.assert_array_equal(found[1][name], array)
        assert not found[1][name].flags.writeable


def test_what_is_stored_comes_back(directory: Path) -> None:
    assert cache.load(KEY) is None
    cache.store(KEY, HEADER, ARRAYS)
    check_stored()
    assert [path.name for path in (directory / "programs").iterdir()] == ["some-key"]


def test_the_last_writer_wins() -> None:
    cache.store(KEY, "old", {})
    cache.store(KEY, HEADER, ARRAYS)
    check_stored()


@settings(max_examples=max(20, int(40 * SCALE)), deadline=None)
@given(st.data())
def test_damage_anywhere_is_a_miss(data: st.DataObject) -> None:
    cache.store(KEY, HEADER, ARRAYS)
    path = cache.cache_dir() / KEY
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    bit = data.draw(st.integers(0, 7))
    flipped = bytearray(whole)
    flipped[at] ^= 1 << bit
    for damaged in (bytes(flipped), whole[:at], whole + b"\0", whole[at:] if at else b""):
        path.write_bytes(damaged)
        assert cache.load(KEY) is None
    cache.store(KEY, HEADER, ARRAYS)
    check_stored()


def test_a_directory_that_cannot_be_written_is_no_error(directory: Path) -> None:
    (directory / "programs").write_text("a file")
    cache.store(KEY, HEADER, ARRAYS)
    assert cache.load(KEY) is None
    assert tt.Tokenizer.from_bytes(file()).explain().route == "xla"


def test_a_write_that_fails_leaves_nothing_behind(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.store(KEY, HEADER, ARRAYS)
    assert list((directory / "programs").iterdir()) == []
    assert cache.load(KEY) is None


# ---- programs ----


def file() -> bytes:
    vocab = {token: id for id, token in enumerate([*ALPHABET, "ab"])}
    return tokenizer_json(bpe(vocab, [["a", "b"]]), pre_tokenizer=byte_level(), added=[added(257, "<s>", special=True)])


def entry(directory: Path) -> Path:
    (path,) = (directory / "programs").iterdir()
    return path


def same(left: tt.Tokenizer, right: tt.Tokenizer) -> bool:
    equal = jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), left.program, right.program)
    return left.program.plan == right.program.plan and all(jax.tree.leaves(equal))


def test_a_program_from_the_cache_is_the_compiled_one(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tt.Tokenizer.from_bytes(file())
    stamp = entry(directory).stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr("toktier_jax.program.compile.compile_program", None)  # nothing is compiled again
        read = tt.Tokenizer.from_bytes(file())
    assert same(compiled, read)
    assert read.explain().device == compiled.explain().device
    assert entry(directory).stat().st_mtime_ns == stamp


@pytest.mark.parametrize("damage", [b"", b"toktier_jax cache 1\n", None, "short", "flip"])
def test_a_damaged_program_is_compiled_again_and_written_whole(directory: Path, damage: bytes | str | None) -> None:
    compiled = tt.Tokenizer.from_bytes(file())
    path = entry(directory)
    whole = path.read_bytes()
    if damage is None:
        path.unlink()
        path.mkdir()  # not even a file: what cannot be replaced stays a miss
    elif damage == "flip":
        path.write_bytes(whole[:900] + bytes([whole[900] ^ 1]) + whole[901:])
    else:
        path.write_bytes(whole[: len(whole) // 2] if isinstance(damage, str) else damage)
    assert same(compiled, tt.Tokenizer.from_bytes(file()))
    assert path.is_dir() if damage is None else path.read_bytes() == whole
    assert len(list((directory / "programs").iterdir())) == 1


def test_a_file_that_is_refused_is_not_cached(directory: Path) -> None:
    with pytest.raises(tt.SpecError):
        tt.Tokenizer.from_bytes(file().replace(b'["a", "b"]', b'["a", "zz"]'))
    with pytest.raises(tt.SpecError):
        tt.Tokenizer.from_bytes(file()[:-20])
    assert not (directory / "programs").exists()


CHILD = """
import sys
from tests.program.test_cache import digest, file
sys.stdin.readline()
print(digest(file()))
"""


def digest(data: bytes) -> str:
    """Of the program and all else that the cache has of a file."""
    of = source.from_bytes(data)
    loaded = load.load_program(of.fingerprint, lambda: of.spec)
    assert loaded.program is not None
    leaves = b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in jax.tree.leaves(loaded.program))
    return hashlib.sha256(f"{loaded.outline} {loaded.program.plan}".encode() + leaves).hexdigest()


def test_two_processes_compile_at_once(directory: Path) -> None:
    """Both have the same program, and the entry that stays is whole."""
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen([sys.executable, "-c", CHILD], cwd=ROOT, **pipe)
    time.sleep(2)  # it is likely to be ready
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    mine = digest(file())
    out, err = child.communicate(timeout=300)
    assert (child.returncode, out) == (0, mine + "\n"), err
    assert cache.load(f"programs/{entry(directory).name}") is not None
    assert digest(file()) == mine


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no entry: everything is compiled each time."""

    def homeless() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.delenv("TOKTIER_JAX_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    cache.store(KEY, HEADER, ARRAYS)
    assert cache.load(KEY) is None
    with pytest.raises(FileNotFoundError, match="TOKTIER_JAX_CACHE"):
        cache.cache_dir()
