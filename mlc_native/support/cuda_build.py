"""Builds the CUDA library for a GPU of this machine if the package has none.

nvcc compiles the sources in the package once for each version of the package, GPU architecture and
version of nvcc. The result stays in a cache folder. Processes that need the same build wait for the
first one.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mlc_native

if TYPE_CHECKING:
    from tqdm import tqdm

logger = logging.getLogger(__name__)

LIBRARY = "libmlc_native_cuda.so"
CACHE_VARIABLE = "MLC_NATIVE_CACHE_DIR"
MIN_NVCC = (12, 8)
_INSTALL_NVCC = (
    f"install the CUDA toolkit ({MIN_NVCC[0]}.{MIN_NVCC[1]} or later; nvcc is looked for in "
    "CUDACXX, CUDA_HOME, PATH and /usr/local/cuda), or the library: pip install 'mlc_native[cuda]'"
)
_LOG_TAIL_LINES = 30
# The same as in csrc/cmake/MlcNativeCuda.cmake and MlcNativeToolchain.cmake.
_COMPILE_FLAGS = (
    *("-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr"),
    "-Xcompiler=-fPIC,-O2,-ffp-contract=off",
)
_LINK_FLAGS = ("-shared", "-Xlinker=--no-undefined", "-Xlinker=--exclude-libs=ALL")


class CudaBuildError(RuntimeError):
    """The library could not be built. The message says what to do."""


@dataclass(frozen=True)
class Nvcc:
    """A CUDA compiler. ``version`` has three numbers, as in "13.0.88"."""

    path: str
    version: str


@dataclass(frozen=True)
class SourceTree:
    """The files that are compiled and linked: those of an installed package.

    Attributes:
        sources: folder of ``.cu`` and ``.cc`` files, which are all compiled, and their headers.
        headers: folder of the public headers.
        library: libmlc_native.so, which the result links.
    """

    sources: Path
    headers: Path
    library: Path

    @staticmethod
    def of_package() -> SourceTree:
        """The files of the running package."""
        package = Path(mlc_native.__file__).parent
        return SourceTree(
            package / "lib" / "cuda_src",
            package / "include",
            package / "lib" / "libmlc_native.so",
        )

    def units(self) -> list[Path]:
        """The files to compile. Raises CudaBuildError if the package does not have them."""
        units = sorted(p for p in self.sources.rglob("*") if p.suffix in (".cu", ".cc"))
        if not units:
            raise CudaBuildError(
                f"this installation has neither {LIBRARY} nor its sources ({self.sources})"
            )
        return units

    def digest(self) -> str:
        """A digest of the names and contents of all files that a build reads."""
        digest = hashlib.sha256()
        for folder in (self.sources, self.headers):
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{path.relative_to(folder)} {content}\n".encode())
        return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """The folder of built libraries: $MLC_NATIVE_CACHE_DIR, else the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mlc_native"


def find_nvcc() -> Nvcc | None:
    """Returns the CUDA compiler of CUDACXX, CUDA_HOME or CUDA_PATH, PATH, or /usr/local/cuda.

    Raises:
        CudaBuildError: it does not run, or is too old.
    """
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    candidates = [os.environ.get("CUDACXX"), *(home and f"{home}/bin/nvcc" for home in homes)]
    candidates += ["nvcc", "/usr/local/cuda/bin/nvcc"]
    path = next((found for c in candidates if c and (found := shutil.which(c))), None)
    if path is None:
        return None
    answer = _run([path, "--version"])
    version = re.search(r"\bV(\d+)\.(\d+)\.(\d+)", answer)
    if version is None:
        raise CudaBuildError(f"{path} is not nvcc: `{path} --version` says {answer.strip()!r}")
    if (int(version[1]), int(version[2])) < MIN_NVCC:
        raise CudaBuildError(f"{path} is nvcc {version[0][1:]}, which is too old: {_INSTALL_NVCC}")
    return Nvcc(path, version[0][1:])


def cuda_library(
    compute_capability: int, *, verbose: bool = False, tree: SourceTree | None = None
) -> Path:
    """Returns the CUDA library for GPUs of this compute capability, and builds it if needed.

    Args:
        compute_capability: 90 means 9.0.
        verbose: show the progress of a build on stderr.
        tree: what to build; default: this package.

    Raises:
        CudaBuildError: nvcc is missing or failed, or the cache cannot be written. No files are
            left, so the next call tries again.
    """
    tree = tree or SourceTree.of_package()
    units = tree.units()
    build = f"{mlc_native.__version__}-{tree.digest()}-sm_{compute_capability}"
    folder = cache_folder()
    nvcc = find_nvcc()
    if nvcc is None:  # it may have been there before
        built = sorted(folder.glob(f"{build}-nvcc-*/{LIBRARY}"))
        if not built:
            raise CudaBuildError(f"there is no nvcc: {_INSTALL_NVCC}")
        return built[-1]
    library = folder / f"{build}-nvcc-{nvcc.version}" / LIBRARY
    try:
        if not library.is_file():
            library.parent.mkdir(parents=True, exist_ok=True)
            with _locked(library.with_suffix(".lock")):
                if not library.is_file():
                    _build(nvcc, compute_capability, tree, units, library, verbose)
    except OSError as error:
        raise CudaBuildError(
            f"the cache folder {folder} cannot be used ({error}); {CACHE_VARIABLE} names another"
        ) from error
    return library


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock on the file and waits for other holders. The end of the process releases it."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("Waiting for another process to build %s", path.with_suffix(".so"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _empty_folder(path: Path) -> Iterator[Path]:
    """An empty folder, removed at the end. Removes one that a killed process has left."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _build(
    nvcc: Nvcc,
    compute_capability: int,
    tree: SourceTree,
    units: list[Path],
    library: Path,
    verbose: bool,
) -> None:
    """Compiles in a separate folder. ``library`` appears only when it is complete."""
    # All GPUs of compute capability 9.0 have what sm_90a adds to sm_90.
    architecture = f"{compute_capability}{'a' if compute_capability == 90 else ''}"
    compiler = [nvcc.path, f"-gencode=arch=compute_{architecture},code=sm_{architecture}"]
    includes = [f"-I{tree.sources}", f"-I{tree.headers}"]
    from tqdm import tqdm

    progress = tqdm(
        total=len(units) + 1,
        desc=f"Building the CUDA library for sm_{compute_capability} (once)",
        unit="file",
        leave=False,
        disable=not verbose,
    )
    with progress, _empty_folder(library.parent / "build") as folder:
        objects = [folder / f"{i}-{unit.stem}.o" for i, unit in enumerate(units)]
        commands = [
            [*compiler, *_COMPILE_FLAGS, *includes, "-c", str(unit), "-o", str(product)]
            for unit, product in zip(units, objects, strict=True)
        ]
        _run_all(commands, progress)
        product = folder / LIBRARY
        link = [*compiler, *_LINK_FLAGS, "-o", str(product)]
        _run([*link, *map(str, objects), str(tree.library), "-ldl"])
        product.replace(library)


def _run_all(commands: list[list[str]], progress: tqdm) -> None:
    """Runs commands, as many at a time as there are cores. The first failure ends all of them."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        try:
            for done in as_completed([pool.submit(_run, command) for command in commands]):
                done.result()
                progress.update()
        finally:
            pool.shutdown(cancel_futures=True)


def _run(command: list[str]) -> str:
    """Returns the output of a command on stdout and stderr. Raises CudaBuildError if it fails."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-_LOG_TAIL_LINES:])
        raise CudaBuildError(
            f"`{shlex.join(command)}` ended with exit status {done.returncode}:\n{tail}"
        )
    return done.stdout
