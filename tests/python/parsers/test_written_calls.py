"""Calls as the grammars of the formats write them are read back with the same names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from answer_texts import read

from mlc_native.parsers.answer import AnswerSyntax
from mlc_native.parsers.catalog import TOOL_FORMATS
from mlc_native.parsers.grammar import forced_calls
from mlc_native.parsers.tool_format import Format, Tool

TOOLS = [
    *(
        "f",
        "a/b",
        "a:b",
        "a:1",
        "a:",
        ":",
        "/",
        ".",
        "-",
        "1",
        "ns.look-up",
        "call:f",
        "functions.f",
    ),
    *("ü", "日本", "x" * 256),
]
KEYS = [
    *("a", "a b", " a", "a ", "a\n", "\u00a0a", "", "1", "class", "a-b", "a:b", "a=b", "ü", "ª"),
    *("a>b", 'a"b', 'a">b', "a</arg_key>b", "</parameter>", "</function>", "{", "<", "\\", "'"),
]
VALUES: dict[str, Any] = {"integer": 1, "string": "v", "boolean": True}


def written(form: Format) -> str:
    """A text of the grammar of a call: the shortest one, except for values."""
    kind = form["type"]
    if kind == "const_string":
        return str(form["value"])
    if kind == "sequence":
        return "".join(map(written, form["elements"]))
    if kind == "or":
        return written(form["elements"][0])
    if kind == "plus":
        return written(form["content"])
    if kind in ("star", "optional"):
        return ""
    if kind == "json_schema":
        schema = form["json_schema"]
        if schema["type"] != "object":
            return json.dumps(VALUES[schema["type"]])
        return json.dumps({key: VALUES[of["type"]] for key, of in schema["properties"].items()})
    if kind == "regex":
        return ":0" if ":" in form["pattern"] else ""
    assert kind == "any_text"
    return str(VALUES["string"])


def check(name: str, tool: Tool, arguments: dict[str, Any]) -> None:
    form = forced_calls(TOOL_FORMATS[name], [tool], many=False)
    if form is None:
        return  # the answer is made to be JSON of another format
    text = written(form)
    for is_certain in (False, True):
        of = AnswerSyntax(TOOL_FORMATS[name], is_certain=is_certain, offered={tool.name: tool})
        result = read(of, text)
        assert (result.content, result.reasoning) == ("", ""), text
        assert [(n, json.loads(a)) for n, a in result.calls] == [(tool.name, arguments)], text


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool[:12])
@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
def test_names_of_functions(name: str, tool: str) -> None:
    assert forced_calls(TOOL_FORMATS[name], [Tool(tool)], many=False) is not None
    check(name, Tool(tool), {})


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
def test_names_of_arguments(name: str, key: str) -> None:
    for kind, value in VALUES.items():
        schema = {"type": "object", "properties": {key: {"type": kind}}, "required": [key]}
        check(name, Tool("f", schema), {key: value})
