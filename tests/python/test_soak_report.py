"""The judgement of bench/soak.py: noise passes, and what grows is named."""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import soak_report
from soak_report import Run, Sample

ARGS = argparse.Namespace(minutes=60, rate=8, seed=1, leak=0, max_slope=1, reload_s=300)
SAMPLE = Sample(
    minutes=0,
    rss=130,
    mapped_files=40,
    malloc_used=28,
    malloc_free=5,
    python_used=20,
    python_arenas=25,
    python_blocks=250_000,
    threads=18,
    fds=16,
    requests=0,
)


def hour(**per_hour: float) -> Run:
    """An hour with a sample each minute, with noise, reloads, and fields that grow."""
    run = Run()
    draw = random.Random(3)
    for minute in range(1, 61):
        grown = {
            name: getattr(SAMPLE, name) + amount * minute / 60 for name, amount in per_hour.items()
        }
        cache = minute % 5
        noise = {"rss": cache + draw.gauss(0, 0.3), "malloc_used": cache + draw.gauss(0, 0.1)}
        sample = replace(SAMPLE, minutes=minute, requests=480 * minute, **grown)
        for name, amount in noise.items():
            setattr(sample, name, getattr(sample, name) + amount)
        run.samples.append(sample)
    return run


def test_noise_passes() -> None:
    run = hour()
    run.count("stream", "ended", 28_000)
    text, is_good = soak_report.report(run, 0, ARGS)
    assert is_good
    assert "28000 requests, 0 faults" in text


@pytest.mark.parametrize(
    ("per_hour", "problem"),
    [
        ({"rss": 2.5}, "memory grows by 2."),
        ({"malloc_used": 2.5}, "memory in use grows by 2."),
        ({"python_used": 4}, "memory in use grows by 4."),
        ({"python_used": 4, "malloc_used": -4}, "Python's small objects grows by 4."),
        ({"threads": 12}, "more threads at the end"),
        ({"fds": 12}, "more open files at the end"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_grows_is_named(per_hour: dict[str, float], problem: str) -> None:
    text, is_good = soak_report.report(hour(**per_hour), 0, ARGS)
    assert not is_good
    assert problem in text


def test_a_fault_a_status_and_too_few_samples_are_problems() -> None:
    lost = hour()
    lost.count("stream", "lost: it ended early")
    for run, status, problem in (
        (lost, 0, "stream: lost it ended early"),
        (hour(), 7, "the subject ended with status 7"),
        (Run(), 0, "only 0 samples"),
    ):
        text, is_good = soak_report.report(run, status, ARGS)
        assert not is_good
        assert problem in text
