"""The pieces that the program cuts are those that the reference's model sees: a wrong cut can hide behind right ids."""

from __future__ import annotations

from .conftest import Outcome, Subject


def test_pieces(outcome: Outcome, subject: Subject) -> None:
    assert outcome.differences.get("pieces") is None, outcome.differences["pieces"]
    assert subject.oracle.blind is None
    assert outcome.report.pieces > 150
