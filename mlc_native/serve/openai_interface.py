"""``engine.chat.completions`` and ``engine.completions``, for threads and for event loops.

The arguments of ``create`` are the fields of the request classes: its signature and documentation
derive from them here, and for type checkers in serve/arguments.py. The engine's ``create`` turns
the arguments into a request and answers it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Unpack, overload

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mlc_native.errors import InvalidRequest, invalid_request, shown
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionMessage,
    ChatCompletionRequest,
    ChatCompletionResponse,
    ChatCompletionStreamResponse,
    CompletionRequest,
    CompletionResponse,
)
from mlc_native.protocol.parsed_response import (
    ContentT,
    ParsedChatCompletionResponse,
    check_parse,
    parsed_response,
)
from mlc_native.protocol.validation import unreadable
from mlc_native.serve.arguments import ChatArguments, CompletionArguments
from mlc_native.serve.streams import AsyncChunkStream, ChunkStream
from mlc_native.support.keywords import check_keywords, name_hint

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
RequestKind = type[ChatCompletionRequest] | type[CompletionRequest]
Arguments = Mapping[str, Any]

Messages = Sequence[ChatCompletionMessage | Mapping[str, Any]]
Prompts = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]

MAX_NAME = 64  # characters of a name that does not exist, in an error

# Arguments of every call that are no fields of the request.
_OF_A_CALL = {
    "request_id": "for `abort`; default: a fresh one.",
    "extra_body": "further fields of the request, as for OpenAI's client.",
}


def request_fields(kind: type[BaseModel], arguments: Arguments) -> dict[str, Any]:
    """The fields of a request from the arguments of ``create``. ``extra_body`` wins.

    Raises:
        TypeError: an argument does not exist.
        InvalidRequest: ``extra_body`` is wrong, or has a field that does not exist.
    """
    known = {*kind.model_fields, *_OF_A_CALL}
    advice = "; create_from(body) ignores fields that do not exist"
    check_keywords("create", arguments, known, advice)
    fields = {name: value for name, value in arguments.items() if name not in _OF_A_CALL}
    extra = arguments.get("extra_body")
    if extra is None:
        return fields
    try:
        return {**fields, **_extra_fields(kind, extra)}
    except InvalidRequest:
        raise
    except Exception as error:  # what a method of a caller's object raises
        raise unreadable("extra_body", error) from error


def _extra_fields(kind: type[BaseModel], extra: object) -> dict[str, Any]:
    if not isinstance(extra, Mapping):
        raise invalid_request("extra_body", f'"extra_body" must be a dict, got {shown(extra)}')
    fields: dict[str, Any] = {}
    for name, value in extra.items():
        if name not in kind.model_fields:
            raise invalid_request(
                str(name)[:MAX_NAME] or "extra_body",
                f'extra_body has no field "{str(name)[:MAX_NAME]}"'
                + (name_hint(name, kind.model_fields) or _known_fields(kind)),
            )
        fields[name] = value
    return fields


def body_fields(kind: type[BaseModel], body: object) -> tuple[dict[str, Any], list[str]]:
    """The fields of a request that a JSON body has, and the names of its unknown fields."""
    if not isinstance(body, Mapping):
        raise invalid_request("body", f"the body must be a dict, got {shown(body)}")
    fields = {name: value for name, value in body.items() if name in kind.model_fields}
    return fields, [str(name) for name in body if name not in kind.model_fields]


def _known_fields(kind: type[BaseModel]) -> str:
    return "; the fields of a request are " + ", ".join(kind.model_fields)


# ------------------------------------------------------------------------------ the documentation


def _arguments(kind: type[BaseModel]) -> dict[str, FieldInfo]:
    """The arguments of ``create``: required fields first."""
    fields = sorted(kind.model_fields.items(), key=lambda item: not item[1].is_required())
    return dict(fields) | {
        name: FieldInfo(default=None, annotation=Any, description=text)
        for name, text in _OF_A_CALL.items()
    }


def _signature(kind: type[BaseModel]) -> inspect.Signature:
    """The signature of ``create``, with the defaults of the fields."""
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for name, field in _arguments(kind).items():
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.is_required() else field.get_default(),
            )
        )
    return inspect.Signature(parameters)


def _argument_docs(kind: type[BaseModel]) -> str:
    """A line with range and default for each argument of ``create``."""
    lines = ["Args:"]
    for name, field in _arguments(kind).items():
        text = field.description or ""
        if not field.is_required() and field.get_default() is not None:
            text += f" Default: {field.get_default()!r}."
        lines.append(f"    {name}: {text}")
    return "\n".join(
        textwrap.fill(line, 92, subsequent_indent=" " * 8, break_on_hyphens=False) for line in lines
    )


def takes_fields_of(kind: type[BaseModel]) -> Callable[[FunctionT], FunctionT]:
    """Gives a ``create(**arguments)`` the signature and the documentation of a request class."""

    def decorate(function: FunctionT) -> FunctionT:
        function.__signature__ = _signature(kind)  # type: ignore[attr-defined]
        text = inspect.cleandoc(function.__doc__ or "")
        before, raises, after = text.partition("Raises:")
        function.__doc__ = before + _argument_docs(kind) + "\n\n" + raises + after
        return function

    return decorate


# ---------------------------------------------------------------------------------------- threads


class ChatCompletions:
    """``engine.chat.completions`` of an MLCEngine."""

    def __init__(self, create: Callable[[RequestKind, Arguments, bool], Any]) -> None:
        self._create = create

    @overload
    def create(
        self,
        *,
        messages: Messages,
        stream: Literal[False] = False,
        **arguments: Unpack[ChatArguments],
    ) -> ChatCompletionResponse: ...
    @overload
    def create(
        self, *, messages: Messages, stream: Literal[True], **arguments: Unpack[ChatArguments]
    ) -> ChunkStream[ChatCompletionStreamResponse]: ...
    @takes_fields_of(ChatCompletionRequest)
    def create(self, **arguments: Any) -> Any:
        """A chat completion, by OpenAI's parameters; ``None`` is the model's default.

        Returns the response or, with ``stream=True``, an iterator of chunks, which is a context
        manager: closing or dropping it aborts the request.

        Raises:
            InvalidRequest: a ValueError; the request is wrong, and ``field`` names what is.
            QueueFull: an InvalidRequest; too many requests wait already.
            EngineRequestError: the engine ended the request with an error.
            EngineTerminatedError: the engine is gone.
        """
        return self._create(ChatCompletionRequest, arguments, False)

    def parse(
        self, *, messages: Messages, response_format: type[ContentT], **arguments: Any
    ) -> ParsedChatCompletionResponse[ContentT]:
        """A chat completion whose answers are values of a type, in ``message.parsed``.

        ``response_format`` is a type that pydantic knows: a model, a dataclass, a TypedDict. The
        other arguments are those of ``create``, except ``stream``.

        Raises:
            LengthFinishReasonError: an answer was cut.
            AnswerParseError: the type refuses an answer for a reason that its schema does not show.
            InvalidRequest: see ``create``.
        """
        check_parse(response_format, arguments)
        fields = {"messages": messages, "response_format": response_format, **arguments}
        return parsed_response(self._create(ChatCompletionRequest, fields, False), response_format)

    def create_from(
        self, body: Mapping[str, Any]
    ) -> ChatCompletionResponse | ChunkStream[ChatCompletionStreamResponse]:
        """``create`` with the fields of a JSON body as OpenAI's clients send it.

        A field that is not known is ignored; a warning names it, once per engine.
        """
        return self._create(ChatCompletionRequest, body, True)


class Completions:
    """``engine.completions`` of an MLCEngine."""

    def __init__(self, create: Callable[[RequestKind, Arguments, bool], Any]) -> None:
        self._create = create

    @overload
    def create(
        self,
        *,
        prompt: Prompts,
        stream: Literal[False] = False,
        **arguments: Unpack[CompletionArguments],
    ) -> CompletionResponse: ...
    @overload
    def create(
        self, *, prompt: Prompts, stream: Literal[True], **arguments: Unpack[CompletionArguments]
    ) -> ChunkStream[CompletionResponse]: ...
    @takes_fields_of(CompletionRequest)
    def create(self, **arguments: Any) -> Any:
        """Completions of one or several prompts; otherwise like ``chat.completions.create``.

        Choice ``i * n + j`` is answer j to prompt i.

        Raises:
            InvalidRequest: see ``chat.completions.create``.
        """
        return self._create(CompletionRequest, arguments, False)

    def create_from(
        self, body: Mapping[str, Any]
    ) -> CompletionResponse | ChunkStream[CompletionResponse]:
        """``create`` with the fields of a JSON body; see ``chat.completions.create_from``."""
        return self._create(CompletionRequest, body, True)


class Chat:
    """``engine.chat`` of an MLCEngine."""

    def __init__(self, completions: ChatCompletions) -> None:
        self.completions = completions


# ------------------------------------------------------------------------------------ event loops


class AsyncChatCompletions:
    """``engine.chat.completions`` of an AsyncMLCEngine."""

    def __init__(self, create: Callable[[RequestKind, Arguments, bool], Awaitable[Any]]) -> None:
        self._create = create

    @overload
    async def create(
        self,
        *,
        messages: Messages,
        stream: Literal[False] = False,
        **arguments: Unpack[ChatArguments],
    ) -> ChatCompletionResponse: ...
    @overload
    async def create(
        self, *, messages: Messages, stream: Literal[True], **arguments: Unpack[ChatArguments]
    ) -> AsyncChunkStream[ChatCompletionStreamResponse]: ...
    @takes_fields_of(ChatCompletionRequest)
    async def create(self, **arguments: Any) -> Any:
        """A chat completion, by OpenAI's parameters; ``None`` is the model's default.

        Returns the response or, with ``stream=True``, an asynchronous iterator of chunks, which is
        an asynchronous context manager: closing or dropping it aborts the request.

        Raises:
            InvalidRequest: a ValueError; the request is wrong, and ``field`` names what is.
            QueueFull: an InvalidRequest; too many requests wait already.
            EngineRequestError: the engine ended the request with an error.
            EngineTerminatedError: the engine is gone.
        """
        return await self._create(ChatCompletionRequest, arguments, False)

    async def parse(
        self, *, messages: Messages, response_format: type[ContentT], **arguments: Any
    ) -> ParsedChatCompletionResponse[ContentT]:
        """A chat completion whose answers are values of a type, in ``message.parsed``.

        ``response_format`` is a type that pydantic knows: a model, a dataclass, a TypedDict. The
        other arguments are those of ``create``, except ``stream``.

        Raises:
            LengthFinishReasonError: an answer was cut.
            AnswerParseError: the type refuses an answer for a reason that its schema does not show.
            InvalidRequest: see ``create``.
        """
        check_parse(response_format, arguments)
        fields = {"messages": messages, "response_format": response_format, **arguments}
        response = await self._create(ChatCompletionRequest, fields, False)
        return parsed_response(response, response_format)

    async def create_from(
        self, body: Mapping[str, Any]
    ) -> ChatCompletionResponse | AsyncChunkStream[ChatCompletionStreamResponse]:
        """``create`` with the fields of a JSON body as OpenAI's clients send it.

        A field that is not known is ignored; a warning names it, once per engine.
        """
        return await self._create(ChatCompletionRequest, body, True)


class AsyncCompletions:
    """``engine.completions`` of an AsyncMLCEngine."""

    def __init__(self, create: Callable[[RequestKind, Arguments, bool], Awaitable[Any]]) -> None:
        self._create = create

    @overload
    async def create(
        self,
        *,
        prompt: Prompts,
        stream: Literal[False] = False,
        **arguments: Unpack[CompletionArguments],
    ) -> CompletionResponse: ...
    @overload
    async def create(
        self, *, prompt: Prompts, stream: Literal[True], **arguments: Unpack[CompletionArguments]
    ) -> AsyncChunkStream[CompletionResponse]: ...
    @takes_fields_of(CompletionRequest)
    async def create(self, **arguments: Any) -> Any:
        """Completions of one or several prompts; otherwise like ``chat.completions.create``.

        Choice ``i * n + j`` is answer j to prompt i.

        Raises:
            InvalidRequest: see ``chat.completions.create``.
        """
        return await self._create(CompletionRequest, arguments, False)

    async def create_from(
        self, body: Mapping[str, Any]
    ) -> CompletionResponse | AsyncChunkStream[CompletionResponse]:
        """``create`` with the fields of a JSON body; see ``chat.completions.create_from``."""
        return await self._create(CompletionRequest, body, True)


class AsyncChat:
    """``engine.chat`` of an AsyncMLCEngine."""

    def __init__(self, completions: AsyncChatCompletions) -> None:
        self.completions = completions
