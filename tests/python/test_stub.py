"""mlc_native/_core/*.pyi say what the compiled module offers, no more and no less."""

from __future__ import annotations

import ast
import difflib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mlc_native import _stream_bridge, _text_event

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "mlc_native"
PATTERNS = "tools/stub_patterns.txt"
UPDATE = f"python -m nanobind.stubgen -q -p {PATTERNS} -r -m mlc_native._core -O mlc_native"


def stubs(package: Path) -> dict[str, str]:
    """File name to text of the stubs of _core below a package folder."""
    return {path.name: path.read_text() for path in (package / "_core").glob("*.pyi")}


def generated(out: Path) -> dict[str, str]:
    """The stubs of the installed module, as nanobind's generator writes them now."""
    arguments = [str(ROOT / arg) if arg == PATTERNS else arg for arg in UPDATE.split()[1:-1]]
    command = [sys.executable, *arguments, str(out)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=out)
    assert done.returncode == 0, done.stdout + done.stderr
    return stubs(out)


def test_stubs_match_the_module(tmp_path: Path) -> None:
    new, kept = generated(tmp_path), stubs(PACKAGE)
    assert "class ThreadedEngine" in new["__init__.pyi"]
    advice = f"the stubs are out of date; run:  {UPDATE}"
    assert sorted(new) == sorted(kept), advice
    for name, text in new.items():
        lines = difflib.unified_diff(
            kept[name].splitlines(), text.splitlines(), "kept", "generated", lineterm="", n=1
        )
        assert kept[name] == text, "\n".join([advice, *lines])


@pytest.mark.parametrize("module", [_stream_bridge, _text_event], ids=lambda m: m.__name__)
def test_the_stubs_of_cython_modules_have_their_names(module: ModuleType) -> None:
    tree = ast.parse((PACKAGE / f"{module.__name__.rpartition('.')[2]}.pyi").read_text())
    stubbed = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    compiled = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    assert set(stubbed) == set(compiled)
    for name, cls in compiled.items():
        public = {member for member in vars(cls) if not member.startswith("_")}
        written = {node.name for node in stubbed[name].body if isinstance(node, ast.FunctionDef)}
        written |= {n.name for n in stubbed[name].body if isinstance(n, ast.AsyncFunctionDef)}
        assert {member for member in written if not member.startswith("_")} == public


def test_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
