"""The messages of a chat: tools and their calls, whole and as the deltas of a stream."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator


class ChatFunction(BaseModel):
    """A function that the model may call; ``parameters`` is a JSON schema.

    Chat templates show the fields in this order, which is the one of transformers and of OpenAI.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    strict: bool | None = None

    @field_validator("parameters", mode="before")
    @classmethod
    def take_null_as_absent(cls, parameters: Any) -> Any:
        """A function without parameters may have null in their place, as in OpenAI's interface."""
        return {} if parameters is None else parameters


class ChatTool(BaseModel):
    """A tool; only functions exist."""

    type: str
    function: ChatFunction

    @field_validator("type")
    @classmethod
    def check_type(cls, kind: str) -> str:
        """Only functions exist."""
        if kind != "function":
            raise ValueError("Only 'function' tool type is supported")
        return kind


_LOST = {"function_call": '; use "tool_calls"', "audio": ", since this engine serves text"}


class _OfHistory(BaseModel):
    """What a history may also have as objects of another library, such as OpenAI's."""

    model_config = ConfigDict(from_attributes=True)


class ChatFunctionCall(_OfHistory):
    """A call in the history: ``arguments`` is a JSON text or the object itself."""

    name: str
    arguments: str | dict[str, Any] | None = None


class ChatToolCall(_OfHistory):
    """A call of a tool in an assistant message."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: ChatFunctionCall


class ChatCompletionMessage(_OfHistory):
    """One message; the content may be a list of parts, which are texts."""

    content: str | list[dict[str, Any]] | None = None
    role: Literal["system", "developer", "user", "assistant", "tool"]
    name: str | None = None
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = Field(
        default=None, validation_alias=AliasChoices("reasoning_content", "reasoning")
    )
    refusal: str | None = None

    @model_validator(mode="before")
    @classmethod
    def check_form(cls, message: Any) -> Any:
        """A message whose substance is in a field that does not exist here would lose it."""
        for name, advice in _LOST.items():
            is_dict = isinstance(message, dict)
            value = message.get(name) if is_dict else getattr(message, name, None)
            if value is not None:
                raise ValueError(f'"{name}" of a message is not supported{advice}')
        return message


class AnswerFunctionCall(ChatFunctionCall):
    """A call by the model: ``arguments`` is a JSON text."""

    arguments: str = ""


class AnswerToolCall(ChatToolCall):
    """A call of a tool by the model."""

    id: str
    function: AnswerFunctionCall


class AnswerMessage(ChatCompletionMessage):
    """The message of an answer, which may be put into the history as it is.

    ``reasoning_content`` is what the model thought, ``tool_calls`` are complete unless the finish
    reason is "length", and ``content`` is None if there are only calls.
    """

    content: str | None = None
    role: Literal["assistant"] = "assistant"
    tool_calls: list[AnswerToolCall] | None = None  # type: ignore[assignment]


class ChatFunctionCallDelta(BaseModel):
    """The name of a function that is called, or more text of its arguments."""

    name: str | None = None
    arguments: str | None = None


class ChatToolCallDelta(BaseModel):
    """What a chunk adds to call number ``index``. Its first delta has ``id``, ``type`` and name."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: ChatFunctionCallDelta


class ChatCompletionDelta(BaseModel):
    """What a chunk adds to a message."""

    role: Literal["assistant"] = "assistant"
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ChatToolCallDelta] | None = None
