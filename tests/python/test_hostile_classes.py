"""Hostile inputs of each class are contained: a sample that differs from commit to commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from hostile import CLASSES, hostile_class  # noqa: E402
from hostile.frame import run, sample  # noqa: E402


def seed() -> int:
    """A number of the commit, or 0 where there is no repository."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(found.stdout[:12] or "0", 16)


@pytest.mark.parametrize("name", CLASSES)
def test_a_sample(name: str) -> None:
    kind = hostile_class(name)
    report = run(kind, sample(kind, seed()))
    print(report.summary())
    assert report.findings() == []


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_all(name: str) -> None:
    kind = hostile_class(name)
    report = run(kind, range(len(kind.cases)))
    print(report.summary())
    assert report.findings() == []
    names = [case.name for case in kind.cases]
    assert len(set(names)) == len(names)


def test_the_frame_finds_what_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to misbehave is a finding, and the cases behind it are tried all the same."""
    monkeypatch.setattr("hostile.frame.SILENCE_S", 5)
    kind = hostile_class("planted")
    findings = run(kind, range(len(kind.cases))).findings()
    assert [line.split(": ")[1] for line in findings] == [
        case.name for case in kind.cases if case.value != "refused"
    ]
