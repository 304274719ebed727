"""Messages of chat answers: the text of a sequence as content, reasoning and calls of tools."""

from __future__ import annotations

from typing import Any, Literal

from mlc_native import _core
from mlc_native.parsers.answer import AnswerParser, CallDelta, Delta, Span, TextDelta
from mlc_native.protocol.chat_messages import (
    AnswerFunctionCall,
    AnswerMessage,
    AnswerToolCall,
    ChatCompletionDelta,
    ChatFunctionCallDelta,
    ChatToolCallDelta,
)
from mlc_native.serve.answer_plan import AnswerPlan


class _ReasoningTokens:
    """Counts the tokens of an answer that begin within its reasoning."""

    def __init__(self, table: _core.TokenTable) -> None:
        self._table = table
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._is_known = False
        self.count = 0

    def add(self, text: str, token_ids: list[int], parser: AnswerParser) -> None:
        """Adds what the parser was given."""
        if self._is_known:
            return
        self._texts.append(text)
        self._token_ids += token_ids
        if parser.reasoning_is_known:
            self._is_known = True
            self._count(parser.reasoning_spans)

    def _count(self, spans: list[Span]) -> None:
        bounds = _byte_bounds("".join(self._texts), spans)
        begin = index = 0  # of the token, in bytes; of the spans that end behind it
        for token_id in self._token_ids:
            while index < len(bounds) and begin >= bounds[index][1]:
                index += 1
            if index == len(bounds):
                return
            self.count += begin >= bounds[index][0]
            begin += len(self._table.bytes(token_id))


def _byte_bounds(text: str, spans: list[Span]) -> list[tuple[int, int]]:
    """Where spans of a text begin and end in its UTF-8."""
    bounds = []
    at = num_bytes = 0
    for span in spans:
        for bound in (span.begin, len(text) if span.end is None else span.end):
            num_bytes += len(text[at:bound].encode())
            at = bound
            bounds.append(num_bytes)
    return list(zip(bounds[::2], bounds[1::2], strict=True))


class MessageStream:
    """The message of one sequence while it arrives."""

    def __init__(self, plan: AnswerPlan, table: _core.TokenTable | None) -> None:
        self._is_named = plan.is_named
        counts = table is not None and plan.syntax.reasoning is not None
        self._reasoning = _ReasoningTokens(table) if counts and table is not None else None
        self._parser = None if plan.syntax.is_plain else AnswerParser(plan.syntax)

    @property
    def reasoning_tokens(self) -> int | None:
        """The number of tokens of the reasoning; None if the model does not mark it."""
        return self._reasoning.count if self._reasoning is not None else None

    def add(self, text: str, token_ids: list[int], finish_reason: str | None) -> list[Delta]:
        """The deltas of more text, which are its tokens. With a finish reason, it is the last."""
        if self._parser is None:
            return [TextDelta("content", text)] if text else []
        deltas = self._parser.feed(text)
        if finish_reason is not None:
            deltas += self._parser.finish()
        if self._reasoning is not None:
            self._reasoning.add(text, token_ids, self._parser)
        return deltas

    def finish_reason(self, finish_reason: Any) -> Any:
        """ "tool_calls" if the model ended the answer itself and all calls are complete."""
        parser = self._parser
        if finish_reason != "stop" or parser is None or self._is_named:
            return finish_reason
        return "tool_calls" if parser.has_complete_calls else finish_reason


def whole_message(
    stream: MessageStream, text: str, token_ids: list[int], finish_reason: Any
) -> tuple[AnswerMessage, Any]:
    """The message of a whole answer, which ``stream`` has had nothing of, and its finish reason."""
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[AnswerToolCall] = []
    for delta in stream.add(text, token_ids, finish_reason or "stop"):
        if isinstance(delta, TextDelta):
            (reasoning if delta.kind == "reasoning" else content).append(delta.text)
            continue
        if delta.call_id is not None:
            function = AnswerFunctionCall(name=delta.name or "", arguments="")
            calls.append(AnswerToolCall(id=delta.call_id, function=function))
        function = calls[delta.index].function
        function.arguments += delta.arguments
    message = AnswerMessage(
        content="".join(content) or (None if calls else ""),
        reasoning_content="".join(reasoning) or None,
        tool_calls=calls or None,
    )
    return message, stream.finish_reason(finish_reason)


def message_delta(delta: Delta) -> ChatCompletionDelta:
    """What a chunk has of a delta."""
    if isinstance(delta, TextDelta):
        return text_delta(delta.kind, delta.text)
    return ChatCompletionDelta(tool_calls=[_call_delta(delta)])


def text_delta(kind: Literal["content", "reasoning"], text: str) -> ChatCompletionDelta:
    """What a chunk has of more text."""
    if kind == "reasoning":
        return ChatCompletionDelta(reasoning_content=text)
    return ChatCompletionDelta(content=text)


def _call_delta(delta: CallDelta) -> ChatToolCallDelta:
    function = ChatFunctionCallDelta(name=delta.name, arguments=delta.arguments)
    call = ChatToolCallDelta(index=delta.index, id=delta.call_id, function=function)
    if delta.call_id is not None:
        call.type = "function"
    return call
