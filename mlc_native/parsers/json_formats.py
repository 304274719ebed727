"""Formats whose arguments are JSON: in an object with the name, or behind the name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mlc_native.parsers.json_value import parse_strict, read_json, read_string_value
from mlc_native.parsers.reader import NotACall, Put, Reader, Steps
from mlc_native.parsers.tool_format import (
    Calls,
    Format,
    Tool,
    ToolFormat,
    arguments_of,
    const,
    either,
    regex,
    sequence,
    star,
)

_NAME = re.compile(r"[\w.:/-]*")
_BLANK = regex(r"[ \n]?")
_CALL = '{"name": '


@dataclass(frozen=True)
class JsonObjects(ToolFormat):
    """``{"name": ..., "arguments": {...}}`` between two texts, alone or as a list of them.

    Attributes:
        end: the text behind the calls; empty if there is none.
        separator: what separates calls outside of a list.
        key: the name of the arguments in what the grammar makes the model write.
        listed: whether the grammar makes the model write a list.
    """

    end: str = ""
    separator: str = ""
    key: str = "arguments"
    listed: bool = False

    def read(self, reader: Reader, calls: Calls, begin: str) -> Steps[None]:
        """Reads one object, a list, or objects with separators."""
        yield from reader.space()
        if (yield from reader.literal("[")) is not None:
            yield from read_list(reader, calls)
        else:
            yield from read_object(reader, calls)
        yield from reader.close(self.end)
        calls.end()
        while self.separator:
            yield from reader.space()
            if (yield from reader.literal(self.separator)) is None:
                return
            yield from reader.space()
            yield from read_object(reader, calls)
            calls.end()

    def grammar(self, tools: Sequence[Tool], many: bool) -> tuple[str, Format] | None:
        """One object per call, with the arguments of its schema."""
        call = either([self._grammar_of_call(tool) for tool in tools])
        if self.listed:
            begin, blank = (self.begins[0], [_BLANK]) if self.begins else ("", [])
            rest = [star(sequence(const(f", {_CALL}"), call))] if many else []
            front = [const(f"[{_CALL}")] if begin else [const(_CALL)]
            parts = [*blank, *front, call, *rest, const(f"]{self.end}")]
            return begin or "[", sequence(*parts)
        if self.bare:
            rest = [star(sequence(const(f"{self.separator} {_CALL}"), call))] if many else []
            return _CALL, sequence(call, *rest)
        return self.begins[0], sequence(_BLANK, const(_CALL), call, _BLANK, const(self.end))

    def _grammar_of_call(self, tool: Tool) -> Format:
        """What follows _CALL."""
        name = const(f'{json.dumps(tool.name)}, "{self.key}": ')
        return sequence(name, arguments_of(tool), const("}"))


def read_list(reader: Reader, calls: Calls) -> Steps[None]:
    """Takes all calls up to the closing bracket, and ends all except the last."""
    while True:
        yield from reader.space()
        yield from read_object(reader, calls)
        yield from reader.space()
        if (yield from reader.expect(",", "]")) == "]":
            return
        calls.end()


def read_object(reader: Reader, calls: Calls) -> Steps[None]:
    """Takes the object of a call. Members other than the name and the arguments are skipped."""
    yield from reader.expect("{")
    name: str | None = None
    held: list[str] | None = None  # arguments that come before the name
    seen = False
    while True:
        yield from reader.space()
        key = yield from read_string_value(reader)
        yield from reader.space()
        yield from reader.expect(":")
        yield from reader.space()
        if key == "name" and name is None:
            name = yield from read_string_value(reader)
            calls.begin(name)
            for text in held or ():
                calls.arguments(text)
        elif key in ("arguments", "parameters") and not seen:
            seen = True
            held = None if name is not None else []
            yield from _read_arguments(reader, calls.arguments if held is None else held.append)
        elif key in ("name", "arguments", "parameters"):
            raise NotACall
        else:
            yield from read_json(reader, len)
        yield from reader.space()
        if (yield from reader.expect(",", "}")) == "}":
            break
    if name is None:
        raise NotACall


def _read_arguments(reader: Reader, put: Put) -> Steps[None]:
    """Takes an object, null, or a string that spells an object."""
    char = yield from reader.peek()
    if char == "{":
        yield from read_json(reader, put)
    elif char == "n":
        yield from reader.expect("null")
    else:
        text = yield from read_string_value(reader)
        try:
            value = parse_strict(text)
        except ValueError:
            raise NotACall from None
        if not isinstance(value, dict):
            raise NotACall
        put(text)


@dataclass(frozen=True)
class NamedJson(ToolFormat):
    """A name, a text, and the arguments as a JSON object.

    Attributes:
        section_end: closes the text that begins all calls, if calls have one of their own.
        call: begins each call; empty if ``begins`` does.
        kind: what may stand in front of the name.
        middle: between the name and the arguments.
        call_end: behind the arguments.
        id_pattern: the id of a call, where the name is; its group is the name.
    """

    section_end: str = ""
    call: str = ""
    kind: str = ""
    middle: str = ""
    call_end: str = ""
    id_pattern: str = ""

    def read(self, reader: Reader, calls: Calls, begin: str) -> Steps[None]:
        """Reads one call, or all calls of a section."""
        if not self.call:
            yield from self._read_call(reader, calls)
            return
        yield from reader.space()
        yield from reader.expect(self.call)
        while True:
            yield from self._read_call(reader, calls)
            yield from reader.space()
            if (yield from reader.literal(self.call)) is None:
                break
        if self.section_end:
            yield from reader.literal(self.section_end)
            reader.forget()

    def _read_call(self, reader: Reader, calls: Calls) -> Steps[None]:
        yield from reader.space()
        if self.kind:
            yield from reader.expect(self.kind)
        written: list[str] = []
        yield from reader.run(_NAME, written.append)
        name, call_id = self._name_and_id("".join(written))
        yield from reader.space()
        yield from reader.expect(self.middle.strip())
        yield from reader.space()
        if (yield from reader.peek()) != "{":
            raise NotACall
        calls.begin(name, call_id)
        yield from read_json(reader, calls.arguments)
        yield from reader.close(self.call_end.strip())
        calls.end()

    def _name_and_id(self, written: str) -> tuple[str, str | None]:
        if self.id_pattern:
            match = re.fullmatch(self.id_pattern, written)
            if match is not None:
                return match[1], written
        if not written:
            raise NotACall
        return written, None

    def grammar(self, tools: Sequence[Tool], many: bool) -> tuple[str, Format] | None:
        """The calls of one section."""
        begin = self.begins[0]
        call = either([self._grammar_of_call(tool) for tool in tools])
        if not self.call:
            return begin, call
        rest = [star(sequence(const(self.call), call))] if many else []
        return begin, sequence(const(self.call), call, *rest, const(self.section_end))

    def _grammar_of_call(self, tool: Tool) -> Format:
        end = [const(self.call_end)] if self.call_end else []
        number = [regex(r":[0-9]{1,2}")] if self.id_pattern else []
        front = self.kind + ("functions." if self.id_pattern else "")
        return sequence(
            const(front + tool.name), *number, const(self.middle), arguments_of(tool), *end
        )
