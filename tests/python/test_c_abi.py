"""mlc_native.h against the dump of what version 1.0 declared (Debian: abigail-tools)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data"
HEADER = ROOT / "include/mlc_native/mlc_native.h"

sys.path.insert(0, str(ROOT / "tools"))
from mlcn_abi import dump  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("abidiff") is None, reason="there is no abidiff")


# What a report says about a struct that has grown at its end.
PATHS = re.compile(
    r"(?:Functions|Variables) changes summary: .*"
    r"|\d+ functions? with some indirect sub-type changes?:"
    r"|\[C\] 'function .*' has some (?:indirect )?sub-type changes:|parameter \d+ of type .*"
    r"|return type changed:"
    r"|in (?:pointed to|unqualified underlying) type .*|underlying type 'struct \w+' changed:"
    r"|\d+ data member insertions?:|"
)
SIZE = re.compile(r"type size changed from (?P<old>\d+) to \d+ \(in bits\)")
INSERTED = re.compile(r"'.*', at offset (?P<offset>\d+) \(in bits\)")


def differences(header: Path, folder: Path) -> list[str]:
    """What is not as in version 1.0, except functions and members at the end that are new."""
    now = folder / "now.abi"
    dump(header, now)
    command = ["abidiff", "--no-added-syms", DATA / "mlcn_1_0.abi", now]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 4, 8, 12), done.stderr  # 1 and 2: it has failed
    found = []
    size_before = sys.maxsize
    for line in map(str.strip, done.stdout.splitlines()):
        if size := SIZE.fullmatch(line):
            size_before = int(size["old"])
            continue
        member = INSERTED.fullmatch(line)
        is_growth = member is not None and int(member["offset"]) >= size_before
        if not is_growth and not PATHS.fullmatch(line):
            found.append(line)
    if "0 Removed" not in done.stdout and done.returncode:
        found.append(done.stdout)
    return found


def test_programs_of_version_1_0_find_what_they_were_compiled_against(tmp_path: Path) -> None:
    assert differences(HEADER, tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("MLCN_API void mlcn_free(void* memory);", ""),
        ("int64_t timeout_ms, mlcn_error** error);", "int32_t timeout_ms, mlcn_error** error);"),
        ("  int32_t finish_reason; /*", "  int64_t finish_reason; /*"),
        ("  int64_t cached_tokens;", "  int64_t others; int64_t cached_tokens;"),
        ("  const char* request_id;\n", ""),
        ("MLCN_API size_t mlcn_outputs_count(", "MLCN_API int32_t mlcn_outputs_count("),
        ("  const mlcn_usage* usage;  ", "  const float* others; const mlcn_usage* usage;  "),
        ("MLCN_LOG_ERROR = 1", "MLCN_LOG_ERROR = 1"),  # nothing
    ],
)
def test_other_changes_are_found(tmp_path: Path, old: str, new: str) -> None:
    text = HEADER.read_text(encoding="utf-8")
    assert old in text
    changed = tmp_path / "mlc_native.h"
    changed.write_text(text.replace(old, new), encoding="utf-8")
    assert (differences(changed, tmp_path) == []) == (old == new)
