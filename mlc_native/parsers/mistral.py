"""The two formats of Mistral's models, which begin with the same text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mlc_native.parsers.json_formats import JsonObjects
from mlc_native.parsers.json_value import read_json
from mlc_native.parsers.reader import NotACall, Reader, Steps
from mlc_native.parsers.tool_format import (
    Calls,
    Format,
    Tool,
    arguments_of,
    const,
    either,
    sequence,
)

_NAME = re.compile(r"[\w.:/-]*")
_ID = re.compile(r"[A-Za-z0-9]*")


@dataclass(frozen=True)
class Mistral(JsonObjects):
    """``[TOOL_CALLS] [{"name": ..., "arguments": {...}}]``, or ``[TOOL_CALLS]name[ARGS]{...}``.

    Both are read. ``named`` is the newer one, which the grammar then writes; it may have
    ``[CALL_ID]`` with an id behind the name, and older models leave out ``[ARGS]``.
    """

    named: bool = False

    @property
    def texts(self) -> list[str]:
        """All texts that a call is written with."""
        return [*super().texts, "[CALL_ID]", "[ARGS]"]

    def read(self, reader: Reader, calls: Calls, begin: str) -> Steps[None]:
        """Reads the list, or one call."""
        yield from reader.space()
        if (yield from reader.peek()) in "[{":
            yield from super().read(reader, calls, begin)
            return
        name: list[str] = []
        call_id: list[str] = []
        yield from reader.run(_NAME, name.append)
        if (yield from reader.literal("[CALL_ID]")) is not None:
            yield from reader.run(_ID, call_id.append)
        yield from reader.literal("[ARGS]")
        yield from reader.space()
        if not name or (yield from reader.peek()) != "{":
            raise NotACall
        calls.begin("".join(name), "".join(call_id) or None)
        yield from read_json(reader, calls.arguments)
        calls.end()

    def grammar(self, tools: Sequence[Tool], many: bool) -> tuple[str, Format] | None:
        """The format of the template."""
        if not self.named:
            return super().grammar(tools, many)
        calls = [sequence(const(f"{tool.name}[ARGS]"), arguments_of(tool)) for tool in tools]
        return self.begins[0], either(calls)
