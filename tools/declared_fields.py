"""The fields of the configs, read from the text of include/mlc_native/detail/*_config.h.

The package asks the compiled engine instead (``_core.describe_engine_fields`` and
``_core.generation_field_docs``); tools that run without a build read the sources.
tests/python/test_declared_fields.py compares the two.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

CONFIG = Path(__file__).resolve().parents[1] / "include/mlc_native/detail"
LITERALS = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
VISIT = re.compile(r'visit\(\s*Field\{\s*"(\w+)",\s*' + LITERALS)
MEMBER = re.compile(r"^  ([\w:<>, ]+?)\s+(\w+)(?:\s+=\s+([^;]+)|\{\})?;", re.MULTILINE)
TYPES = {
    "bool": "bool",
    "double": "float",
    "int32_t": "int",
    "int64_t": "int",
    "std::string": "str",
    "std::vector<int32_t>": "list[int]",
    "std::vector<std::string>": "list[str]",
}


@dataclass
class DeclaredField:
    """A field: its name, type (as _core.describe_engine_fields names it) and text."""

    name: str
    type: str
    choices: list[str]
    default: object
    doc: str


def docs(header: str) -> dict[str, str]:
    """Name -> documentation of the fields that a header declares, nested ones first."""
    text = (CONFIG / header).read_text()
    # Adjacent literals are one string in Python, too.
    return {name: ast.literal_eval(f"({doc})") for name, doc in VISIT.findall(text)}


def engine_fields() -> list[DeclaredField]:
    """The fields of EngineConfig."""
    return _fields("engine_config.h", "EngineConfig")


def generation_fields() -> list[DeclaredField]:
    """The fields of GenerationConfig that are numbers, texts, booleans, enums or lists of them."""
    return _fields("generation_config.h", "GenerationConfig")


def _fields(header: str, config: str) -> list[DeclaredField]:
    text = (CONFIG / header).read_text()
    body = re.split(rf"struct (?:MLC_NATIVE_API )?{config} {{", text)[1].split("\n};")[0]
    members = {name: (kind, default) for kind, name, default in MEMBER.findall(body)}
    fields = []
    for name, doc in docs(header).items():
        if name not in members:  # of a struct in it
            continue
        kind, default = members[name]
        optional = re.fullmatch(r"std::optional<([\w:]+)>", kind)
        if optional:
            fields.append(DeclaredField(name, TYPES[optional[1]], [], None, doc))
        elif kind in TYPES:
            fields.append(DeclaredField(name, TYPES[kind], [], _value(kind, default), doc))
        elif kind == "WeightQuantization":
            fields.append(DeclaredField(name, "str", [], None, doc))
        elif f"kEnumNames<{kind}> =" in text:
            names = _enum_names(text, kind)
            fields.append(DeclaredField(name, "str", [*names.values()], names.get(default), doc))
    return fields


def _value(kind: str, default: str) -> object:
    if not default:
        return [] if "vector" in kind else ""
    value = ast.literal_eval(default.capitalize() if kind == "bool" else default)
    return float(value) if kind == "double" else value


def _enum_names(text: str, enum: str) -> dict[str, str]:
    """Constant -> name of the values of an enum that have a name."""
    block = text.split(f"kEnumNames<{enum}> =")[1].split(";")[0]
    return {constant: name for name, constant in re.findall(r'\{"(\w+)",\s*([\w:]+)\}', block)}
