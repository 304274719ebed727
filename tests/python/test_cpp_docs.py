"""docs/cpp.md has a program for each public header, which builds and prints what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from test_docs import blocks_of

import mlc_native

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/cpp.md"
INCLUDE = ROOT / "include"
LIBRARIES = Path(mlc_native.__file__).parent / "lib"
MODEL = Path(mlc_native.__file__).parent / "demo_model"


def programs() -> dict[str, tuple[str, str]]:
    """By header: the program and what it prints."""
    headings = re.findall(r"^## (\S+\.h)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    blocks = list(blocks_of(PAGE.read_text(encoding="utf-8")))
    assert [block.language for block in blocks] == ["cpp", "text"] * len(headings)
    pairs = zip(blocks[::2], blocks[1::2], strict=True)
    return {
        header: (program.code, output.code)
        for header, (program, output) in zip(headings, pairs, strict=True)
    }


def test_each_public_header_has_a_program() -> None:
    headers = {path.name for path in (INCLUDE / "mlc_native").glob("*.h")} - {"mlc_native.h"}
    assert set(programs()) == headers
    for header, (program, _) in programs().items():
        assert f"#include <mlc_native/{header}>" in program


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("header", programs())
def test_a_program_prints_what_the_page_says(header: str, tmp_path: Path) -> None:
    if header == "grammar.h":
        pytest.importorskip("xgrammar")
    program, output = programs()[header]
    source = tmp_path / "program.cc"
    source.write_text(program, encoding="utf-8")
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", source, f"-I{INCLUDE}"]
    command += [f"-L{LIBRARIES}", "-lmlc_native", f"-Wl,-rpath,{LIBRARIES}", "-o", tmp_path / "run"]
    subprocess.run(command, check=True, timeout=300)
    done = subprocess.run(
        [tmp_path / "run", MODEL], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == output
