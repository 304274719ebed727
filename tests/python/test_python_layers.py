"""The import direction of the Python part: protocol <- serve <- server <- cli; pyx/ below serve."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "mlc_native"
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
    "serve": 2,
    "conversation_template": 2,
    "json_ffi": 3,
    "server": 3,
    "cli": 4,
    "interface": 5,
    "__main__": 5,
}
FREE = {"_core"}  # below everything


def part(module: str) -> str | None:
    """The first name below mlc_native: "mlc_native.serve.engine" -> "serve"."""
    names = module.split(".")
    return names[1] if names[0] == "mlc_native" and len(names) > 1 else None


def imported_parts(source: str) -> set[str]:
    """The parts of mlc_native that a Python source imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
            if node.module == "mlc_native":
                modules = [f"mlc_native.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        found |= {name for module in modules if (name := part(module))}
    return found


def violations() -> list[str]:
    """Every import that goes up, as "file: imports X"."""
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        own = relative.parts[0].removesuffix(".py")
        if own == "__init__" or own in FREE:
            continue
        assert own in LEVELS, f"{relative}: give it a level here"
        for name in imported_parts(path.read_text()) - FREE:
            if name != own and LEVELS.get(name, 99) > LEVELS[own]:
                wrong.append(f"{relative}: imports {name}")
    return wrong


def test_imports_point_down() -> None:
    assert violations() == []


def test_pyx_imports_nothing_of_serve() -> None:
    for path in (ROOT / "pyx").glob("*.pyx"):
        assert not re.search(r"mlc_native\.(serve|server|cli)", path.read_text()), path


def test_the_checker_sees_imports() -> None:
    source = "import mlc_native.serve.engine\nfrom mlc_native import cli\n"
    source += "from mlc_native.errors import InvalidRequest\n"
    assert imported_parts(source) == {"serve", "cli", "errors"}
