"""The tiny shapes that the tests of every family run.

The first families run everything in every test run. The others have a compact case there
(test_families.py), because what they share is tested, and run everything at night.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from model_shapes import SHAPES

IN_EVERY_RUN = {
    "gemma", "gemma2", "gemma3_text", "granite", "llama", "mistral", "olmo2", "olmo3", "phi3",
    "qwen2", "qwen3", "qwen3_moe", "smollm3",
}  # fmt: skip
ALL = sorted(name for name in SHAPES if name.startswith("tiny-"))
COMPACT = [name for name in ALL if name.removeprefix("tiny-") not in IN_EVERY_RUN]
NIGHTLY = [pytest.mark.slow, pytest.mark.nightly]

# For parametrize and fixtures.
FAMILIES: list[Any] = [pytest.param(name, marks=NIGHTLY if name in COMPACT else []) for name in ALL]


def some_at_night(values: Sequence[Any], every_push: Container[Any]) -> list[Any]:
    """For parametrize: all values, those that are not in ``every_push`` at night only."""
    return [
        value
        if value in every_push
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=NIGHTLY)
        for value in values
    ]


def vocab_size(like: str) -> int:
    """The number of tokens of a shape."""
    shape = SHAPES[like]
    return int(shape.get("text_config", shape)["vocab_size"])
