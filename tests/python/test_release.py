"""tools/release.sh: two runs in two folders give the same bytes, and what they give works."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.packaging,
    pytest.mark.hangs_after(7200),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout"),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("Cython", "nanobind", "torch")),
        reason="the requirements of a release are not installed",
    ),
]


PLATFORM, MACHINE = "manylinux_2_28", platform.machine()
# What a release consists of, and the ends of the names of its wheels. Each row is built by itself.
KINDS = {
    "abi3 aarch64": [f"cp312-abi3-{PLATFORM}_{MACHINE}", f"cp312-abi3-{PLATFORM}_aarch64"],
    "cp311": [f"cp311-cp311-{PLATFORM}_{MACHINE}"],
    "free-threaded": [f"t-{PLATFORM}_{MACHINE}"],
    "cuda": [f"py3-none-{PLATFORM}_{MACHINE}"],
}
# nvcc 13.0 makes other code of gemv.cu from run to run, and RECORD has the digest of the library.
DIFFERENT = {"cuda": ("libmlc_native_cuda.so", "RECORD")}


def find_python(minors: Iterable[int], condition: str) -> str | None:
    """A CPython with its headers for which an expression holds, or None."""
    found = [shutil.which(f"python3.{minor}") for minor in minors]
    pyenv = (Path.home().glob(f".pyenv/versions/3.{minor}*/bin/python") for minor in minors)
    program = (
        "import os, sys, sysconfig as s, venv, ensurepip; raise SystemExit("
        f"not ({condition}) or not os.path.exists(s.get_path('include') + '/Python.h'))"
    )
    for candidate in filter(None, [*found, *map(str, sorted(itertools.chain(*pyenv)))]):
        if subprocess.run([candidate, "-c", program], capture_output=True).returncode == 0:
            return str(candidate)
    return None


def pythons_for(kinds: str) -> dict[str, str]:
    """The variables that name the interpreters of a release. Skips what cannot be built here."""
    later = find_python((12, 13, 14), "sys.version_info >= (3, 12)")
    if later is None:
        pytest.skip("no CPython from 3.12 on")
    named = {"MLC_NATIVE_PYTHON312": later}
    if kinds == "cp311":
        python = find_python((11,), "sys.version_info[:2] == (3, 11)")
        if python is None:
            pytest.skip("no CPython 3.11")
        named["MLC_NATIVE_PYTHON311"] = python
    if kinds == "free-threaded":
        given = os.environ.get("MLC_NATIVE_FREE_THREADED_PYTHONS", "python3.13t python3.14t")
        if not any(map(shutil.which, given.split())):
            pytest.skip("no free-threaded CPython")
    if kinds == "cuda" and shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    return named


def release(clone: Path, kinds: str, pythons: dict[str, str]) -> Path:
    """Builds a release of HEAD in a clone of its own, without ccache. Returns its folder."""
    subprocess.run(["git", "clone", "-q", "--shared", ROOT, clone], check=True)
    environment = {
        **{k: v for k, v in os.environ.items() if k not in ("CMAKE_ARGS", "PYTHONPATH")},
        "CCACHE_DISABLE": "1",
        "MLC_NATIVE_VENV": sys.prefix,
        **pythons,
    }
    done = subprocess.run(
        ["bash", "tools/release.sh", "--only", kinds, "dist"],
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return clone / "dist"


def differences(first: Path, second: Path) -> list[str]:
    """The members of two wheels that differ."""
    with zipfile.ZipFile(first) as a, zipfile.ZipFile(second) as b:
        names = sorted(set(a.namelist()) | set(b.namelist()))
        return [n for n in names if n not in a.namelist() or a.read(n) != b.read(n)]


def check_files(folder: Path) -> None:
    """The checksums, the bill of materials and the checks are those of the wheels."""
    wheels = {wheel.name: wheel for wheel in folder.glob("*.whl")}
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    bill = json.loads((folder / "mlc_native.cdx.json").read_text())
    listed = {c["name"]: c for c in bill["components"]}
    assert {*wheels, "nanobind", "libstdc++"} <= set(listed)
    version = bill["metadata"]["component"]["version"]
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [n for n in archive.namelist() if n.endswith("/METADATA")]
            metadata = Metadata.from_email(archive.read(name), validate=False)
        assert str(metadata.version) == version
        if metadata.name == "mlc_native":
            assert "numpy" in listed
            assert listed["torch"]["scope"] == "optional"
            assert wheel.stat().st_size < 20e6
            checks = [json.loads(x) for x in (folder / "checks.jsonl").read_text().splitlines()]
            assert wheel.name in {check["wheel"] for check in checks}


@pytest.mark.parametrize("kinds", KINDS)
def test_two_releases_are_the_same(tmp_path: Path, kinds: str) -> None:
    """In folders whose paths have different lengths, from scratch. The wheels are checked by it."""
    pythons = pythons_for(kinds)
    first = release(tmp_path / "a", kinds, pythons)
    second = release(tmp_path / "another/folder", kinds, pythons)
    wheels = sorted(first.glob("*.whl"))
    for end in KINDS[kinds]:
        assert any(wheel.stem.endswith(end) for wheel in wheels), (end, wheels)
    different = [n for wheel in wheels for n in differences(wheel, second / wheel.name)]
    assert [n for n in different if Path(n).name not in DIFFERENT.get(kinds, ())] == []
    if kinds not in DIFFERENT:
        assert (first / "SHA256SUMS").read_text() == (second / "SHA256SUMS").read_text()
    check_files(first)


def test_the_bill_of_materials_fits_its_schema(tmp_path: Path) -> None:
    """That of CycloneDX 1.6, which cyclonedx-python-lib carries."""
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    wheel = tmp_path / "mlc_native-0.1.0-py3-none-any.whl"
    metadata = "Metadata-Version: 2.4\nName: mlc_native\nVersion: 0.1.0\n"
    metadata += "Requires-Dist: numpy>=2\nRequires-Dist: torch; extra == 'ops'\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("mlc_native-0.1.0.dist-info/METADATA", metadata)
    command = [sys.executable, ROOT / "tools/make_sbom.py", wheel]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    validator = validation.JsonStrictValidator(schema.SchemaVersion.V1_6)
    assert validator.validate_str(done.stdout) is None
    damaged = done.stdout.replace('"type": "file"', '"type": "fil"')
    assert validator.validate_str(damaged) is not None
