"""mlc_native/_core.pyi says what the compiled module offers, no more and no less."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "mlc_native"
UPDATE = "python -m nanobind.stubgen -q -m mlc_native._core -o mlc_native/_core.pyi"


def generated(out: Path) -> str:
    """The stub of the installed module, as nanobind's generator writes it now."""
    command = [sys.executable, *UPDATE.split()[1:-1], str(out)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=out.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return out.read_text()


def test_stub_matches_the_module(tmp_path: Path) -> None:
    new = generated(tmp_path / "_core.pyi")
    assert "class ThreadedEngine" in new
    kept = (PACKAGE / "_core.pyi").read_text()
    diff = difflib.unified_diff(
        kept.splitlines(), new.splitlines(), "kept", "generated", lineterm="", n=1
    )
    assert kept == new, f"the stub is out of date; run:  {UPDATE}\n" + "\n".join(diff)


def test_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
