"""The bugs that the simulation must find can still be planted in today's sources."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    """tests/cpp/sim/planted_bugs.py, which is no package."""
    path = ROOT / "tests/cpp/sim/planted_bugs.py"
    sys.path.insert(0, str(path.parent))  # as for a program that is run
    spec = importlib.util.spec_from_file_location("planted_bugs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted_bugs"] = module
    spec.loader.exec_module(module)
    return module


PLANTED = load()
BUGS = PLANTED.BUGS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_there_is_one_place_for_the_bug(bug: object) -> None:
    text = (ROOT / "csrc" / bug.file).read_text()  # type: ignore[attr-defined]
    assert text.count(bug.old) == 1  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_copy_of_the_sources_can_be_built(tmp_path: Path) -> None:
    PLANTED.copy_sources(tmp_path)
    assert (tmp_path / PLANTED.BUILD / "build.ninja").exists()
