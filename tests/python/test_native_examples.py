"""The examples in Rust, Go and Node answer with the demo model. Each needs its language."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from c_library import LIBRARY

import mlc_native

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path(mlc_native.__file__).parent / "demo_model"
QUESTION = "Who are you?"
ANSWER = "I am the demo model of mlc_native"

pytestmark = [pytest.mark.nightly, pytest.mark.slow]


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment, "MLC_NATIVE_LIB_DIR": str(LIBRARY.parent)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples" / name, folder / name))


@pytest.mark.skipif(shutil.which("cargo") is None, reason="there is no Rust")
def test_rust(tmp_path: Path) -> None:
    folder = copied("rust", tmp_path)
    tested = run(
        "cargo", "test", "-q", "--offline", folder=folder, MLC_NATIVE_TEST_MODEL=str(MODEL)
    )
    assert "5 passed" in tested
    arguments = ("--example", "ask", "--", MODEL, QUESTION)
    assert ANSWER in run("cargo", "run", "-q", "--offline", *arguments, folder=folder)


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go")
def test_go(tmp_path: Path) -> None:
    include = ROOT / "include"
    library = LIBRARY.parent
    answer = run(
        *("go", "run", ".", MODEL, QUESTION),
        folder=copied("go", tmp_path),
        CGO_CFLAGS=f"-I{include}",
        CGO_LDFLAGS=f"-L{library} -Wl,-rpath,{library} -lmlc_native_c",
    )
    assert ANSWER in answer


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node")
def test_node(tmp_path: Path) -> None:
    folder = copied("node", tmp_path)
    if subprocess.run(["npm", "install", "--silent"], cwd=folder, check=False).returncode != 0:
        pytest.skip("there is no package index for Node")
    assert ANSWER in run("node", "ask.mjs", MODEL, QUESTION, folder=folder)
