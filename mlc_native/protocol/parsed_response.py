"""The response of ``parse``: a chat completion whose messages have the values that they spell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from mlc_native.errors import AnswerParseError, LengthFinishReasonError, invalid_request, shown
from mlc_native.protocol.chat_messages import AnswerMessage
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
)
from mlc_native.protocol.typed_answers import is_type, value_of_type

ContentT = TypeVar("ContentT")


class ParsedChatCompletionMessage(AnswerMessage, Generic[ContentT]):
    """A message with the value of its content; ``parsed`` is None if it has only calls."""

    parsed: ContentT | None = None


class ParsedChatCompletionResponseChoice(ChatCompletionResponseChoice, Generic[ContentT]):
    """One answer."""

    message: ParsedChatCompletionMessage[ContentT]


class ParsedChatCompletionResponse(ChatCompletionResponse, Generic[ContentT]):
    """A whole chat completion whose answers are values of a type."""

    choices: list[ParsedChatCompletionResponseChoice[ContentT]]  # type: ignore[assignment]


def check_parse(response_format: object, arguments: Mapping[str, Any]) -> None:
    """Raises InvalidRequest for arguments that ``parse`` cannot have."""
    if not is_type(response_format):
        raise invalid_request(
            "response_format",
            '"response_format" of parse() must be a type, such as a pydantic model, got '
            f"{shown(response_format)}; create() takes other forms",
        )
    if arguments.get("stream"):
        raise invalid_request("stream", '"stream" must be False for parse(), got True')


def parsed_response(
    response: ChatCompletionResponse, kind: type[ContentT]
) -> ParsedChatCompletionResponse[ContentT]:
    """The response with the values of its messages.

    Raises:
        LengthFinishReasonError: an answer was cut.
        AnswerParseError: the type refuses an answer.
    """
    choices = [_parsed_choice(response, i, kind) for i in range(len(response.choices))]
    fields = {name: getattr(response, name) for name in type(response).model_fields}
    return ParsedChatCompletionResponse.model_construct(**{**fields, "choices": choices})


def _parsed_choice(
    response: ChatCompletionResponse, index: int, kind: type[ContentT]
) -> ParsedChatCompletionResponseChoice[ContentT]:
    choice = response.choices[index]
    message = choice.message
    value = None
    if not message.tool_calls:
        value = _value(response, index, kind)
    fields = {name: getattr(message, name) for name in type(message).model_fields}
    parsed: ParsedChatCompletionMessage[ContentT]
    parsed = ParsedChatCompletionMessage.model_construct(**fields, parsed=value)
    fields = {name: getattr(choice, name) for name in type(choice).model_fields}
    return ParsedChatCompletionResponseChoice.model_construct(**{**fields, "message": parsed})


def _value(response: ChatCompletionResponse, index: int, kind: type[ContentT]) -> ContentT:
    choice = response.choices[index]
    if choice.finish_reason != "stop":
        raise LengthFinishReasonError(
            f"answer {index} is not complete: its finish reason is {choice.finish_reason!r}; raise "
            "max_tokens, or use a type with bounded texts and lists",
            response,
            index,
        )
    content = choice.message.content
    assert content is not None
    try:
        value: ContentT = value_of_type(kind, content)
    except ValidationError as error:
        name = getattr(kind, "__name__", str(kind))
        raise AnswerParseError(f"answer {index} is no {name}: {error}", response, index) from error
    return value
