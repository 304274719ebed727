"""Fixtures of all Python tests: model folders for the fake model, devices, and a stop for hanging
tests.
"""

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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of modules marked with both_step_kinds that use the fake model run on both."""
    wanted = metafunc.definition.get_closest_marker("both_step_kinds")
    if wanted is not None and "run_ahead" in metafunc.fixturenames:
        metafunc.parametrize("run_ahead", [False, True], ids=["sync", "ahead"])


@pytest.fixture
def run_ahead() -> bool:
    """Whether the fake model computes its steps beside the engine, as a GPU does."""
    return False


@pytest.fixture
def make_model(tmp_path: Path, run_ahead: bool) -> Callable[..., str]:
    """make_model(**fake) writes a model folder for the fake model and returns its path."""
    from fake_model import write_model

    count = 0
    steps = {"run_ahead": True} if run_ahead else {}

    def make(**fake: Any) -> str:
        nonlocal count
        count += 1
        return write_model(tmp_path / f"model{count}", **steps, **fake)

    return make


@pytest.fixture(scope="session", params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of an engine on this device. CUDA's kernels are run by the emulator of
    tests/cpp/cuda, or by what $MLC_NATIVE_CUDA_TEST_LIB names: the real library, on a GPU.
    """
    if request.param == "cpu":
        return {"device": "cpu"}
    from fake_model import find_test_library

    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_TEST_LIB")
    return {"device": "cuda:0", "model_lib": library}
