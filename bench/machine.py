"""The origin of a benchmark's figures: machine, versions, commit and command."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "transformers")


def cpu_name() -> str:
    """The processor's name according to Linux."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = next((line for line in lines if line.startswith("model name")), platform.machine())
    return named.rpartition(":")[2].strip()


def commit() -> str:
    """The source tree's commit, with "+" if there are changes. Empty outside a git checkout."""
    try:
        out = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return out.stdout.strip()


def package_version(name: str) -> str:
    """The version of a package; empty if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def provenance() -> dict[str, Any]:
    """Where figures come from: machine, versions, commit and command."""
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "isa": os.environ.get("MLC_NATIVE_ISA") or "best",
        "python": platform.python_version(),
        **{name: package_version(name) for name in PACKAGES},
        "commit": commit(),
        "command": " ".join(["python", *sys.argv]),
    }
