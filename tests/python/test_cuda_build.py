"""Building the CUDA library on the user's machine: cache, concurrent processes, failures.

A script stands for nvcc; the test marked slow compiles the real sources with the real one.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlc_native import _core
from mlc_native.errors import InvalidConfig
from mlc_native.serve import model_setup
from mlc_native.support import cuda_build
from mlc_native.support.cuda_build import CudaBuildError, SourceTree, cuda_library

ROOT = Path(__file__).resolve().parents[2]

# Notes what it was asked to do. GATE names a pair of FIFOs: there it says that it is about to link,
# and goes on when it is told to.
NVCC = """#!/usr/bin/env python3
import os, pathlib, sys
here = pathlib.Path(__file__).parent
if sys.argv[1:] == ["--version"]:
    print((here / "version").read_text())
    sys.exit()
with (here / "log").open("a") as log:
    print(*sys.argv[1:], file=log)
gate = os.environ.get("GATE")
if gate and "-shared" in sys.argv:
    pathlib.Path(gate + ".started").write_text("x")
    pathlib.Path(gate + ".go").read_text()
source = next((a for a in sys.argv if a.endswith(".cu")), None)
if source and "broken" in pathlib.Path(source).read_text():
    print("\\n".join(f"line {i}" for i in range(100)))
    print("error: this is broken")
    sys.exit(7)
pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_text("built")
"""


class Workplace:
    """A package to build, a fake nvcc and a cache, all in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = SourceTree(folder / "sources", folder / "headers", folder / "libmlc_native.so")
        for name, text in {"sources/a.cu": "a", "sources/b/b.cc": "b", "headers/h.h": "h"}.items():
            self.write(name, text)
        self.nvcc = self.write("bin/nvcc", NVCC)
        self.nvcc.chmod(0o755)
        self.write("bin/version", "Cuda compilation tools, release 13.0, V13.0.88")
        self.cache = folder / "cache"

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def build(self, capability: int = 90, **kwargs: Any) -> Path:
        return cuda_library(capability, tree=self.tree, **kwargs)

    def commands(self) -> list[str]:
        """What nvcc was asked to do since the last call."""
        log = self.folder / "bin/log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    def start(self, **environment: str) -> subprocess.Popen[str]:
        """build() in a process of its own, which prints the result; its log on stderr."""
        code = (
            "import logging, sys, pathlib as p; logging.basicConfig(level='INFO')\n"
            "from mlc_native.support.cuda_build import SourceTree, cuda_library\n"
            "print(cuda_library(90, tree=SourceTree(*map(p.Path, sys.argv[1:]))))"
        )
        tree = (self.tree.sources, self.tree.headers, self.tree.library)
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, tree)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )

    def leftovers(self) -> list[str]:
        """Files in the cache that are neither libraries nor locks."""
        suffixes = (".so", ".lock")
        files = (p for p in self.cache.rglob("*") if p.is_file() and p.suffix not in suffixes)
        return [path.name for path in files]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    place = Workplace(tmp_path)
    monkeypatch.setenv("CUDACXX", str(place.nvcc))
    monkeypatch.setenv("MLC_NATIVE_CACHE_DIR", str(place.cache))
    return place


@pytest.fixture
def gate(tmp_path: Path) -> Callable[[], str]:
    """gate() makes a pair of FIFOs for the fake nvcc; wait_for and let_go use it."""
    count = 0

    def make() -> str:
        nonlocal count
        count += 1
        name = str(tmp_path / f"gate{count}")
        os.mkfifo(name + ".started")
        os.mkfifo(name + ".go")
        return name

    return make


def wait_for(gate: str) -> None:
    assert Path(gate + ".started").read_text() == "x"


def let_go(gate: str) -> None:
    Path(gate + ".go").write_text("x")


# ------------------------------------------------------------------------------------- the cache


def test_builds_once(workplace: Workplace, capfd: pytest.CaptureFixture[str]) -> None:
    library = workplace.build()
    assert library.read_text() == "built"
    assert library.is_relative_to(workplace.cache)
    compiled_a, compiled_b, linked = sorted(workplace.commands(), key=lambda c: "-shared" in c)
    assert {"a.cu", "b.cc"} == {c.split(" -o")[0].split("/")[-1] for c in (compiled_a, compiled_b)}
    assert "-gencode=arch=compute_90a,code=sm_90a" in compiled_a
    assert "libmlc_native.so" in linked
    assert workplace.build() == library
    assert workplace.commands() == []
    assert workplace.leftovers() == []
    assert capfd.readouterr() == ("", "")


def test_what_it_depends_on_is_built_again(workplace: Workplace) -> None:
    seen = {workplace.build()}

    def expect_another(capability: int = 90) -> None:
        library = workplace.build(capability)
        assert library not in seen
        seen.add(library)

    expect_another(100)
    for name in ("sources/a.cu", "sources/b/b.cc", "headers/h.h"):
        workplace.write(name, "changed")
        expect_another()
    (workplace.folder / "headers/h.h").rename(workplace.folder / "headers/g.h")
    expect_another()
    workplace.write("bin/version", "Cuda compilation tools, release 13.1, V13.1.5")
    expect_another()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLC_NATIVE_CACHE_DIR", "/a/b")
    assert cuda_build.cache_folder() == Path("/a/b")
    monkeypatch.setenv("MLC_NATIVE_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert cuda_build.cache_folder() == Path("/c/mlc_native")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cuda_build.cache_folder() == Path("/home/somebody/.cache/mlc_native")


def test_progress_only_when_verbose(
    workplace: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    workplace.build(verbose=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Building the CUDA library for sm_90 (once)" in err
    workplace.build(100)
    assert capsys.readouterr() == ("", "")


# --------------------------------------------------------------------------------------- failures


def test_a_failure_tells_why_and_is_forgotten(workplace: Workplace) -> None:
    workplace.write("sources/a.cu", "broken")
    with pytest.raises(CudaBuildError) as failed:
        workplace.build()
    message = str(failed.value)
    assert str(workplace.nvcc) in message
    assert "a.cu" in message
    assert "ended with exit status 7" in message
    assert message.endswith("line 99\nerror: this is broken")
    assert "line 50" not in message
    assert workplace.leftovers() == []
    workplace.write("sources/a.cu", "mended")
    workplace.build()
    workplace.write("sources/a.cu", "broken")
    with pytest.raises(CudaBuildError):  # the same again, not a library of the mended source
        workplace.build()


def test_without_nvcc(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_build.shutil, "which", lambda _name: None)
    with pytest.raises(CudaBuildError, match=r"no nvcc: install the CUDA toolkit \(12\.8 or later"):
        workplace.build()
    monkeypatch.undo()
    monkeypatch.setenv("CUDACXX", str(workplace.nvcc))
    monkeypatch.setenv("MLC_NATIVE_CACHE_DIR", str(workplace.cache))
    library = workplace.build()
    monkeypatch.setattr(cuda_build.shutil, "which", lambda _name: None)
    assert workplace.build() == library
    with pytest.raises(CudaBuildError, match="no nvcc"):
        workplace.build(100)


def test_an_nvcc_that_cannot_be_used(workplace: Workplace) -> None:
    workplace.write("bin/version", "Cuda compilation tools, release 12.6, V12.6.20")
    with pytest.raises(CudaBuildError, match=r"nvcc 12\.6\.20, which is too old: install"):
        workplace.build()
    workplace.write("bin/version", "gcc 14")
    with pytest.raises(CudaBuildError, match="is not nvcc"):
        workplace.build()
    (workplace.folder / "bin/version").unlink()
    with pytest.raises(CudaBuildError, match="--version` ended with exit status 1"):
        workplace.build()


def test_a_cache_that_cannot_be_written(workplace: Workplace) -> None:
    workplace.cache.write_text("a file")
    with pytest.raises(CudaBuildError, match="MLC_NATIVE_CACHE_DIR names another"):
        workplace.build()


def test_no_symbol_depends_on_the_path_of_a_source() -> None:
    """nvcc puts a hash of the path into the symbols of nameless namespaces."""
    files = sorted((ROOT / "csrc" / "kernels" / "cuda").glob("*.cu*"))
    assert len(files) > 20
    assert [file.name for file in files if "namespace {" in file.read_text()] == []


def test_a_package_without_sources(tmp_path: Path) -> None:
    tree = SourceTree(tmp_path / "sources", tmp_path / "headers", tmp_path / "lib.so")
    with pytest.raises(CudaBuildError, match=r"neither libmlc_native_cuda\.so nor its sources"):
        cuda_library(90, tree=tree)


# ------------------------------------------------------------------------------ several processes


def test_two_processes_build_once(workplace: Workplace, gate: Callable[[], str]) -> None:
    name = gate()
    first = workplace.start(GATE=name)
    wait_for(name)
    second = workplace.start()
    assert second.stderr is not None
    assert "Waiting for another process" in second.stderr.readline()
    let_go(name)
    results = {process.communicate(timeout=60)[0] for process in (first, second)}
    assert results == {f"{workplace.build()}\n"}
    assert len(workplace.commands()) == 3


def test_a_killed_build_leaves_no_lock(workplace: Workplace, gate: Callable[[], str]) -> None:
    name = gate()
    killed = workplace.start(GATE=name)
    wait_for(name)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    assert workplace.build().read_text() == "built"
    assert workplace.leftovers() == []
    let_go(name)


# ------------------------------------------------------------------------------------ the engines


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU, and a package without a CUDA library."""
    gpu = SimpleNamespace(index=1, name="Some GPU", compute_capability=90)
    monkeypatch.setattr(_core, "cuda_library_path", lambda: "")
    monkeypatch.setattr(_core, "find_gpu", lambda device: None if device == "cpu" else gpu)
    return gpu


def test_the_library_is_built_for_the_gpu(
    gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[int, bool]] = []

    def build(capability: int, *, verbose: bool) -> Path:
        asked.append((capability, verbose))
        return Path("/cache/library.so")

    monkeypatch.setattr(model_setup, "cuda_library", build)
    assert model_setup.detect_device("auto", None, True) == ("cuda:1", "/cache/library.so")
    assert model_setup.detect_device("cuda:1", None, False) == ("cuda:1", "/cache/library.so")
    assert asked == [(90, True), (90, False)]
    assert model_setup.detect_device("cpu", None, True) == ("cpu", None)
    assert model_setup.detect_device("cuda", "/my/library.so", True) == (
        "cuda:0",
        "/my/library.so",
    )
    assert len(asked) == 2
    assert caplog.records == []


def test_what_a_failed_build_does_to_an_engine(
    gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_capability: int, *, verbose: bool) -> Path:
        raise CudaBuildError("there is no nvcc")

    monkeypatch.setattr(model_setup, "cuda_library", fail)
    with pytest.raises(InvalidConfig, match='"device" cuda:1 is not available: there is no nvcc'):
        model_setup.detect_device("cuda:1", None, True)
    with caplog.at_level(logging.INFO):
        assert model_setup.detect_device("auto", None, True) == ("cpu", None)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "on the CPU" in record.message
    assert "Some GPU" in record.message
    assert "there is no nvcc" in record.message


# ------------------------------------------------------------------------------- with a real nvcc


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.hangs_after(1200)
@pytest.mark.skipif(cuda_build.find_nvcc() is None, reason="nvcc is not installed")
def test_the_real_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = cuda_build.find_nvcc()
    if shutil.which("ccache") and nvcc is not None:  # minutes, the next time seconds
        wrapper = tmp_path / "nvcc"
        wrapper.write_text(f'#!/bin/sh\nexec ccache "{nvcc.path}" "$@"\n')
        wrapper.chmod(0o755)
        monkeypatch.setenv("CUDACXX", str(wrapper))
    monkeypatch.setenv("MLC_NATIVE_CACHE_DIR", str(tmp_path))
    library = cuda_library(90, verbose=True)
    plugin = ctypes.CDLL(str(library))
    assert plugin.mlc_native_plugin_abi() == _core.testing.MODEL_PLUGIN_ABI
    assert plugin.mlc_native_create_model
    assert cuda_library(90) == library
