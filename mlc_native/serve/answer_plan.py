"""AnswerPlan: how a chat request constrains its answer, and how the answer is read.

Both follow from the tools, ``tool_choice`` and ``response_format`` of the request and from the
formats of the model. Every façade and the server use it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from mlc_native.errors import invalid_request, shown
from mlc_native.parsers.answer import AnswerSyntax
from mlc_native.parsers.catalog import PLAIN_JSON
from mlc_native.parsers.grammar import after_reasoning, forced_calls, possible_calls
from mlc_native.parsers.reasoning import ReasoningFormat
from mlc_native.parsers.tool_format import Format, Tool, ToolFormat, const, either, sequence
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest
from mlc_native.protocol.response_format import RequestResponseFormat, Schema
from mlc_native.serve.answer_formats import AnswerFormats

_TOOL_NAME = re.compile(r"[\w.:/-]{1,256}")


@dataclass(frozen=True)
class AnswerPlan:
    """How the answers of one request are constrained and read.

    Attributes:
        syntax: for the parser of an answer.
        response_format: the constraint; None if there is none.
        bounds: the field that bounds the reasoning, if the constraint does nothing else.
        is_named: the request names the function that is called, so the finish reason is "stop".
    """

    syntax: AnswerSyntax = field(default_factory=AnswerSyntax)
    response_format: RequestResponseFormat | None = None
    is_named: bool = False
    bounds: str | None = None

    @property
    def constrained_by(self) -> str:
        """The field of the request that the constraint comes from."""
        if self.bounds is not None:
            return self.bounds
        return "response_format" if self.syntax.tools is None else "tools"


def plan_answer(
    request: ChatCompletionRequest, prompt: str, formats: AnswerFormats, max_tokens: int
) -> AnswerPlan:
    """Plans the answers of a request whose messages were rendered to ``prompt``.

    Args:
        formats: those of the model.
        max_tokens: tokens that an answer may have if the request does not say.

    Raises:
        InvalidRequest: the wishes of the request cannot be honoured together or by this model.
    """
    return _Planner(request, prompt, formats, max_tokens).plan()


class _Planner:
    def __init__(
        self, request: ChatCompletionRequest, prompt: str, formats: AnswerFormats, max_tokens: int
    ) -> None:
        self._request = request
        self._formats = formats
        self._tool_format = formats.tools
        given = request.max_tokens
        # Reasoning leaves the other half for what is forced.
        self._max_reasoning = (max_tokens if given is None or given < 0 else given) // 2
        self._budget = request.thinking_token_budget
        if self._budget is not None:
            self._max_reasoning = min(self._max_reasoning, self._budget)
        self._parallel = request.parallel_tool_calls is not False
        self._offered = _offered_tools(request)
        self._reasoning = formats.reasoning
        self._is_reasoning = False
        if self._reasoning is not None:
            self._is_reasoning = _is_reasoning(self._reasoning, request, prompt)
            if request.continue_final_message and not self._is_reasoning:
                self._reasoning = None
        asked = request.response_format
        self._asked = asked if asked is not None and asked.type != "text" else None

    def plan(self) -> AnswerPlan:
        choice = self._request.tool_choice
        if not self._offered or choice == "none":
            return self._plan_without_calls()
        if choice is None or choice == "auto":
            return self._plan_possible_calls()
        return self._plan_forced_calls()

    def _plan_without_calls(self) -> AnswerPlan:
        if self._asked is None:
            return self._unconstrained(None)
        if self._is_reasoning or self._answer_begin:
            return self._begins_with(self._asked_answer(self._asked), None)
        return AnswerPlan(response_format=self._asked)

    @property
    def _answer_begin(self) -> str:
        """What is in front of an answer that is no call."""
        return "" if self._reasoning is None else self._reasoning.answer

    def _asked_answer(self, asked: RequestResponseFormat) -> Format:
        body = _structural(asked)
        return sequence(const(self._answer_begin), body) if self._answer_begin else body

    def _plan_possible_calls(self) -> AnswerPlan:
        tool_format = self._tool_format
        if not self._formats.shows_tools:
            raise invalid_request(
                "tools",
                "the chat template of this model does not show tools, so the model cannot know "
                'them; allowed are no tools, or tool_choice "required", which forces a call',
            )
        if self._asked is not None:
            calls = tool_format and forced_calls(tool_format, self._tools(), self._parallel)
            if not calls:
                return self._plan_without_calls()
            return self._begins_with(either([calls, self._asked_answer(self._asked)]), tool_format)
        strict = [i for i, tool in enumerate(self._request.tools or []) if tool.function.strict]
        if not strict:
            return self._unconstrained(tool_format)
        body = tool_format and possible_calls(tool_format, self._tools(), self._parallel)
        if not body:
            raise invalid_request(
                "tools",
                f"tools[{strict[0]}].function.strict: True cannot be honoured with tool_choice "
                '"auto", because no grammar is known for the calls of this model; allowed are '
                'False, or tool_choice "required"',
            )
        return AnswerPlan(self._syntax(tool_format), _tag(body))

    def _unconstrained(self, tool_format: ToolFormat | None) -> AnswerPlan:
        """An answer of any text; only its reasoning may be bounded."""
        syntax = self._syntax(tool_format)
        if self._budget is None or self._reasoning is None:
            return AnswerPlan(syntax)
        # Messages have marks, too; only those of reasoning may not follow.
        is_list = self._reasoning.in_messages
        marks = self._reasoning.opens if is_list else self._reasoning.texts
        plain: Format = {"type": "any_text", "excludes": list(marks)}
        bounded = after_reasoning(self._reasoning, self._max_reasoning, plain)
        if not self._is_reasoning:
            opened = sequence(const(self._reasoning.opens[0]), bounded)
            bounded = either([opened, plain])
        return AnswerPlan(syntax, _tag(bounded), bounds="thinking_token_budget")

    def _plan_forced_calls(self) -> AnswerPlan:
        if self._asked is not None:
            raise invalid_request(
                "response_format",
                f'response_format of type "{self._asked.type}" and tool_choice '
                f"{self._request.tool_choice!r} exclude each other: the answer is a call",
            )
        is_named = isinstance(self._request.tool_choice, dict)
        many = self._parallel and not is_named
        tool_format = self._tool_format or PLAIN_JSON
        calls = forced_calls(tool_format, self._tools(), many)
        if calls is None:
            tool_format = PLAIN_JSON
            calls = forced_calls(tool_format, self._tools(), many)
        assert calls is not None
        return self._begins_with(calls, tool_format, is_certain=True, is_named=is_named)

    def _begins_with(
        self,
        body: Format,
        tool_format: ToolFormat | None,
        *,
        is_certain: bool = False,
        is_named: bool = False,
    ) -> AnswerPlan:
        """An answer is ``body``, from its first character or behind reasoning that is open."""
        if self._is_reasoning:
            assert self._reasoning is not None
            body = after_reasoning(self._reasoning, self._max_reasoning, body)
        elif not self._answer_begin or tool_format is PLAIN_JSON:
            self._reasoning = None
        return AnswerPlan(self._syntax(tool_format, is_certain), _tag(body), is_named)

    def _syntax(self, tool_format: ToolFormat | None, is_certain: bool = False) -> AnswerSyntax:
        offered = self._offered if tool_format is not None else {}
        return AnswerSyntax(
            tool_format, self._reasoning, self._is_reasoning, is_certain, self._parallel, offered
        )

    def _tools(self) -> list[Tool]:
        return list(self._offered.values())


def _tag(body: Format) -> RequestResponseFormat:
    return RequestResponseFormat(type="structural_tag", format=body)


def _offered_tools(request: ChatCompletionRequest) -> dict[str, Tool]:
    """The tools that may be called, by name."""
    if isinstance(request.tool_choice, dict):
        chosen = request.tool_choice["function"]["name"]
        tools = [tool for tool in request.tools or [] if tool.function.name == chosen]
    else:
        tools = request.tools or []
    offered = {}
    for tool in tools:
        name = tool.function.name
        if _TOOL_NAME.fullmatch(name) is None:
            raise invalid_request(
                "tools",
                "the name of a function has 1 to 256 letters, digits and . : / _ -, got "
                + shown(name),
            )
        offered[name] = Tool(name, tool.function.parameters)
    return offered


def _is_reasoning(reasoning: ReasoningFormat, request: ChatCompletionRequest, prompt: str) -> bool:
    if not request.continue_final_message:
        return reasoning.is_open(prompt)
    final = request.messages[-1].content or ""
    text = final if isinstance(final, str) else "".join(part["text"] for part in final)
    return reasoning.last_is_open(text)


def _structural(asked: RequestResponseFormat) -> Format:
    """A response_format as a part of a structural tag."""
    if asked.type == "json_object":
        schema = {"type": "object"} if asked.schema_ is None else _schema(asked.schema_)
        return {"type": "json_schema", "json_schema": schema}
    if asked.json_schema is not None:
        return {"type": "json_schema", "json_schema": _schema(asked.json_schema.schema_)}
    if asked.regex is not None:
        return {"type": "regex", "pattern": asked.regex}
    if asked.grammar is not None:
        return {"type": "grammar", "grammar": asked.grammar}
    if asked.choice is not None:
        return either([const(text) for text in asked.choice])
    if asked.format is None:
        raise invalid_request(
            "response_format",
            'response_format of type "structural_tag" with "structures" cannot be used together '
            'with "tools" or reasoning: use "format"',
        )
    return asked.format


def _schema(schema: Schema) -> Any:
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise invalid_request("response_format", f"the schema is no JSON: {error}") from None
