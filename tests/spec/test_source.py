"""Finding tokenizers in files, directories, the hub (offline) and objects, and clear errors where there is none."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import pytest
import tokenizers

from toktier_jax.errors import SpecError
from toktier_jax.spec import source

from .documents import document
from .test_tekken import small as tekken

WHOLE = json.dumps(document()).encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(WHOLE)
    return path


def test_formats_are_recognized_by_content(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(WHOLE)
    (tmp_path / "b.bin").write_text(json.dumps(tekken()))
    assert source.from_file(tmp_path / "a.bin").kind == "tokenizer.json"
    assert source.from_file(str(tmp_path / "b.bin")).kind == "tekken"
    found = source.from_bytes(WHOLE)
    assert found.fingerprint == found.spec.fingerprint == hashlib.sha256(WHOLE).hexdigest()
    assert found.tokenizer_json is WHOLE


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"vocab": {}, "merges": []}', "its keys .vocab, merges. are those of no known format"),
        (b"\x0a\x0e\x0a\x05<unk>", "damaged JSON|not UTF-8"),
        (b"a 0\nb 1\n", "damaged JSON at byte 0"),
        (b"", "damaged JSON at byte 0"),
        (b"GGUF\x03\x00\x00\x00", "ends inside the metadata, at byte 8"),
        (b"GGU", "damaged"),
    ],
)
def test_unknown_formats(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=says):
        source.from_file(path)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot read .*nowhere\.json: No such file"):
        source.from_file(tmp_path / "nowhere.json")
    with pytest.raises(SpecError, match="is a directory; use from_pretrained"):
        source.from_file(tmp_path)
    with pytest.raises(SpecError, match=r"holds no tokenizer\.json"):
        source.from_pretrained(tmp_path)


def test_directories(tmp_path: Path, file: Path) -> None:
    assert source.from_pretrained(tmp_path).kind == "tokenizer.json"
    file.unlink()
    (tmp_path / "tekken.json").write_text(json.dumps(tekken()))
    assert source.from_pretrained(str(tmp_path)).kind == "tekken"
    (tmp_path / "tekken.json").unlink()
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(SpecError, match="2 GGUF files"):
        source.from_pretrained(tmp_path)
    with pytest.raises(SpecError, match="use from_file"):
        source.from_pretrained(tmp_path / "a.gguf")


def test_damaged_chat_files(tmp_path: Path, file: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(SpecError, match=r"tokenizer_config\.json: damaged JSON at byte 1"):
        source.from_file(file)
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": 3}')
    with pytest.raises(SpecError, match="chat_template"):
        source.from_file(file)
    assert source.from_bytes(WHOLE).chat.templates == {}


def test_hub_ids_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(SpecError, match=r"HF_HUB_OFFLINE is set.*local cache.*pass a local directory"):
        source.from_pretrained("some-body/some-model")
    with pytest.raises(SpecError, match="neither a local directory nor a hub id"):
        source.from_pretrained("no/such/directory/here")


def test_objects() -> None:
    tokenizer = tokenizers.Tokenizer.from_buffer(WHOLE)
    found = source.from_object(tokenizer)
    assert found.spec.truncation == source.from_bytes(WHOLE).spec.truncation
    with pytest.raises(SpecError, match="int is neither"):
        source.from_object(3)


def test_objects_with_python_parts_are_refused() -> None:
    class Part:
        def pre_tokenize(self, text: object) -> None: ...

    tokenizer = tokenizers.Tokenizer.from_buffer(WHOLE)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.PreTokenizer.custom(Part())
    with pytest.raises(SpecError, match="cannot be written"):
        source.from_object(tokenizer)


def test_pickles() -> None:
    found = pickle.loads(pickle.dumps(source.from_bytes(WHOLE)))
    assert (found.data, found.kind, found.spec.fingerprint) == (
        WHOLE,
        "tokenizer.json",
        source.from_bytes(WHOLE).fingerprint,
    )
