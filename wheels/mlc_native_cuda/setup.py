"""Builds mlc_native_cuda: libmlc_native_cuda.so, and the torch ops on it where torch is found.

Drives csrc/CMakeLists.txt of the repository this folder is in, for the CUDA part alone. Needs nvcc
12.8 or later and no GPU. Environment: CMAKE_ARGS is passed on, MAX_JOBS bounds the parallel
compilers. Any Python 3 takes the wheel, because nothing in it is linked with Python.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path) -> None:
    """Runs a build step, its output on ours; a failure is one line, not a traceback."""
    status = subprocess.run(list(map(str, command))).returncode
    if status != 0:
        raise SystemExit(f"mlc_native_cuda: `{shlex.join(map(str, command))}` failed ({status})")


class BuildPy(build_py):
    """Adds the libraries to the package, as mlc_native_cuda/lib."""

    def run(self) -> None:
        super().run()
        build = ROOT / "build" / f"cuda-{sysconfig.get_platform()}"
        build.mkdir(parents=True, exist_ok=True)
        json = importlib.util.find_spec("nlohmann_json")
        if json is None or not json.submodule_search_locations:
            raise SystemExit("mlc_native_cuda: pip install nlohmann-json")
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "Python_EXECUTABLE": sys.executable,
            "MLC_NATIVE_CUDA": "ON",
            "MLC_NATIVE_CUDA_ARCHITECTURES": "release",
            "MLC_NATIVE_PYTHON": "OFF",
            "MLC_NATIVE_WITH_GRAMMAR": "OFF",
            "MLC_NATIVE_JSON_INCLUDE": Path(json.submodule_search_locations[0]) / "include",
        }
        defines = [f"-D{name}={value}" for name, value in options.items()]
        extra = shlex.split(os.environ.get("CMAKE_ARGS", ""))
        jobs = os.environ.get("MAX_JOBS", str(len(os.sched_getaffinity(0))))
        run("cmake", f"-S{ROOT / 'csrc'}", f"-B{build}", "-GNinja", *defines, *extra)
        run("cmake", "--build", build, "-j", jobs, "--target", "mlc_native_cuda_package")
        package = Path(self.build_lib) / "mlc_native_cuda"
        shutil.rmtree(package / "lib", ignore_errors=True)  # nothing stale
        run("cmake", "--install", build, "--component", "cuda", "--strip", "--prefix", package)


class AnyPython(bdist_wheel):
    """Tags the wheel for this platform and every Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    """A distribution for one platform, although setuptools compiles nothing of it."""

    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildPy, "bdist_wheel": AnyPython}, distclass=BinaryDistribution)
