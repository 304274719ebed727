"""Formats that write calls as Python does: ``[weather(city="Paris", days=3), time()]``."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import Any

from mlc_native.parsers.reader import NotACall, Reader, Steps
from mlc_native.parsers.tool_format import Calls, ToolFormat

MAX_DEPTH = 64
_NAME = re.compile(r"[\w.]*")
_PLAIN = re.compile(r"[^()\[\]{}'\"]*")
_IN_STRING = {"'": re.compile(r"[^'\\\n]*"), '"': re.compile(r'[^"\\\n]*')}
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class PythonCalls(ToolFormat):
    """Calls in brackets, or one per line between two texts.

    The arguments of a call are keywords with literals, and arrive as a whole. There is no grammar.

    Attributes:
        end: the text behind the calls; empty if there is none.
        lines: whether calls stand on lines of their own, without brackets.
    """

    end: str = ""
    lines: bool = False

    def read(self, reader: Reader, calls: Calls, begin: str) -> Steps[None]:
        """Reads all calls."""
        yield from reader.space()
        if not self.lines:
            yield from reader.expect("[")
        closing = self.end if self.lines else "]"
        while True:
            yield from reader.space()
            name, arguments = yield from _read_call(reader)
            calls.begin(name)
            calls.arguments(arguments)
            yield from reader.space()
            found = yield from reader.literal(closing, ",")
            if found == closing:
                break
            if found is None and not self.lines:
                raise NotACall
            calls.end()
        if not self.lines:
            yield from reader.close(self.end)
        calls.end()


def _read_call(reader: Reader) -> Steps[tuple[str, str]]:
    """Takes a call and returns the name and the JSON of the arguments."""
    name: list[str] = []
    yield from reader.run(_NAME, name.append)
    yield from reader.expect("(")
    text = ["f("]
    closers = [")"]
    while closers:
        yield from reader.run(_PLAIN, text.append)
        char = yield from reader.take()
        text.append(char)
        if char in _CLOSERS:
            if len(closers) == MAX_DEPTH:
                raise NotACall
            closers.append(_CLOSERS[char])
        elif char in _IN_STRING:
            yield from _read_string(reader, char, text)
        elif char != closers.pop():
            raise NotACall
    return "".join(name), _arguments("".join(text))


def _read_string(reader: Reader, quote: str, text: list[str]) -> Steps[None]:
    while True:
        yield from reader.run(_IN_STRING[quote], text.append)
        char = yield from reader.take()
        if char == "\n":
            raise NotACall
        text.append(char)
        if char == quote:
            return
        text.append((yield from reader.take()))


def _arguments(call: str) -> str:
    try:
        node = ast.parse(call, mode="eval").body
        if not isinstance(node, ast.Call) or node.args:
            raise NotACall
        arguments = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise NotACall
            arguments[keyword.arg] = _literal(keyword.value)
        return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise NotACall from None


def _literal(node: ast.expr) -> Any:
    """The value of a literal. JSON's words are allowed, too."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [None if key is None else _literal(key) for key in node.keys]
        if not all(isinstance(key, str) for key in keys):
            raise NotACall
        return dict(zip(keys, map(_literal, node.values), strict=True))
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
    raise NotACall
