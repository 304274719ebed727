"""Builds mlc_native: csrc/CMakeLists.txt for the C++ part, Cython for pyx/, and the Python files
that tools/make_arguments.py writes.

The C++ build directory is build/<tag>, so wheels, editable installs and tools/test.sh share one
incremental build. Environment: MLC_NATIVE_BUILD_TESTS=1 and MLC_NATIVE_BUILD_BENCH=1 add the C++
tests and benchmarks, CMAKE_ARGS is passed on, MAX_JOBS bounds the parallel compilers. The torch ops
are built where torch is installed; CMAKE_ARGS=-DMLC_NATIVE_OPS=ON fails where it is not.
MLC_NATIVE_STABLE_ABI=1, on CPython 3.12 or later, builds modules that CPython 3.12 and all later
ones load, and a wheel for them. A free-threaded interpreter gets modules of its own, which do not
switch its GIL on.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


def package_dir(name: str) -> Path:
    """Where a package lies, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"mlc_native: '{name}' is needed to build; pip install {name}")
    return Path(spec.submodule_search_locations[0])


def program(name: str) -> str:
    """cmake or ninja: the one of the Python package, else the system's."""
    if importlib.util.find_spec(name):
        module = importlib.import_module(name)
        return str(Path(getattr(module, "CMAKE_BIN_DIR", None) or module.BIN_DIR) / name)
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"mlc_native: '{name}' is needed to build; pip install {name}")
    return found


def jobs() -> int:
    """Parallel compilers: one per core, but each may take 2 GB."""
    if "MAX_JOBS" in os.environ:
        return max(1, int(os.environ["MAX_JOBS"]))
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return max(1, min(len(os.sched_getaffinity(0)), int(memory_gb / 2)))


def run(command: list[str | Path]) -> None:
    """Runs a build step, its output on ours; a failure is one line, not a traceback."""
    status = subprocess.run(command).returncode
    if status != 0:
        raise SystemExit(f"mlc_native: `{shlex.join(map(str, command))}` failed ({status})")


FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
STABLE_ABI = os.environ.get("MLC_NATIVE_STABLE_ABI", "0") == "1"
if STABLE_ABI and (sys.version_info < (3, 12) or FREE_THREADED):
    raise SystemExit("mlc_native: MLC_NATIVE_STABLE_ABI=1 needs CPython 3.12 or later, with a GIL")


def build_tag() -> str:
    """The name of the build directory: one for each set of compiled modules."""
    python = "cp312-abi3" if STABLE_ABI else sys.implementation.cache_tag + "t" * FREE_THREADED
    # A build with isolation sees its packages in a directory that is gone afterwards.
    isolated = "" if package_dir("nanobind").is_relative_to(sys.prefix) else "-isolated"
    return f"{python}-{sysconfig.get_platform()}{isolated}"


def places_of_tvm_ffi(package: Path) -> str:
    """Where an editable install looks for libtvm_ffi: its libraries are far from site-packages."""
    places = [Path(sysconfig.get_path("platlib")) / "tvm_ffi"]
    # A build with isolation has a tvm-ffi of its own, in a temporary folder.
    if not package.is_relative_to(tempfile.gettempdir()):
        places.append(package)
    return ";".join(dict.fromkeys(str(place / "lib") for place in places))


class CMakeExtension(Extension):
    """mlc_native._core and libmlc_native: configured, built and installed by CMake."""

    def __init__(self) -> None:
        super().__init__("mlc_native._core", sources=[], py_limited_api=STABLE_ABI)


class BuildExt(build_ext):
    """Runs CMake for the C++ part; leaves the Cython modules to setuptools."""

    def run(self) -> None:
        # setuptools clears `inplace` while it builds and then copies the modules alone.
        self.to_source = bool(self.inplace or self.editable_mode)
        super().run()

    def build_extension(self, ext: Extension) -> None:
        if not isinstance(ext, CMakeExtension):
            super().build_extension(ext)
            return
        extra = shlex.split(os.environ.get("CMAKE_ARGS", ""))
        given = [a.partition("=")[2] for a in extra if a.startswith("-DMLC_NATIVE_TVM_FFI_ROOT=")]
        tvm_ffi = Path(given[-1]) if given else package_dir("tvm_ffi")
        build_dir = ROOT / "build" / build_tag()
        build_dir.mkdir(parents=True, exist_ok=True)
        want = {key: os.environ.get(f"MLC_NATIVE_BUILD_{key}", "0") for key in ("TESTS", "BENCH")}
        cmake = program("cmake")
        options = {
            "CMAKE_MAKE_PROGRAM": program("ninja"),
            "CMAKE_BUILD_TYPE": "Release",
            "Python_EXECUTABLE": sys.executable,
            "MLC_NATIVE_PYTHON": "ON",
            "MLC_NATIVE_STABLE_ABI": "ON" if STABLE_ABI else "OFF",
            "MLC_NATIVE_OPS": "AUTO",
            "MLC_NATIVE_WITH_GRAMMAR": "ON",
            "MLC_NATIVE_TVM_FFI_ROOT": tvm_ffi,
            "MLC_NATIVE_JSON_INCLUDE": package_dir("nlohmann_json") / "include",
            "MLC_NATIVE_BUILD_TESTS": want["TESTS"],
            "MLC_NATIVE_BUILD_BENCH": want["BENCH"],
            "MLC_NATIVE_WERROR": want["TESTS"],
            "MLC_NATIVE_CUDA": "AUTO",  # CMAKE_ARGS overrides it, for one build
            "MLC_NATIVE_EXTRA_RPATH": places_of_tvm_ffi(tvm_ffi) if self.to_source else "",
        }
        defines = [f"-D{name}={value}" for name, value in options.items()]
        source = ROOT / "csrc"
        run([cmake, f"-S{source}", f"-B{build_dir}", "-GNinja", *defines, *extra])
        run([cmake, "--build", build_dir, "-j", str(jobs())])

        package = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        for prefix in [package, ROOT / "mlc_native"] if self.to_source else [package]:
            for products in ("lib", "include"):  # nothing stale in a wheel
                shutil.rmtree(prefix / products, ignore_errors=True)
            strip = [] if self.to_source else ["--strip"]
            run([cmake, "--install", build_dir, "--prefix", prefix, *strip])
        if self.to_source and "1" in want.values():
            where = ["--prefix", ROOT / "mlc_native", "--component", "development"]
            run([cmake, "--install", build_dir, *where])


def cython_extensions() -> list[Extension]:
    """pyx/NAME.pyx becomes mlc_native._NAME."""
    modules = [
        Extension(
            f"mlc_native._{path.stem}",
            [str(path.relative_to(ROOT))],
            define_macros=[("Py_LIMITED_API", "0x030C0000")] if STABLE_ABI else [],
            extra_compile_args=["-g0"],  # some interpreters add -g, which tells the folder
            extra_link_args=["-s"],
            py_limited_api=STABLE_ABI,
        )
        for path in sorted((ROOT / "pyx").glob("*.pyx"))
    ]
    return cythonize(
        modules, build_dir="build/cython", language_level=3, include_path=[str(ROOT / "pyx")]
    )


def index_page() -> str:
    """README.md for a package index, where relative links lead nowhere.

    They lead to the address of the sources, "Source" of [project.urls]; without one, they are text.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    source = project.get("urls", {}).get("Source", "").rstrip("/")
    link = rf"[\1]({source}/blob/main/\2)" if source else r"\1"
    readme = (ROOT / "README.md").read_text()
    blocks = re.split(r"(^```.*?^```$)", readme, flags=re.DOTALL | re.MULTILINE)  # code at odd ones
    blocks[::2] = [re.sub(r"\[([^\]]*)\]\((?!\w+:|#)([^)]*)\)", link, text) for text in blocks[::2]]
    return re.sub(r"^ *<!-- test: .* -->\n", "", "".join(blocks), flags=re.MULTILINE)


run([sys.executable, ROOT / "tools" / "make_arguments.py"])
setup(
    long_description=index_page(),
    long_description_content_type="text/markdown",
    ext_modules=[CMakeExtension(), *cython_extensions()],
    cmdclass={"build_ext": BuildExt},
    options={
        "build": {"build_base": f"build/setuptools-{build_tag()}"},  # no modules of another build
        "bdist_wheel": {"py_limited_api": "cp312" if STABLE_ABI else False},
    },
)
