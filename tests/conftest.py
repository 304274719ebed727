"""Fixtures of all Python tests: model folders for the fake model, and a stop for hanging tests."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "python"))

HANG_AFTER_S = 300


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """A test that hangs ends the run with the stacks of all threads, instead of never."""
    faulthandler.dump_traceback_later(HANG_AFTER_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def fake_lib() -> str:
    """The plug-in library of the fake model (tests/cpp/fake_model)."""
    from fake_model import find_fake_model_lib

    return find_fake_model_lib()


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[..., str]:
    """make_model(**fake) writes a model folder for the fake model and returns its path."""
    from fake_model import write_model

    count = 0

    def make(**fake: Any) -> str:
        nonlocal count
        count += 1
        return write_model(tmp_path / f"model{count}", **fake)

    return make
