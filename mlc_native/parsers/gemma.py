"""The format of Gemma 4: ``<|tool_call>call:weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mlc_native.parsers.argument_grammar import (
    arguments_of_schema,
    is_string,
    separated_grammar,
    string_grammar,
)
from mlc_native.parsers.literal_value import GEMMA, GEMMA_QUOTE, read_literal
from mlc_native.parsers.reader import NotACall, Reader, Steps
from mlc_native.parsers.tool_format import (
    Calls,
    Format,
    Tool,
    ToolFormat,
    const,
    either,
    sequence,
)

_NAME = re.compile(r"[\w.:/-]*")
_KEY = re.compile(r"\w+")
_CALL = "call:"


@dataclass(frozen=True)
class GemmaCalls(ToolFormat):
    """The name and an object whose keys have no quotes, and whose strings have quotes of their own.

    The grammar makes the model write the arguments in this way, and as JSON what they consist of.

    Attributes:
        end: the text behind a call.
    """

    end: str = ""

    @property
    def texts(self) -> list[str]:
        """All texts that a call is written with."""
        return [*super().texts, GEMMA_QUOTE]

    def read(self, reader: Reader, calls: Calls, begin: str) -> Steps[None]:
        """Reads one call."""
        yield from reader.space()
        yield from reader.expect(_CALL)
        name: list[str] = []
        yield from reader.run(_NAME, name.append)
        if (yield from reader.peek()) != "{":
            raise NotACall
        calls.begin("".join(name))
        yield from read_literal(reader, calls.arguments, GEMMA)
        yield from reader.close(self.end)
        calls.end()

    def grammar(self, tools: Sequence[Tool], many: bool) -> tuple[str, Format] | None:
        """One call, if the arguments of all functions can be written one by one."""
        calls = [self._grammar_of_call(tool) for tool in tools]
        if any(call is None for call in calls):
            return None
        return self.begins[0], either([call for call in calls if call is not None])

    def _grammar_of_call(self, tool: Tool) -> Format | None:
        arguments = arguments_of_schema(
            tool.schema, lambda schema: string_grammar(schema, GEMMA_QUOTE)
        )
        if arguments is None or not all(_KEY.fullmatch(each.name) for each in arguments):
            return None
        elements = []
        for each in arguments:
            quote = const(GEMMA_QUOTE)
            is_text = is_string(tool.schema["properties"][each.name])
            value = sequence(quote, each.value, quote) if is_text else each.value
            elements.append((sequence(const(f"{each.name}:"), value), each.required))
        return sequence(
            const(f"{_CALL}{tool.name}{{"), separated_grammar(elements, ","), const("}" + self.end)
        )
