"""No C++ test file is silently left out: each has tests, and a program that ctest runs has them.

Uses the build directory named by MLC_NATIVE_BUILD_DIR (tools/test.sh sets it).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1] / "cpp"
# The fuzzer has inputs instead, and benchmarks run with tiny shapes.
WITHOUT_TESTS = {"mlc_native_fuzz", "cuda_kernels_emulated", "cuda_micro_emulated"}
TEST_MACRO = re.compile(
    r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE
)


def macros_of(source: str) -> set[tuple[str, str]]:
    """(suite, test) of every test macro in a C++ source."""
    return {(suite, test) for suite, test in TEST_MACRO.findall(source)}


def listed(names: list[str], suite: str, test: str) -> bool:
    """Whether the names hold the test, with the decorations of instantiated suites."""
    pattern = re.compile(rf"(^|/){suite}(/[^.]*)?\.{test}(/.*)?$")
    return any(pattern.search(name) for name in names)


def names_listed(listing: str) -> list[str]:
    """SUITE.TEST for each line of a program's answer to --gtest_list_tests."""
    names, suite = [], ""
    for line in listing.splitlines():
        name = line.split("  #")[0].rstrip()
        if name.startswith("  "):
            names.append(suite + name.strip())
        elif name.endswith("."):
            suite = name
    return names


def test_every_test_file_has_tests() -> None:
    files = sorted(TESTS.rglob("*_test.cc"))
    assert files, "no C++ tests found"
    assert [str(f) for f in files if not macros_of(f.read_text())] == []


def ctest_programs(build_dir: str) -> list[str]:
    """The programs that ctest runs, none with arguments, which could leave tests out."""
    command = ["ctest", "--test-dir", build_dir, "--show-only=json-v1"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    entries = json.loads(answer)["tests"]
    return programs_of([e for e in entries if Path(e["command"][0]).name not in WITHOUT_TESTS])


def programs_of(entries: list[dict[str, Any]]) -> list[str]:
    """The programs of ctest's entries, each once; of what is run in shards, all must be there."""
    assert [e["name"] for e in entries if len(e["command"]) != 1] == []
    shards: dict[tuple[str, ...], list[int]] = {}  # by the ways to run a program
    totals: dict[tuple[str, ...], int] = {}
    for entry in entries:
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        variables = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []))
        total = int(variables.pop("GTEST_TOTAL_SHARDS", "1"))
        index = int(variables.pop("GTEST_SHARD_INDEX", "0"))
        way = (*entry["command"], *(f"{name}={value}" for name, value in variables.items()))
        assert totals.setdefault(way, total) == total, way
        shards.setdefault(way, []).append(index)
    assert {way: sorted(indices) for way, indices in shards.items()} == {
        way: list(range(total)) for way, total in totals.items()
    }
    return sorted({way[0] for way in shards})


def test_ctest_runs_every_test() -> None:
    build_dir = os.environ.get("MLC_NATIVE_BUILD_DIR")
    if not build_dir or not shutil.which("ctest"):
        pytest.skip("needs MLC_NATIVE_BUILD_DIR and ctest (tools/test.sh gives both)")
    names: list[str] = []
    for program in ctest_programs(build_dir):
        command = [program, "--gtest_list_tests"]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        names += names_listed(listing)
    missing = [
        f"{path.relative_to(TESTS)}: {suite}.{test}"
        for path in sorted(TESTS.rglob("*_test.cc"))
        for suite, test in sorted(macros_of(path.read_text()))
        if not test.startswith("DISABLED_") and not listed(names, suite, test)
    ]
    assert missing == []


def test_the_shards_of_a_program() -> None:
    def entry(total: int, index: int, *more: str) -> dict[str, Any]:
        values = [f"GTEST_TOTAL_SHARDS={total}", f"GTEST_SHARD_INDEX={index}", *more]
        properties = [{"name": "ENVIRONMENT", "value": values}]
        return {"name": "a", "command": ["a_test"], "properties": properties}

    whole = {"name": "b", "command": ["b_test"]}
    assert programs_of([entry(2, 1), entry(2, 0), whole]) == ["a_test", "b_test"]
    for incomplete in (
        [entry(2, 0)],
        [entry(2, 0), entry(2, 0)],
        [entry(2, 0), entry(3, 1)],
        [entry(2, 0), entry(2, 1, "MODE=1")],
    ):
        with pytest.raises(AssertionError):
            programs_of(incomplete)


def test_the_macro_reader() -> None:
    source = "TEST(A, B) {}\n  TEST_F(C,\n   D) {}\nTYPED_TEST(E, F) {}\n// TEST(G, H)\n"
    source += "TEST_P(I, J)"
    assert macros_of(source) == {("A", "B"), ("C", "D"), ("E", "F"), ("I", "J")}
    names = ["A.B", "C.D", "E/0.F", "All/I.J/k"]
    assert all(listed(names, s, t) for s, t in macros_of(source))
    assert not listed(names, "A", "C")


def test_the_listing_reader() -> None:
    listing = "Running main() from gtest_main.cc\nA.\n  B\nE/0.  # TypeParam = int\n  F\n"
    listing += "All/I.\n  J/k  # GetParam() = 3\n"
    assert names_listed(listing) == ["A.B", "E/0.F", "All/I.J/k"]
