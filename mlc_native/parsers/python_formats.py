"""Formats that write calls as Python does: ``[weather(city="Paris", days=3), time()]``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mlc_native.parsers.argument_grammar import arguments_of_schema, separated_grammar
from mlc_native.parsers.json_formats import read_list, read_object
from mlc_native.parsers.literal_value import PYTHON, read_literal
from mlc_native.parsers.reader import NotACall, Reader, Steps
from mlc_native.parsers.tool_format import (
    Calls,
    Format,
    Tool,
    ToolFormat,
    const,
    either,
    regex,
    sequence,
    star,
)

_NAME = re.compile(r"[\w.:/-]*")
_KEYWORD = re.compile(r"\w*")  # empty for what is none
_BLANK = regex(r"[ \n]?")


@dataclass(frozen=True)
class PythonCalls(ToolFormat):
    """Calls in brackets, or one per line between two texts.

    The arguments of a call are keywords with literals. Those that the grammar makes the model write
    are JSON, which the reader takes as well.

    Attributes:
        end: the text behind the calls; empty if there is none.
        lines: whether calls stand on lines of their own, without brackets.
        or_json: whether calls may also be JSON objects, as the system prompt can ask for.
    """

    end: str = ""
    lines: bool = False
    or_json: bool = False

    def read(self, reader: Reader, calls: Calls, begin: str) -> Steps[None]:
        """Reads all calls."""
        yield from reader.space()
        if self.or_json and (yield from reader.peek()) == "{":
            yield from read_object(reader, calls)
        elif self.lines:
            yield from self._read_lines(reader, calls)
            return
        else:
            yield from reader.expect("[")
            yield from reader.space()
            if self.or_json and (yield from reader.peek()) == "{":
                yield from read_list(reader, calls)
            else:
                yield from self._read_list(reader, calls)
        yield from reader.close(self.end)
        calls.end()

    def _read_lines(self, reader: Reader, calls: Calls) -> Steps[None]:
        while True:
            yield from reader.space()
            yield from _read_call(reader, calls)
            yield from reader.space()
            found = yield from reader.literal(self.end, ",")
            calls.end()
            if found == self.end:
                return

    def _read_list(self, reader: Reader, calls: Calls) -> Steps[None]:
        """Reads all calls up to the closing bracket, and ends all except the last."""
        while True:
            yield from reader.space()
            yield from _read_call(reader, calls)
            yield from reader.space()
            if (yield from reader.expect(",", "]")) == "]":
                return
            calls.end()

    def grammar(self, tools: Sequence[Tool], many: bool) -> tuple[str, Format] | None:
        """The calls, if the arguments of all functions can be written one by one."""
        calls = [_grammar_of_call(tool) for tool in tools]
        if any(call is None for call in calls):
            return None
        call = either([call for call in calls if call is not None])
        separator = "\n" if self.lines else ", "
        rest = [star(sequence(const(separator), call))] if many else []
        if self.lines:
            return self.begins[0], sequence(_BLANK, call, *rest, const(f"\n{self.end}"))
        if self.bare:
            return "[", sequence(call, *rest, const("]"))
        return self.begins[0], sequence(const("["), call, *rest, const(f"]{self.end}"))


def _read_call(reader: Reader, calls: Calls) -> Steps[None]:
    """Takes one call, with keywords as its arguments."""
    name: list[str] = []
    yield from reader.run(_NAME, name.append)
    yield from reader.expect("(")
    calls.begin("".join(name))
    separator = "{"
    while True:
        yield from reader.space()
        if (yield from reader.literal(")")) is not None:
            break
        key: list[str] = []
        yield from reader.run(_KEYWORD, key.append)
        yield from reader.space()
        yield from reader.expect("=")
        if not key:
            raise NotACall
        calls.arguments(f"{separator}{json.dumps(''.join(key), ensure_ascii=False)}: ")
        yield from read_literal(reader, calls.arguments, PYTHON)
        separator = ", "
        yield from reader.space()
        if (yield from reader.expect(",", ")")) == ")":
            break
    calls.arguments("{}" if separator == "{" else "}")


def _grammar_of_call(tool: Tool) -> Format | None:
    arguments = arguments_of_schema(tool.schema)
    if arguments is None or not all(
        each.name and _KEYWORD.fullmatch(each.name) for each in arguments
    ):
        return None
    elements = [(sequence(const(f"{each.name}="), each.value), each.required) for each in arguments]
    return sequence(const(f"{tool.name}("), separated_grammar(elements, ", "), const(")"))
