"""The grammars of answers: calls that must or may come, and what follows reasoning.

They are structural tags of the grammar library (docs/grammar.md), as plain objects.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlc_native.parsers.argument_grammar import ABOVE_ASCII
from mlc_native.parsers.reasoning import ReasoningFormat
from mlc_native.parsers.tool_format import (
    Format,
    Tool,
    ToolFormat,
    const,
    either,
    optional,
    plus,
    regex,
    sequence,
)


def forced_calls(tool_format: ToolFormat, tools: Sequence[Tool], many: bool) -> Format | None:
    """One call of these tools, or with ``many`` one or more. None if the format has no grammar."""
    parts = tool_format.grammar(tools, many)
    if parts is None:
        return None
    begin, rest = parts
    if many and tool_format.repeats:
        return plus(sequence(const(begin), rest, regex(r"\n?")))
    return sequence(const(begin), rest)


def possible_calls(tool_format: ToolFormat, tools: Sequence[Tool], many: bool) -> Format | None:
    """Any text, in which what begins a call goes on as one. None if the format has no grammar."""
    parts = tool_format.grammar(tools, many)
    if parts is None:
        return None
    begin, rest = parts
    if tool_format.bare:
        return either([sequence(const(begin), rest), _text_without_calls(tool_format, begin)])
    loop = many and tool_format.repeats
    rules = [[begin, rest], *map(list, tool_format.other_grammars(tools))]
    return {"type": "dispatch", "rules": rules, "loop": loop}


def _text_without_calls(tool_format: ToolFormat, begin: str) -> Format:
    """An answer in which a format whose calls need no marker has none.

    If a single character begins calls, the text begins with another one.
    """
    if len(begin) > 1:
        return {"type": "any_text", "excludes": [begin, *tool_format.begins]}
    letters = [chr(code) for code in range(0x21, 0x7F) if chr(code) not in tool_format.bare]
    ascii_class = "".join(f"\\{letter}" if letter in "\\[]^-" else letter for letter in letters)
    first = regex(rf"[ \t\r\n]*([{ascii_class}]|{ABOVE_ASCII})")
    return optional(sequence(first, {"type": "any_text", "excludes": list(tool_format.begins)}))


def after_reasoning(reasoning: ReasoningFormat, max_tokens: int, body: Format) -> Format:
    """The rest of a reasoning that the prompt has opened, of at most so many tokens; ``body``."""
    marks = [*reasoning.opens, *reasoning.closes]
    rest = {"type": "any_text", "excludes": marks, "max_tokens": max_tokens}
    closed = {"type": "tag", "begin": "", "content": rest, "end": reasoning.closes[0]}
    return sequence(closed, regex(r"\n{0,2}"), body)
