"""Formats whose arguments are tagged one by one: ``<parameter=city>Paris</parameter>``.

A value is plain text. The schema of the function says which values are strings; others are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlc_native.parsers.argument_grammar import (
    arguments_of_schema,
    elements_grammar,
    is_string,
    string_grammar,
)
from mlc_native.parsers.json_value import parse_strict
from mlc_native.parsers.reader import NotACall, Put, Reader, Steps
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

_BLANK = regex(r"[ \n]?")


@dataclass(frozen=True)
class TaggedArguments(ToolFormat):
    """Calls as elements with one element per argument. White space between texts is free.

    Attributes:
        section_end: closes the text that begins the calls.
        call: begins a call, in front of the name; empty if the text that begins the calls does.
        name_end: behind the name; empty if white space or an argument ends it.
        call_end: closes a call; empty if ``section_end`` does.
        parameter: begins an argument, in front of its name.
        key_end: the texts between the name and the value.
        value_end: closes an argument.
        value_blank: white space at either end of a value; what is a string loses one of it.
    """

    section_end: str = ""
    call: str = ""
    name_end: str = ""
    call_end: str = ""
    parameter: str = ""
    key_end: tuple[str, ...] = ()
    value_end: str = ""
    value_blank: str = ""

    def read(self, reader: Reader, calls: Calls, begin: str) -> Steps[None]:
        """Reads one call, or all calls of a section."""
        yield from reader.space()
        inside = bool(self.call) and begin != self.call
        if inside:
            yield from reader.expect(self.call)
        while True:
            yield from self._read_call(reader, calls)
            if not self.call:
                return
            yield from reader.space()
            if not inside:  # some models write the closing text alone
                yield from reader.literal(self.section_end)
                return
            if (yield from reader.expect_or_end(self.call, self.section_end)) != self.call:
                return

    def _read_call(self, reader: Reader, calls: Calls) -> Steps[None]:
        last = self.call_end or self.section_end
        name: list[str] = []
        ends = (self.name_end,) if self.name_end else (self.parameter, last)
        yield from reader.before(ends, name.append)
        yield from reader.more()  # a name that is cut is none
        tool_name = "".join(name).strip()
        if not tool_name or len(tool_name.split()) > 1:
            raise NotACall
        if self.name_end:
            yield from reader.expect(self.name_end)
        calls.begin(tool_name)
        tool = calls.tools.get(tool_name)
        schema = {} if tool is None else tool.schema
        separator = "{"
        while True:
            yield from reader.space()
            if (yield from reader.expect(self.parameter, last)) == last:
                break
            calls.arguments(separator)
            yield from self._read_argument(reader, calls.arguments, schema)
            separator = ", "
        calls.arguments("{}" if separator == "{" else "}")
        calls.end()

    def _read_argument(self, reader: Reader, put: Put, schema: Mapping[str, Any]) -> Steps[None]:
        pieces: list[str] = []
        yield from reader.before((self.key_end[0],), pieces.append)
        for text in self.key_end:
            yield from reader.space_between(text)
        key = "".join(pieces).strip()
        put(json.dumps(key, ensure_ascii=False) + ": ")
        properties = schema.get("properties")
        of_key = properties.get(key) if isinstance(properties, Mapping) else None
        if is_string(of_key):
            value = _StringValue(put, self.value_blank)
            yield from reader.before((self.value_end,), value.put)
            yield from reader.expect(self.value_end)
            value.end()
        else:
            written: list[str] = []
            yield from reader.before((self.value_end,), written.append)
            yield from reader.expect(self.value_end)
            put(_json_value("".join(written).strip()))

    def grammar(self, tools: Sequence[Tool], many: bool) -> tuple[str, Format] | None:
        """The calls, if the arguments of all functions can be written one by one."""
        calls = [self._grammar_of_call(tool) for tool in tools]
        if any(call is None for call in calls):
            return None
        call = either([call for call in calls if call is not None])
        rest = [star(sequence(_BLANK, call))] if many and self.call_end else []
        return self.begins[0], sequence(_BLANK, call, *rest, _BLANK, const(self.section_end))

    def _grammar_of_call(self, tool: Tool) -> Format | None:
        arguments = arguments_of_schema(
            tool.schema, lambda schema: string_grammar(schema, self.value_end)
        )
        if arguments is None or not all(self._can_write(each.name) for each in arguments):
            return None
        elements = []
        for each in arguments:
            front = f"\n{self.parameter}{each.name}" + "\n".join(self.key_end) + self.value_blank
            end = const(self.value_blank + self.value_end)
            elements.append((sequence(const(front), each.value, end), each.required))
        ends = [_BLANK, const(self.call_end)] if self.call_end else []
        name = const(f"{self.call}{tool.name}{self.name_end}")
        return sequence(name, elements_grammar(elements), *ends)

    def _can_write(self, key: str) -> bool:
        """Whether the name of an argument is read back as it is."""
        return key == key.strip() and self.key_end[0] not in key


class _StringValue:
    """Puts the text of a value as a JSON string, without one blank at either end."""

    def __init__(self, put: Put, blank: str) -> None:
        self._put = put
        self._blank = blank
        self._held = ""
        self._begun = False

    def put(self, text: str) -> None:
        if not self._begun:
            self._begun = True
            self._put('"')
            text = text.removeprefix(self._blank)
        text = self._held + text
        self._held = self._blank if text.endswith(self._blank) else ""
        text = text.removesuffix(self._held)
        self._put(json.dumps(text, ensure_ascii=False)[1:-1])

    def end(self) -> None:
        self._put('"' if self._begun else '""')


def _json_value(text: str) -> str:
    """The JSON of a value that is not a string by its schema; a string if it is no JSON."""
    spelled = {"True": "true", "False": "false", "None": "null"}.get(text, text)
    try:
        parse_strict(spelled)
    except ValueError:
        return json.dumps(text, ensure_ascii=False)
    return spelled
