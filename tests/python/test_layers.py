"""The architecture as a test: include direction of C++, import direction of mlc_native/.

A C++ file includes only files of a lower level or of its own group, and no two units depend on each
other: a header and its source files are one unit, a public header is one by itself. In Python,
protocol knows nothing of serve, and serve nothing of cli. The checkers themselves are tested on
temporary trees with one planted violation each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"

# A level is a folder. models/cuda is a library of its own on the folders below it.
FOLDERS = {
    "support": 0,
    "config": 1,
    "kernels": 1,
    "model_files": 1,
    "checkpoint": 2,
    "draft": 2,
    "grammar": 2,
    "kv": 2,
    "observe": 2,
    "sampling": 2,
    "template": 2,
    "tokenizer": 2,
    "arch": 3,
    "request": 3,
    "weights": 4,
    "models": 5,
    "models/cuda": 6,
    "step": 6,
    "bindings": 8,
    "c_api": 8,
    "torch_ops": 8,
}
# The drivers lie at the root; engine_state is the state that request/ and step/ work on.
ROOT_FILES = {
    "engine_state": (3, "request"),
    "engine": (7, "drivers"),
    "threaded_engine": (7, "drivers"),
}
# The public headers, in include/: each belongs to the group that implements it.
PUBLIC_HEADERS = {
    "mlc_native/detail/basic_types.h": (0, "support"),
    "mlc_native/detail/dtype.h": (0, "support"),
    "mlc_native/detail/export.h": (0, "support"),
    "mlc_native/detail/log.h": (0, "support"),
    "mlc_native/detail/page.h": (0, "support"),
    "mlc_native/detail/token_block.h": (0, "support"),
    "mlc_native/errors.h": (0, "support"),
    "mlc_native/detail/field.h": (1, "config"),
    "mlc_native/detail/embedding_config.h": (1, "config"),
    "mlc_native/detail/engine_config.h": (1, "config"),
    "mlc_native/detail/weight_quantization.h": (1, "config"),
    "mlc_native/detail/generation_config.h": (1, "config"),
    "mlc_native/config.h": (1, "config"),
    "mlc_native/data.h": (1, "config"),
    "mlc_native/grammar.h": (2, "grammar"),
    "mlc_native/tokenizer.h": (2, "tokenizer"),
    "mlc_native/model.h": (5, "models"),
    "mlc_native/engine.h": (7, "drivers"),
    "mlc_native/mlc_native.h": (8, "c_api"),
    "mlc_native/threaded_engine.h": (7, "drivers"),
}
SUFFIXES = {".h", ".cc", ".inl", ".cuh", ".cu"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
STABLE_TORCH = re.compile(r"^torch/(csrc/stable|headeronly)/")
GRAMMAR = re.compile(r"^(tvm|xgrammar|dlpack)/")
PYTHON = re.compile(r"^(nanobind/|pybind11/|Python\.h$)")
THREADS = {"thread", "mutex", "shared_mutex", "condition_variable", "future", "semaphore"}
# Of a level that knows no threads, those that have one for each GPU.
WITH_THREADS = {"models/cuda/peers", "models/cuda/rank_threads"}


def place(path: str) -> tuple[int, str] | None:
    """Level and group of a path relative to csrc/ or include/; None when no table knows it."""
    if path.startswith("mlc_native/"):
        return PUBLIC_HEADERS.get(path)
    folder, _, name = path.rpartition("/")
    if folder:
        # models/cuda is a library on top of the others: the innermost folder with a level counts.
        while folder not in FOLDERS and "/" in folder:
            folder = folder.rpartition("/")[0]
        return (FOLDERS[folder], folder) if folder in FOLDERS else None
    # config_json.cc belongs to config: the longest name that is a prefix, on a word boundary.
    stem = Path(name).stem
    known = [n for n in ROOT_FILES if stem == n or stem.startswith(n + "_")]
    return ROOT_FILES[max(known, key=len)] if known else None


def sources(csrc: Path) -> Iterator[tuple[str, Path]]:
    """The C++ files of csrc/ and include/, by the path that an include names."""
    for root in (csrc, csrc.parent / "include"):
        for path in sorted(p for p in root.rglob("*") if p.suffix in SUFFIXES):
            yield path.relative_to(root).as_posix(), path


def check_ours(source: str, target: str, csrc: Path) -> str | None:
    """What is wrong with `#include "target"` in source, or None."""
    here, there = place(source), place(target)
    assert here is not None
    if there is None or not any((r / target).is_file() for r in (csrc, csrc.parent / "include")):
        return f'"{target}" is no file that the tables know (includes name it from csrc or include)'
    if source.startswith("mlc_native/") and not target.startswith("mlc_native/"):
        return f'a public header includes "{target}", which is not installed'
    if here == there:
        return None
    if there[0] >= here[0]:
        return f'level {here[0]} ({here[1]}) includes "{target}" of level {there[0]} ({there[1]})'
    if here[1] == "kv" and there[0] > 0:
        return f'kv/ knows integers only: "{target}" is of level {there[0]}'
    if there[1] == "step" and here[1] == "drivers" and Path(source).stem != "engine":
        return f'only engine.cc includes step/: "{target}"'
    return None


def check_foreign(source: str, target: str) -> str | None:
    """What is wrong with `#include <target>` in source, or None."""
    here = place(source)
    assert here is not None
    level, group = here
    if TORCH.match(target):
        if group != "torch_ops":
            return f"<{target}>: torch is only for csrc/torch_ops"
        if not STABLE_TORCH.match(target):
            return f"<{target}>: not part of torch's stable ABI"
    elif GRAMMAR.match(target):
        if not source.startswith(("grammar/xgrammar/", "grammar/worker/")):
            return f"<{target}>: tvm-ffi is only for csrc/grammar/{{xgrammar,worker}}"
    elif PYTHON.match(target):
        if group != "bindings":
            return f"<{target}>: Python is only for csrc/bindings"
    elif target.startswith("nlohmann/"):
        if source != "support/json.cc":
            return f'<{target}>: only support/json.cc sees it; include "support/json.h"'
    elif (
        target in THREADS
        and (group == "kv" or level in (3, 6))
        and source.rpartition(".")[0] not in WITH_THREADS
    ):
        return f"<{target}>: {group} knows no threads"
    return None


def violations(csrc: Path) -> list[str]:
    """Every broken rule below csrc, as "file: reason"."""
    found = []
    for source, path in sources(csrc):
        if place(source) is None:
            found.append(f"{source}: give it a level in tests/python/test_layers.py")
            continue
        text = path.read_text(encoding="utf-8")
        for quote, target in INCLUDE.findall(text):
            if quote == '"':
                wrong = check_ours(source, target, csrc)
            else:
                wrong = check_foreign(source, target)
            if wrong:
                found.append(f"{source}: {wrong}")
        if path.suffix in {".h", ".inl"} and re.search(r"^\s*using namespace", text, re.MULTILINE):
            found.append(f"{source}: `using namespace` in a header")
    return found


def test_includes_point_down() -> None:
    assert len(list(CSRC.rglob("*.h"))) > 20, "csrc/ not found or nearly empty"
    assert violations(CSRC) == []


def unit_includes(csrc: Path) -> dict[str, dict[str, str]]:
    """What each unit of csrc includes of the others: unit -> {other unit: a file that does it}.

    A unit is a header with its source files: kv/page_pool is kv/page_pool.h and kv/page_pool.cc.
    """
    units: dict[str, dict[str, str]] = {}
    for source, path in sources(csrc):
        others = units.setdefault(Path(source).with_suffix("").as_posix(), {})
        for quote, target in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if quote == '"':
                others.setdefault(Path(target).with_suffix("").as_posix(), source)
    return {
        unit: {other: file for other, file in others.items() if other in units and other != unit}
        for unit, others in units.items()
    }


def reachable(start: str, units: dict[str, dict[str, str]]) -> set[str]:
    """The units that `start` depends on, directly or not; itself only when it is in a cycle."""
    seen: set[str] = set()
    todo = list(units[start])
    while todo:
        unit = todo.pop()
        if unit not in seen:
            seen.add(unit)
            todo += units[unit]
    return seen


def knots(csrc: Path) -> list[str]:
    """Groups of units that all depend on each other, each as its includes, one a line."""
    units = unit_includes(csrc)
    needs = {unit: reachable(unit, units) for unit in units}
    found, tied = [], set[str]()
    for unit in units:
        if unit in tied or unit not in needs[unit]:
            continue
        knot = sorted(other for other in needs[unit] if unit in needs[other])
        tied.update(knot)
        lines = [
            f"{file} includes {other}"
            for member in knot
            for other, file in units[member].items()
            if other in knot
        ]
        found.append("\n".join(lines))
    return found


def test_no_two_units_depend_on_each_other() -> None:
    found = knots(CSRC)
    assert not found, "\n\n".join(found)


CLEAN = {
    "../include/mlc_native/detail/page.h": "",
    "../include/mlc_native/data.h": '#include "mlc_native/detail/page.h"\n',
    "../include/mlc_native/engine.h": '#include "mlc_native/data.h"\n',
    "support/check.h": "",
    "config/data.h": '#include "mlc_native/data.h"\n',
    "config/config.h": '#include "config/data.h"\n',
    "kernels/kernels.h": '#include "support/check.h"\n',
    "kv/page_pool.h": '#include "support/check.h"\n#include <vector>\n',
    "sampling/sampler.h": '#include "config/config.h"\n',
    "weights/weight_map.h": "",
    "models/model.h": '#include "config/config.h"\n',
    "tokenizer/token_table.h": "",
    "grammar/xgrammar/library.h": "#include <tvm/ffi/function.h>\n",
    "engine_state.h": '#include "config/data.h"\n#include "kv/page_pool.h"\n',
    "request/scheduler.h": '#include "engine_state.h"\n',
    "step/prefill.h": '#include "engine_state.h"\n',
    "engine.cc": '#include "mlc_native/engine.h"\n#include "step/prefill.h"\n',
    "threaded_engine.cc": "#include <thread>\n",
    "bindings/module.cc": '#include <nanobind/nanobind.h>\n#include "config/config.h"\n',
    "torch_ops/cpu.cc": '#include <torch/csrc/stable/ops.h>\n#include "kernels/kernels.h"\n',
}


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_checker_accepts_a_clean_tree(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "csrc", CLEAN)
    assert violations(tree) == []
    assert knots(tree) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("support/check.h", '#include "config/data.h"'),  # up
        ("config/data.h", '#include "kernels/kernels.h"'),  # same level, another group
        ("sampling/sampler.h", '#include "models/model.h"'),  # up
        ("tokenizer/token_table.h", '  #  include "sampling/sampler.h"'),  # sibling folders
        ("kv/page_pool.h", '#include "config/config.h"'),  # kv: level 0 only
        ("engine_state.h", '#include "engine.cc"'),
        ("request/scheduler.h", '#include "mlc_native/engine.h"'),  # up
        ("../include/mlc_native/data.h", '#include "config/config.h"'),  # not installed
        ("../include/mlc_native/new.h", ""),  # a public header without a level
        ("step/prefill.h", '#include "bindings/module.cc"'),
        ("threaded_engine.cc", '#include "step/prefill.h"'),
        ("config/config.h", "#include <torch/torch.h>"),
        ("grammar/grammar.h", "#include <tvm/ffi/any.h>"),
        ("models/model.h", "#include <ATen/ATen.h>"),
        ("weights/weight_map.h", "#include <c10/core/Device.h>"),
        ("models/plugin.cc", "#include <torch/csrc/stable/tensor.h>"),
        ("torch_ops/cpu.cc", "#include <torch/library.h>"),
        ("engine.cc", "#include <nanobind/nanobind.h>"),
        ("request/request.cc", "#include <Python.h>"),
        ("config/config.h", "#include <nlohmann/json.hpp>"),
        ("kv/page_pool.h", "#include <mutex>"),
        ("step/prefill.h", "#include <thread>"),
        ("config/config.h", "using namespace std;"),
        ("config/config.h", '#include "data.h"'),  # not csrc-relative
        ("helpers.h", ""),  # a root file without a level
        ("misc/helpers.h", ""),  # a folder without a level
    ],
)
def test_checker_finds_a_planted_violation(tmp_path: Path, name: str, text: str) -> None:
    found = violations(write_tree(tmp_path / "csrc", {**CLEAN, name: text + "\n"}))
    assert len(found) == 1, found
    assert found[0].startswith(name.removeprefix("../include/"))


@pytest.mark.parametrize(
    ("files", "members"),
    [
        # A header and its own source file are one unit, so two files are enough for a knot.
        (
            {"kv/page_pool.cc": "kv/radix_tree.h", "kv/radix_tree.h": "kv/page_pool.h"},
            {"kv/page_pool", "kv/radix_tree"},
        ),
        # Through a third unit, and across the folders of one group.
        (
            {
                "request/scheduler.cc": "request/queue.h",
                "request/queue.h": "engine_state.h",
                "engine_state_json.cc": "request/scheduler.h",
                "engine_state.cc": "engine_state_json.h",
                "engine_state_json.h": "support/check.h",
            },
            {"request/scheduler", "request/queue", "engine_state", "engine_state_json"},
        ),
    ],
)
def test_checker_finds_a_planted_knot(
    tmp_path: Path, files: dict[str, str], members: set[str]
) -> None:
    includes = {name: f'#include "{target}"\n' for name, target in files.items()}
    (knot,) = knots(write_tree(tmp_path / "csrc", {**CLEAN, **includes}))
    assert {
        Path(line.split()[0]).with_suffix("").as_posix() for line in knot.split("\n")
    } == members
