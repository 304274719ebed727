"""MLCEngine and AsyncMLCEngine: OpenAI's interface on an engine inside this process.

Both turn a request into an _OpenAICall (prompt, settings, responder) and its outputs into chunks.
They differ in how they wait: on a queue of a thread, or in a task of an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Generator
from dataclasses import dataclass
from typing import Any, Self

from mlc_native import _core
from mlc_native._core import PinnedPrefix
from mlc_native._stream_bridge import AsyncChannel, CallbackStreamOutput, SyncChannel
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    ChatCompletionStreamResponse,
    CompletionRequest,
    CompletionResponse,
)
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.engine_base import MLCEngineBase
from mlc_native.serve.metrics import EngineMetrics
from mlc_native.serve.model_setup import Mode, ModelSetup
from mlc_native.serve.openai_interface import Chat, ChatCompletions, Completions
from mlc_native.serve.request_processing import (
    PIN_CONFIG,
    Prompt,
    chat_prompt,
    check_unsupported,
    generation_config,
    prompt_token_ids,
    random_request_id,
)
from mlc_native.serve.responses import ChatResponder, CompletionResponder, Responder
from mlc_native.tokenizers.tokenizers import LONG_TEXT_CHARS


class RequestStream:
    """Iterates over the outputs of a request: lists with one item per sequence, then the usage.

    Closing or dropping it before the end aborts the request. One thread at a time.
    """

    def __init__(self, engine: MLCEngineBase, channel: SyncChannel) -> None:
        self._engine = engine
        self._channel = channel

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[CallbackStreamOutput]:
        self._engine._check_not_forked()
        outputs: list[CallbackStreamOutput] | None = self._channel.next()
        if outputs is None:
            raise StopIteration
        return outputs

    def close(self) -> None:
        """Aborts the request if it has not ended."""
        self._engine._close_request(self._channel)

    __del__ = close


class AsyncRequestStream:
    """A RequestStream for the event loop that it was made on. One task at a time."""

    def __init__(self, engine: MLCEngineBase, channel: AsyncChannel) -> None:
        self._engine = engine
        self._channel = channel

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[CallbackStreamOutput]:
        self._engine._check_not_forked()
        outputs: list[CallbackStreamOutput] | None = await self._channel.next()
        if outputs is None:
            raise StopAsyncIteration
        return outputs

    def close(self) -> None:
        """Aborts the request if it has not ended."""
        self._engine._close_request(self._channel)

    __del__ = close


@dataclass
class _OpenAICall:
    """A request of the OpenAI interface in the form that the engine takes."""

    request_id: str
    prompt: Prompt
    config: GenerationConfig
    responder: Any
    stream: bool
    setup: ModelSetup  # of the model that the request was prepared for
    begins_turn: bool  # the answer begins a turn of a chat

    def create_arguments(self) -> tuple[Prompt, GenerationConfig, str, ModelSetup, bool]:
        """The arguments of ``MLCEngineBase._create_request``."""
        return self.prompt, self.config, self.request_id, self.setup, self.begins_turn


class _OpenAIEngine(MLCEngineBase):
    """The parts of both engines that do not wait."""

    def _chat_call(self, request: ChatCompletionRequest, request_id: str | None) -> _OpenAICall:
        self._check_running()
        setup = self._model.current
        request_id = request_id or random_request_id("chatcmpl")
        return _OpenAICall(
            request_id,
            chat_prompt(request, setup.conv_template),
            generation_config(request, setup.chat_stop_token_ids, setup.chat_stop_strs),
            ChatResponder(request, request_id, setup.name),
            request.stream,
            setup,
            begins_turn=True,
        )

    def _completion_call(self, request: CompletionRequest, request_id: str | None) -> _OpenAICall:
        self._check_running()
        setup = self._model.current
        check_unsupported(request)
        request_id = request_id or random_request_id("cmpl")
        text = request.prompt
        if request.echo and not isinstance(text, str):
            text = setup.tokenizer.decode(text) if setup.tokenizer is not None else ""
        if not request.echo or not isinstance(text, str):
            text = ""
        responder = CompletionResponder(request, request_id, setup.name, echo=text)
        config = generation_config(request)
        return _OpenAICall(
            request_id, request.prompt, config, responder, request.stream, setup, begins_turn=False
        )


# ------------------------------------------------------------------------------------ synchronous


def _chunks(stream: RequestStream, responder: Responder) -> Generator[Any]:
    try:
        yield from responder.opening()
        for outputs in stream:
            yield from responder.chunks(outputs)
    finally:
        stream.close()


class MLCEngine(_OpenAIEngine):
    """An engine for threads. Any number of threads may call it; calls wait without the GIL.

    Args:
        model: model folder, "demo" (the model inside this package) or hub id.
        device: "cpu", "cuda" (the first GPU), "cuda:i", or "auto" (a GPU where one can be used); or
            an object that prints as one of them, such as a torch.device.
        model_lib: plug-in library that creates the model; None is the decoder of the device.
        mode: "local" (a few requests), "interactive" (one) or "server" (as many as fit).
        engine_config: further settings. The object is not changed.
        enable_tracing: record events in ``state.trace_recorder``.

    Use it as a context manager, or call ``terminate()``. Dropping the last reference and leaving
    the interpreter also end it.
    """

    def __init__(
        self,
        model: str,
        device: object = "auto",
        *,
        model_lib: str | None = None,
        mode: Mode = "local",
        engine_config: EngineConfig | None = None,
        enable_tracing: bool = False,
    ) -> None:
        super().__init__(model, device, model_lib, mode, engine_config, enable_tracing)

    @property
    def chat(self) -> Chat[ChatCompletionResponse, Generator[ChatCompletionStreamResponse]]:
        """``chat.completions.create``."""
        return Chat(ChatCompletions(self._handle_chat_completion))

    @property
    def completions(self) -> Completions[CompletionResponse, Generator[CompletionResponse]]:
        """``completions.create``."""
        return Completions(self._handle_completion)

    def abort(self, request_id: str) -> None:
        """Ends a request: its consumer gets finish reason "abort". Unknown ids are ignored."""
        self._abort(request_id)

    def abort_all(self) -> None:
        """Ends all requests; each consumer gets finish reason "abort"."""
        self._abort_all()

    def metrics(self) -> EngineMetrics:
        """Returns the engine's metrics, taken between two steps."""
        return self._query_metrics()

    def pin_prefix(self, prompt: Prompt) -> int:
        """Keeps a prompt in the prefix cache until it is unpinned, and returns the id of the pin.

        The prompt is computed if it is not in the cache. The same tokens have the same pin. Pins
        always leave room for a sequence of ``max_single_sequence_length`` tokens.

        Raises:
            InvalidRequest: the prompt can never be served, no room is left for pins, or the prefix
                cache is off.
        """
        token_ids = prompt_token_ids(prompt, self.tokenizer)
        for _ in self._generate(token_ids, PIN_CONFIG, random_request_id("pin")):
            pass
        pin_id: int = self._core.pin_prefix(token_ids)
        return pin_id

    def unpin_prefix(self, pin_id: int) -> None:
        """Releases a pinned prompt. Raises InvalidRequest for an id that is not pinned."""
        self._unpin_prefix(pin_id)

    def pinned_prefixes(self) -> list[PinnedPrefix]:
        """Returns all pins, with the id and the numbers of tokens and pages of each."""
        return self._pinned_prefixes()

    def reload(
        self,
        model: str,
        engine_config: EngineConfig | None = None,
        *,
        model_lib: str | None = None,
        mode: Mode = "local",
    ) -> None:
        """Replaces the model. Requests of the old one end with finish reason "abort".

        The arguments are those of the constructor. An error that is found before the load (a wrong
        setting, a folder that is not a model) leaves the old model in service. If the load itself
        fails, no model is loaded. Requests are refused with InvalidRequest during the load and
        after a failed one; another reload may follow.
        """
        self._reload(model, engine_config, model_lib, mode)

    def unload(self) -> None:
        """Drops the model. Requests end with "abort"; new ones are refused until a reload."""
        self._unload()

    def _handle_chat_completion(
        self, request: ChatCompletionRequest, request_id: str | None = None
    ) -> Any:
        return self._answer(self._chat_call(request, request_id))

    def _handle_completion(self, request: CompletionRequest, request_id: str | None = None) -> Any:
        return self._answer(self._completion_call(request, request_id))

    def _answer(self, call: _OpenAICall) -> Any:
        stream = self._stream(self._create_request(*call.create_arguments()), call.setup)
        if call.stream:
            return _chunks(stream, call.responder)
        try:
            return call.responder.response(list(stream))
        finally:
            stream.close()

    def _generate(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig,
        request_id: str,
        setup: ModelSetup | None = None,
    ) -> RequestStream:
        """Submits a request and returns the stream of its outputs."""
        setup = setup or self._model.current
        request = self._create_request(prompt, generation_config, request_id, setup)
        return self._stream(request, setup)

    def _stream(self, request: _core.Request, setup: ModelSetup) -> RequestStream:
        open_channel = self.state.bridge.open_sync
        return RequestStream(self, self._open_request(open_channel, request, setup))


# ----------------------------------------------------------------------------------- asynchronous


async def _async_chunks(stream: AsyncRequestStream, responder: Responder) -> AsyncGenerator[Any]:
    try:
        for chunk in responder.opening():
            yield chunk
        async for outputs in stream:
            for chunk in responder.chunks(outputs):
                yield chunk
    finally:
        stream.close()


class AsyncMLCEngine(_OpenAIEngine):
    """An engine for asyncio: any number of tasks, on any number of event loops.

    ``create`` is awaited; with ``stream=True`` the result is iterated with ``async for``.
    Arguments, attributes and errors are those of MLCEngine.
    """

    def __init__(
        self,
        model: str,
        device: object = "auto",
        *,
        model_lib: str | None = None,
        mode: Mode = "local",
        engine_config: EngineConfig | None = None,
        enable_tracing: bool = False,
    ) -> None:
        super().__init__(model, device, model_lib, mode, engine_config, enable_tracing)

    @property
    def chat(
        self,
    ) -> Chat[
        Awaitable[ChatCompletionResponse], Awaitable[AsyncGenerator[ChatCompletionStreamResponse]]
    ]:
        """``await chat.completions.create``."""
        return Chat(ChatCompletions(self._handle_chat_completion))

    @property
    def completions(
        self,
    ) -> Completions[Awaitable[CompletionResponse], Awaitable[AsyncGenerator[CompletionResponse]]]:
        """``await completions.create``."""
        return Completions(self._handle_completion)

    async def abort(self, request_id: str) -> None:
        """Ends a request: its consumer gets finish reason "abort". Unknown ids are ignored."""
        self._abort(request_id)

    async def abort_all(self) -> None:
        """Ends all requests; each consumer gets finish reason "abort"."""
        self._abort_all()

    async def metrics(self) -> EngineMetrics:
        """Returns the engine's metrics, taken between two steps."""
        return await asyncio.to_thread(self._query_metrics)

    async def pin_prefix(self, prompt: Prompt) -> int:
        """The same as ``MLCEngine.pin_prefix``."""
        token_ids = await asyncio.to_thread(prompt_token_ids, prompt, self.tokenizer)
        async for _ in self._generate(token_ids, PIN_CONFIG, random_request_id("pin")):
            pass
        return await asyncio.to_thread(self._core.pin_prefix, token_ids)

    async def unpin_prefix(self, pin_id: int) -> None:
        """Releases a pinned prompt. Raises InvalidRequest for an id that is not pinned."""
        await asyncio.to_thread(self._unpin_prefix, pin_id)

    async def pinned_prefixes(self) -> list[PinnedPrefix]:
        """Returns all pins, with the id and the numbers of tokens and pages of each."""
        return await asyncio.to_thread(self._pinned_prefixes)

    async def reload(
        self,
        model: str,
        engine_config: EngineConfig | None = None,
        *,
        model_lib: str | None = None,
        mode: Mode = "local",
    ) -> None:
        """Replaces the model, as ``MLCEngine.reload`` does, without blocking the event loop."""
        await asyncio.to_thread(self._reload, model, engine_config, model_lib, mode)

    async def unload(self) -> None:
        """Drops the model. Requests end with "abort"; new ones are refused until a reload."""
        await asyncio.to_thread(self._unload)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await asyncio.to_thread(self.terminate)

    async def _handle_chat_completion(
        self, request: ChatCompletionRequest, request_id: str | None = None
    ) -> Any:
        return await self._answer(self._chat_call(request, request_id))

    async def _handle_completion(
        self, request: CompletionRequest, request_id: str | None = None
    ) -> Any:
        return await self._answer(self._completion_call(request, request_id))

    async def _answer(self, call: _OpenAICall) -> Any:
        is_long = isinstance(call.prompt, str) and len(call.prompt) > LONG_TEXT_CHARS
        arguments = call.create_arguments()
        if is_long or call.config.is_constrained:
            # Tokenizing it or compiling its grammar here would block the event loop.
            request = await asyncio.to_thread(self._create_request, *arguments)
        else:
            request = self._create_request(*arguments)
        stream = self._stream(request, call.setup)
        if call.stream:
            return _async_chunks(stream, call.responder)
        try:
            return call.responder.response([outputs async for outputs in stream])
        finally:
            stream.close()

    def _generate(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig,
        request_id: str,
        setup: ModelSetup | None = None,
    ) -> AsyncRequestStream:
        """Submits a request of the running event loop and returns the stream of its outputs.

        Blocks the loop while a grammar is compiled, unlike ``chat`` and ``completions``.
        """
        setup = setup or self._model.current
        request = self._create_request(prompt, generation_config, request_id, setup)
        return self._stream(request, setup)

    def _stream(self, request: _core.Request, setup: ModelSetup) -> AsyncRequestStream:
        loop = asyncio.get_running_loop()
        channel = self._open_request(
            lambda id_: self.state.bridge.open_async(id_, loop), request, setup
        )
        return AsyncRequestStream(self, channel)
