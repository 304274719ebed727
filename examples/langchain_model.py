"""A chat model of LangChain that runs in this process. Needs: pip install langchain-core.

    python examples/langchain_model.py [MODEL]

What LangChain builds on a chat model works with it: ``invoke``, ``stream``, ``batch``,
``bind_tools``, ``with_structured_output``, and chains.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    convert_to_openai_messages,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from mlc_native import MLCEngine


class ChatMLCNative(BaseChatModel):
    """A model of an engine, which belongs to the caller and may serve others at the same time.

    Attributes:
        engine: an MLCEngine.
        options: arguments of ``engine.chat.completions.create`` for every call, such as
            ``temperature`` and ``max_tokens``.
    """

    engine: Any
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "mlc_native"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[Any, AIMessage]:
        """The model with tools. ``tool_choice``: "auto", "none", "any" or the name of a tool."""
        if tool_choice is not None:
            kwargs["tool_choice"] = _openai_choice(tool_choice)
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _arguments(
        self, messages: list[BaseMessage], stop: list[str] | None, given: dict[str, Any]
    ) -> dict[str, Any]:
        arguments = {**self.options, **given, "messages": convert_to_openai_messages(messages)}
        if stop:
            arguments["stop"] = stop
        # with_structured_output says how it has bound the tools.
        arguments.pop("ls_structured_output_format", None)
        return arguments

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = self.engine.chat.completions.create(**self._arguments(messages, stop, kwargs))
        choice = answer.choices[0]
        calls = [
            tool_call(
                name=call.function.name, args=_arguments_of(call.function.arguments), id=call.id
            )
            for call in choice.message.tool_calls or []
        ]
        message = AIMessage(
            content=choice.message.content or "",
            tool_calls=calls,
            usage_metadata=_usage(answer.usage),
            response_metadata={"finish_reason": choice.finish_reason},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        arguments = self._arguments(messages, stop, kwargs)
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
        for part in self.engine.chat.completions.create(**arguments):
            chunk = ChatGenerationChunk(message=_message_chunk(part))
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def _openai_choice(choice: str) -> str | dict[str, Any]:
    if choice in ("auto", "none", "required"):
        return choice
    if choice == "any":
        return "required"
    return {"type": "function", "function": {"name": choice}}


def _arguments_of(text: Any) -> dict[str, Any]:
    return json.loads(text) if isinstance(text, str) else dict(text or {})


def _usage(usage: Any) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
    )


def _message_chunk(part: Any) -> AIMessageChunk:
    usage = None if part.usage is None else _usage(part.usage)
    if not part.choices:
        return AIMessageChunk(content="", usage_metadata=usage)
    choice = part.choices[0]
    calls = [
        tool_call_chunk(
            name=call.function.name if call.function else None,
            args=call.function.arguments if call.function else None,
            id=call.id,
            index=call.index,
        )
        for call in choice.delta.tool_calls or []
    ]
    metadata = {} if choice.finish_reason is None else {"finish_reason": choice.finish_reason}
    return AIMessageChunk(
        content=choice.delta.content or "",
        tool_call_chunks=calls,
        usage_metadata=usage,
        response_metadata=metadata,
    )


def main() -> None:
    """Asks one question, in pieces and at once."""
    model = sys.argv[1] if len(sys.argv) > 1 else "demo"
    with MLCEngine(model, verbose=False) as engine:
        chat = ChatMLCNative(engine=engine, options={"temperature": 0, "max_tokens": 64})
        question = [SystemMessage("You are a helpful assistant."), HumanMessage("Who are you?")]
        for chunk in chat.stream(question):
            print(chunk.text, end="", flush=True)
        print()
        answer = chat.invoke(question)
        print(answer.usage_metadata)


if __name__ == "__main__":
    main()
