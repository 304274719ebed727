"""Fixtures of all Python tests: model folders for the fake model, devices, and a stop for hanging
tests.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "python"))

HANG_AFTER_S = 300
# Where stderr goes while pytest does not capture it.
_STDERR = pytest.StashKey[int]()
# How many times as long as on an idle machine; tools/test.sh measures it.
PATIENCE = int(os.environ.get("MLC_NATIVE_PATIENCE", "1"))

# What is tested as "cuda": the library that this names, on a GPU; else the one that the emulator of
# tests/cpp/cuda runs on the host.
CUDA_LIBRARY_VARIABLE = "MLC_NATIVE_CUDA_TEST_LIB"


def pytest_configure(config: pytest.Config) -> None:
    """Undoes what a shell does to jobs in the background: they and the programs that tests start
    would ignore Ctrl-C, which some tests send."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_STDERR] = os.dup(2)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What exists before the first test (torch, thousands of test items) stays: the collections
    that tests ask for need not look through it each time."""
    del session
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """The collection at the end of the process sees everything again."""
    gc.unfreeze()


def emulates_cuda() -> bool:
    """Whether there is no GPU to test on."""
    return CUDA_LIBRARY_VARIABLE not in os.environ


@pytest.fixture(autouse=True)
def _no_hang(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that hangs ends the run with the stacks of all threads, instead of never."""
    marker = request.node.get_closest_marker("hangs_after")
    limit_s = HANG_AFTER_S if marker is None else marker.args[0]
    stderr = request.config.stash[_STDERR]
    faulthandler.dump_traceback_later(limit_s * PATIENCE, exit=True, file=stderr)
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
    """Whether the fake model keeps steps in flight, like a GPU."""
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A GPU runs all tests of its device, the emulator those that are marked for it, and what takes
    long there only at night."""
    if not emulates_cuda():
        return
    kept = []
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and callspec.params.get("device") == "cuda":
            marker = item.get_closest_marker("emulated")
            if marker is None:
                continue
            if marker.kwargs.get("slow", False):
                item.add_marker(pytest.mark.slow)
                item.add_marker(pytest.mark.nightly)
        kept.append(item)
    items[:] = kept


@pytest.fixture(scope="session", params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of an engine on this device."""
    if request.param == "cpu":
        return {"device": "cpu"}
    from fake_model import find_test_library

    library = find_test_library("libmlc_native_cuda_emulated.so", CUDA_LIBRARY_VARIABLE)
    return {"device": "cuda:0", "model_lib": library}


@pytest.fixture(scope="session")
def is_cpu(device: dict[str, Any]) -> bool:
    """Whether outputs are the same bits in every way to compute them."""
    return bool(device["device"] == "cpu")


@pytest.fixture(scope="session")
def is_emulated(is_cpu: bool) -> bool:
    """Whether the host runs the kernels of a GPU: a token of the demo model takes half a second."""
    return not is_cpu and emulates_cuda()


@pytest.fixture(scope="session")
def demo(is_emulated: bool) -> str:
    """The demo model, or its draft for the emulator."""
    return "demo-draft" if is_emulated else "demo"
