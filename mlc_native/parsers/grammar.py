"""The grammars of answers: calls that must or may come, and what follows reasoning.

They are structural tags of the grammar library (docs/grammar.md), as plain objects.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlc_native.parsers.reasoning import ReasoningFormat
from mlc_native.parsers.tool_format import (
    Format,
    Tool,
    ToolFormat,
    const,
    either,
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
    if tool_format.bare:  # calls are at the beginning of an answer only
        text: Format = {"type": "any_text", "excludes": [begin]}
        return either([sequence(const(begin), rest), text])
    loop = many and tool_format.repeats
    return {"type": "dispatch", "rules": [[begin, rest]], "loop": loop}


def after_reasoning(reasoning: ReasoningFormat, max_tokens: int, body: Format) -> Format:
    """The rest of a reasoning that the prompt has opened, of at most so many tokens; ``body``."""
    marks = [*reasoning.opens, *reasoning.closes]
    rest = {"type": "any_text", "excludes": marks, "max_tokens": max_tokens}
    closed = {"type": "tag", "begin": "", "content": rest, "end": reasoning.closes[0]}
    return sequence(closed, regex(r"\n{0,2}"), body)
