"""README, CHANGELOG and docs/ as tests: their code runs and their links lead somewhere.

The Python blocks of a document are executed in order, in one namespace. A comment in the line
before a block changes that for the block:

    <!-- test: compile -->      only compiled: it needs a GPU or a checkpoint of the reader's
    <!-- test: needs MODULE --> skipped where the module is missing
    <!-- test: parse -->        a shell block with commands that take too long or need more

Commands of shell blocks start with "$ ". The shell parses each of them, and the programs of this
repository that they name exist.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "bench" / "results").glob("*.md")),
]
MAX_README_LINES = 150
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\s*$")
MARK = re.compile(r"^ *<!-- test: (?P<mark>compile|parse|needs (?P<module>\w+)) -->\s*$")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
PATH = re.compile(
    r"`(?P<path>(?:csrc|include|tests|tools|bench|pyx|docs|examples|mlc_native/(?!lib/)[a-z_]+)/[\w./*{},-]*)`"
)
HEADING = re.compile(r"^#+ +(?P<title>.*?)\s*$")
OURS = re.compile(r"^(?:\./)?(?P<path>(?:tools|bench|tests|examples)/[\w./-]+\.(?:sh|py))$")


@dataclass
class Block:
    """A fenced block of a document."""

    line: int  # of the first line of code, from 1
    language: str
    mark: str  # of the comment before it, or ""
    code: str

    @property
    def needed_module(self) -> str | None:
        return self.mark.removeprefix("needs ") if self.mark.startswith("needs ") else None


def blocks_of(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        opening = FENCE.match(lines[i])
        if opening is None:
            i += 1
            continue
        mark = MARK.match(lines[i - 1]) if i > 0 else None
        end = next(j for j in range(i + 1, len(lines)) if lines[j].strip() == "```")
        indent = len(opening["indent"])
        code = "".join(line[indent:] + "\n" for line in lines[i + 1 : end])
        yield Block(i + 2, opening["language"], mark["mark"] if mark else "", code)
        i = end + 1


def commands_of(block: Block) -> list[str]:
    """The commands of a shell block; "$ " starts each, and a line may follow a backslash."""
    text = block.code.replace("\\\n", " ")
    return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a document."""
    titles = [match["title"] for line in text.splitlines() if (match := HEADING.match(line))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(document: Path) -> list[str]:
    """Relative links of a document to files or headings that are not there."""
    broken = []
    prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    for match in LINK.finditer(prose):
        target, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (document.parent / target).resolve() if target else document
        if not path.exists() or (anchor and anchor not in anchors_of(path.read_text())):
            broken.append(match["target"])
    return broken


def expand_braces(path: str) -> list[str]:
    """``a.{h,cc}`` as ``a.h`` and ``a.cc``."""
    match = re.search(r"\{([^{}]*)\}", path)
    if match is None:
        return [path]
    pieces = [path[: match.start()] + piece + path[match.end() :] for piece in match[1].split(",")]
    return [expanded for piece in pieces for expanded in expand_braces(piece)]


def missing_paths(text: str) -> list[str]:
    """Paths of this repository that a text names and that do not exist, with or without suffix."""
    named = [path for match in PATH.finditer(text) for path in expand_braces(match["path"])]
    return [
        path
        for path in named
        if not any(True for _ in ROOT.glob(path.rstrip("/")))
        and not any(True for _ in ROOT.glob(path + ".*"))
    ]


def missing_programs(command: str) -> list[str]:
    """Files of this repository that a command names and that are not there."""
    words = shlex.split(command, comments=True)
    named = [match["path"] for word in words if (match := OURS.match(word))]
    return [path for path in named if not (ROOT / path).is_file()]


def document_id(document: Path) -> str:
    return str(document.relative_to(ROOT))


def documents_with(language: str) -> list[Path]:
    return [
        document
        for document in DOCUMENTS
        if any(block.language == language for block in blocks_of(document.read_text()))
    ]


@pytest.mark.parametrize("document", documents_with("python"), ids=document_id)
def test_python_blocks_run(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(document.read_text()):
        if block.language != "python":
            continue
        # The line numbers of a traceback are those of the document.
        lines = "\n" * (block.line - 1) + block.code
        code = compile(lines, str(document), "exec", dont_inherit=True)
        module = block.needed_module
        if block.mark == "compile" or (module and importlib.util.find_spec(module) is None):
            continue
        exec(code, namespace)


@pytest.mark.parametrize("document", documents_with("console"), ids=document_id)
def test_shell_blocks_parse(document: Path) -> None:
    for block in blocks_of(document.read_text()):
        if block.language != "console":
            continue
        commands = commands_of(block)
        assert commands, f"{document.name}:{block.line}: no line starts with '$ '"
        for command in commands:
            parsed = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True)
            assert parsed.returncode == 0, f"{document.name}:{block.line}: {parsed.stderr}"
            assert missing_programs(command) == [], command


@pytest.mark.parametrize("document", DOCUMENTS, ids=document_id)
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []


# The change log may name files that are gone.
@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if d.name != "CHANGELOG.md"], ids=document_id
)
def test_named_files_exist(document: Path) -> None:
    assert missing_paths(document.read_text()) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_merges_are_finished(document: Path) -> None:
    left = re.findall(r"^(?:<{7}|={7}|>{7})(?: .*)?$", document.read_text(), re.MULTILINE)
    assert left == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


def test_the_readme_links_every_document() -> None:
    readme = (ROOT / "README.md").read_text()
    for document in (ROOT / "docs").glob("*.md"):
        assert f"(docs/{document.name})" in readme


def test_the_api_reference_is_current() -> None:
    made = subprocess.run(
        [sys.executable, "tools/make_api_docs.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr


def test_the_api_reference_has_tables_and_lists_for_those_of_docstrings() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    assert re.findall(r"=====|.{1,40}[:;] \\\* .{1,40}", text) == []


def test_contributors_install_what_the_build_requires() -> None:
    """setup.py needs it outside of pip, too."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    commands = [command for block in blocks_of(text) for command in commands_of(block)]
    words = [shlex.split(command, comments=True) for command in commands]
    installed, package = (line[2:] for line in words if line[:2] == ["pip", "install"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert installed == project["build-system"]["requires"]
    assert package == ["--no-build-isolation", "-e", ".[test]"]


def test_every_block_has_a_language() -> None:
    for document in DOCUMENTS:
        for block in blocks_of(document.read_text()):
            known = {"python", "py", "console", "text", "cpp", "cmake", "json"}  # py: signatures
            assert block.language in known, f"{document.name}:{block.line}"


# ---- the checks themselves, on planted mistakes ----


def test_blocks_have_marks_and_lines() -> None:
    text = "a\n<!-- test: compile -->\n```python\nx = 1\n```\n\n  ```console\n  $ ls\n  ```\n"
    first, second = blocks_of(text)
    assert first == Block(4, "python", "compile", "x = 1\n")
    assert (second.mark, commands_of(second)) == ("", ["ls"])


def test_broken_links_are_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# One Title\n[x](b.md) [y](a.md#one-title) [z](#two) [w](https://example.com/q)\n"
        "```python\nf[0](c.md)\n```\n"
    )
    assert broken_links(document) == ["b.md", "#two"]


def test_missing_paths_are_found() -> None:
    text = (
        "`csrc/engine_debug.{h,cc}` `csrc/threaded_engine` `csrc/kv/` `include/mlc_native/data.h` "
        "`tests/*.py` `csrc/no.{h,cc}` `include/no.h` `x/y`"
    )
    assert missing_paths(text) == ["csrc/no.h", "csrc/no.cc", "include/no.h"]


def test_missing_programs_are_found() -> None:
    assert missing_programs("tools/test.sh --fast  # it's all") == []
    assert missing_programs("python tools/no_such.py") == ["tools/no_such.py"]
