"""tools/release.sh: two runs in two folders give the same bytes, and what they give works."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
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


def later_python() -> str | None:
    """A CPython from 3.12 on, with its headers, or None."""
    found = [shutil.which(f"python3.{minor}") for minor in (12, 13, 14)]
    candidates = [*found, *sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python"))]
    program = (
        "import os, sys, sysconfig as s, venv, ensurepip; raise SystemExit("
        "sys.version_info < (3, 12) or not os.path.exists(s.get_path('include') + '/Python.h'))"
    )
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-c", program], capture_output=True).returncode == 0:
            return str(candidate)
    return None


def release(clone: Path, python: str, wheels: str) -> Path:
    """Builds a release of HEAD in a clone of its own, without ccache. Returns its folder."""
    subprocess.run(["git", "clone", "-q", "--shared", ROOT, clone], check=True)
    environment = {
        **{k: v for k, v in os.environ.items() if k not in ("CMAKE_ARGS", "PYTHONPATH")},
        "CCACHE_DISABLE": "1",
        "MLC_NATIVE_VENV": sys.prefix,
        "MLC_NATIVE_PYTHON312": python,
    }
    done = subprocess.run(
        ["bash", "tools/release.sh", "--only", wheels, "dist"],
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


def test_two_releases_are_the_same(tmp_path: Path) -> None:
    """In folders whose paths have different lengths, from scratch. The wheels are checked by it."""
    python = later_python()
    if python is None:
        pytest.skip("no CPython from 3.12 on")
    first = release(tmp_path / "a", python, "abi3 aarch64")
    second = release(tmp_path / "another/folder", python, "abi3 aarch64")
    (x86, arm) = sorted(first.glob("*.whl"), key=lambda wheel: "aarch64" in wheel.name)
    assert "cp312-abi3-manylinux_2_28_" in x86.name
    assert arm.name.endswith("cp312-abi3-manylinux_2_28_aarch64.whl")
    for wheel in (x86, arm):
        assert differences(wheel, second / wheel.name) == []
        assert wheel.stat().st_size < 20e6
    assert (first / "SHA256SUMS").read_text() == (second / "SHA256SUMS").read_text()
    for line in (first / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((first / name).read_bytes()).hexdigest() == digest
    bill = json.loads((first / "mlc_native.cdx.json").read_text())
    listed = {c["name"]: c for c in bill["components"]}
    assert {x86.name, arm.name, "nanobind", "libstdc++", "numpy"} <= set(listed)
    assert listed["torch"]["scope"] == "optional"
    with zipfile.ZipFile(x86) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("/METADATA")]
        version = Metadata.from_email(archive.read(name), validate=False).version
    assert bill["metadata"]["component"]["version"] == str(version)
    checks = [json.loads(line) for line in (first / "checks.jsonl").read_text().splitlines()]
    assert {check["wheel"] for check in checks} == {x86.name, arm.name}


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
