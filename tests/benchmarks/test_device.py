"""The device protocol in small: prepared work, measured on whatever is here, compared with the reference."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from benchmarks import device, device_sampling
from tests import artifacts


@pytest.fixture(scope="module")
def work() -> device.Work:
    try:
        return device.prepare("gpt2", small=True)
    except artifacts.Missing as reason:
        pytest.skip(str(reason))


def test_cases_hold_the_references_ids(work: device.Work) -> None:
    reference = artifacts.load("gpt2").reference
    case = work.cases[0]
    text = bytes(case.data[: case.length]).decode()
    assert case.expected.tolist() == reference.encode(text, add_special_tokens=False).ids
    assert len(case.data) == 1 << 10


def test_packed_documents_cover_the_text(work: device.Work) -> None:
    packed = work.cases[-1]
    assert "packed" in packed.name
    assert packed.starts[0] == 0
    assert np.all(np.diff(packed.starts) > 0)


def test_ids_on_the_device_equal_the_references(work: device.Work) -> None:
    short = dataclasses.replace(work, cases=work.cases[:1])
    rows = list(device.measure(short, calls=1, seconds=60))
    assert [row["ids"] for row in rows] == ["equal"] * 3
    assert {row["row"].split(", ")[1] for row in rows} == {"ids on device", "ids and spans on device", "host to host"}


def test_a_difference_is_seen(work: device.Work) -> None:
    case = work.cases[0]
    good = {"status": 0, "count": len(case.expected), "ids": case.expected}
    assert device.verdict(good, case) == "equal"
    assert device.verdict({**good, "ids": case.expected + 1}, case) == "DIFFERENT"
    assert device.verdict({**good, "count": len(case.expected) - 1}, case) == "DIFFERENT"
    assert device.verdict({**good, "status": 1}, case) == "STATUS 1"


def test_rows_past_the_time_are_skipped_visibly(work: device.Work) -> None:
    rows = list(device.measure(work, calls=1, seconds=-1))
    assert len(rows) == 3 * len(work.cases)
    assert all(row["ids"].startswith("SKIPPED") for row in rows)


def test_the_mask_and_a_boundary_draw_are_measured() -> None:
    mask, draw = device_sampling.measure(small=True)
    assert "mask" in mask["row"]
    assert mask["step_us"] > 0
    assert mask["ok"] == (mask["added_us"] < device_sampling.LIMIT_US)
    assert "boundary" in draw["row"]
    assert draw["step_us"] > 0


@pytest.mark.slow
def test_the_whole_script_in_small(tmp_path: Path) -> None:
    prepared = tmp_path / "work.pkl"
    arguments = ["--small", "--tokenizer", "gpt2"]
    assert device.main([*arguments, "--prepare", str(prepared)]) == 0
    assert device.main(["--small", "--prepared", str(prepared), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "device.json").exists()
