"""The import direction of the Python part: protocol <- serve <- server <- cli; pyx/ below serve."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {
    "errors": 0,
    "ops": 0,
    "template_sandbox": 0,
    "protocol": 1,
    "conversation": 1,
    "parsers": 1,
    "tokenizers": 1,
    "support": 1,
    "_stream_bridge": 1,
    "_text_event": 1,
    "serve": 2,
    "conversation_template": 2,
    "json_ffi": 3,
    "server": 3,
    "cli": 4,
    "interface": 5,
    "__main__": 5,
}
FREE = {"_core"}  # below everything


def imported(path: Path, package: str) -> Iterator[str]:
    """Absolute names of what a Python file of `package` imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "mlc_native":
                yield from (f"{module}.{alias.name}" for alias in node.names)
            else:
                yield module


def violations(root: Path) -> list[str]:
    """Every import of mlc_native/PART that points up, as "file: imports module"."""
    found = []
    for path in sorted((root / "mlc_native").rglob("*.py")):
        relative = path.relative_to(root / "mlc_native")
        own = relative.parts[0].removesuffix(".py")
        if own == "__init__" or own in FREE:
            continue  # the front door re-exports what serve/ offers
        assert own in LEVELS, f"{relative}: give it a level here"
        package = ".".join(["mlc_native", *relative.parts[:-1]])
        for module in set(imported(path, package)):
            names = module.split(".")
            if names[0] != "mlc_native" or len(names) < 2 or names[1] in FREE:
                continue
            if names[1] != own and LEVELS.get(names[1], 99) > LEVELS[own]:
                found.append(f"{relative.as_posix()}: imports {module}")
    return sorted(found)


def test_imports_point_down() -> None:
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("protocol/a.py", "from mlc_native.serve import engine", True),
        ("protocol/a.py", "from ..serve.engine import MLCEngine", True),
        ("protocol/a.py", "def f():\n    import mlc_native.cli.main", True),
        ("serve/a.py", "from mlc_native import cli", True),
        ("conversation.py", "import mlc_native.serve.engine", True),
        ("serve/a.py", "from ..protocol import b\nfrom . import c\nimport json", False),
        ("cli/a.py", "from mlc_native.serve import engine", False),
        ("__init__.py", "from mlc_native.serve import engine", False),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, name: str, text: str, wrong: bool) -> None:
    path = tmp_path / "mlc_native" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert bool(violations(tmp_path)) == wrong


def test_pyx_imports_nothing_of_serve() -> None:
    for path in (ROOT / "pyx").glob("*.pyx"):
        assert not re.search(r"mlc_native\.(serve|server|cli)", path.read_text()), path
