"""``engine.chat.completions.create`` and ``engine.completions.create``: one signature for both
engines. The engine's handler decides whether the answer is a value or an awaitable.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from pydantic import BaseModel, ValidationError

from mlc_native.errors import InvalidRequest, invalid_request
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest, CompletionRequest
from mlc_native.serve.request_processing import request_fields

ResponseT = TypeVar("ResponseT")
StreamT = TypeVar("StreamT")
RequestT = TypeVar("RequestT", bound=BaseModel)


class _SamplingArguments(TypedDict, total=False):
    model: str | None
    frequency_penalty: float | None
    presence_penalty: float | None
    logit_bias: dict[int, float] | None
    max_tokens: int | None
    n: int
    seed: int | None
    stop: str | list[str] | None
    stream_options: dict[str, Any] | None
    temperature: float | None
    top_p: float | None
    user: str | None
    response_format: dict[str, Any] | None
    request_id: str | None
    extra_body: dict[str, Any] | None


class ChatArguments(_SamplingArguments, total=False):
    """Arguments of a chat completion but ``messages`` and ``stream``."""

    logprobs: bool
    top_logprobs: int
    tools: list[dict[str, Any]] | None
    tool_choice: str | dict[str, Any] | None


class CompletionArguments(_SamplingArguments, total=False):
    """Arguments of a completion but ``prompt`` and ``stream``."""

    best_of: int
    echo: bool
    logprobs: int | None
    suffix: str | None


def _validated(kind: type[RequestT], fields: dict[str, Any]) -> RequestT:
    """A request object; what pydantic finds wrong becomes an InvalidRequest."""
    try:
        return kind(**fields)
    except ValidationError as error:
        raise _invalid_request(error) from error


def _invalid_request(error: ValidationError) -> InvalidRequest:
    """The first error, about the field that it names; each error is a line of the message."""
    errors = error.errors(include_url=False, include_context=False)
    lines = []
    for found in errors:
        message = found["msg"].removeprefix("Value error, ")
        # A message of ours names the value where that helps.
        value = "" if found["type"] == "value_error" else f", got {reprlib.repr(found['input'])}"
        lines.append(": ".join([*_path(found["loc"]), message]) + value)
    field = errors[0]["loc"][0] if errors[0]["loc"] else "request"
    return invalid_request(str(field), "\n".join(lines))


def _path(location: tuple[int | str, ...]) -> list[str]:
    """``messages[0].role``, or nothing for an error that concerns several fields."""
    if not location:
        return []
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return ["".join(parts).removeprefix(".")]


class ChatCompletions(Generic[ResponseT, StreamT]):
    """``engine.chat.completions``."""

    def __init__(self, handle: Callable[[ChatCompletionRequest, str | None], Any]) -> None:
        self._handle = handle

    @overload
    def create(
        self,
        *,
        messages: list[dict[str, Any]],
        stream: Literal[False] = False,
        **arguments: Unpack[ChatArguments],
    ) -> ResponseT: ...
    @overload
    def create(
        self,
        *,
        messages: list[dict[str, Any]],
        stream: Literal[True],
        **arguments: Unpack[ChatArguments],
    ) -> StreamT: ...
    def create(
        self,
        *,
        messages: list[dict[str, Any]],
        model: str | None = None,
        frequency_penalty: float | None = None,
        presence_penalty: float | None = None,
        logprobs: bool = False,
        top_logprobs: int = 0,
        logit_bias: dict[int, float] | None = None,
        max_tokens: int | None = None,
        n: int = 1,
        seed: int | None = None,
        stop: str | list[str] | None = None,
        stream: bool = False,
        stream_options: dict[str, Any] | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        tools: list[dict[str, Any]] | None = None,
        tool_choice: str | dict[str, Any] | None = None,
        user: str | None = None,
        response_format: dict[str, Any] | None = None,
        request_id: str | None = None,
        extra_body: dict[str, Any] | None = None,
    ) -> Any:
        """A chat completion, by OpenAI's parameters; ``None`` is the model's default.

        Args:
            request_id: for ``abort``; default: a fresh one.
            extra_body: the fields of ``SamplingOptions`` that are no parameters here (``top_k``,
                ``min_p``, ``repetition_penalty``, ``stop_token_ids``, ``priority``, ...; see
                ``GenerationConfig``), ``max_completion_tokens``, ``ignore_eos`` and
                ``debug_config``.

        Returns:
            The response, or with ``stream=True`` an iterator of chunks. Dropping or closing the
            iterator aborts the request. Tool calls in the answer are left as text.

        Raises:
            InvalidRequest: a ValueError; the request is wrong, and ``field`` names what is.
            QueueFull: an InvalidRequest; too many requests wait already.
            EngineRequestError: the engine ended the request with an error.
            EngineTerminatedError: the engine is gone.
        """
        fields = request_fields({k: v for k, v in locals().items() if k != "self"})
        request_id = fields.pop("request_id")
        return self._handle(_validated(ChatCompletionRequest, fields), request_id)


class Completions(Generic[ResponseT, StreamT]):
    """``engine.completions``."""

    def __init__(self, handle: Callable[[CompletionRequest, str | None], Any]) -> None:
        self._handle = handle

    @overload
    def create(
        self,
        *,
        prompt: str | list[int],
        stream: Literal[False] = False,
        **arguments: Unpack[CompletionArguments],
    ) -> ResponseT: ...
    @overload
    def create(
        self,
        *,
        prompt: str | list[int],
        stream: Literal[True],
        **arguments: Unpack[CompletionArguments],
    ) -> StreamT: ...
    def create(
        self,
        *,
        prompt: str | list[int],
        model: str | None = None,
        best_of: int = 1,
        echo: bool = False,
        frequency_penalty: float | None = None,
        presence_penalty: float | None = None,
        logprobs: int | None = None,
        logit_bias: dict[int, float] | None = None,
        max_tokens: int | None = None,
        n: int = 1,
        seed: int | None = None,
        stop: str | list[str] | None = None,
        stream: bool = False,
        stream_options: dict[str, Any] | None = None,
        suffix: str | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        user: str | None = None,
        response_format: dict[str, Any] | None = None,
        request_id: str | None = None,
        extra_body: dict[str, Any] | None = None,
    ) -> Any:
        """A completion of text or token ids; see ``ChatCompletions.create``."""
        fields = request_fields({k: v for k, v in locals().items() if k != "self"})
        request_id = fields.pop("request_id")
        return self._handle(_validated(CompletionRequest, fields), request_id)


class Chat(Generic[ResponseT, StreamT]):
    """``engine.chat``."""

    def __init__(self, completions: ChatCompletions[ResponseT, StreamT]) -> None:
        self.completions = completions
