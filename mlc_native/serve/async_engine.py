"""AsyncMLCEngine: OpenAI's interface on an engine inside this process, for event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, Self

from mlc_native import _core
from mlc_native._core import PinnedPrefix
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    ChatCompletionStreamResponse,
    CompletionRequest,
    CompletionResponse,
)
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.metrics import EngineMetrics
from mlc_native.serve.model_setup import Mode, ModelSetup
from mlc_native.serve.openai_engine import OpenAICall, OpenAIEngine
from mlc_native.serve.openai_interface import Chat, ChatCompletions, Completions
from mlc_native.serve.request_processing import (
    PIN_CONFIG,
    Prompt,
    prompt_token_ids,
    random_request_id,
)
from mlc_native.serve.streams import AsyncRequestStream, async_chunks_of
from mlc_native.tokenizers.tokenizers import LONG_TEXT_CHARS


class AsyncMLCEngine(OpenAIEngine):
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

    async def _answer(self, call: OpenAICall) -> Any:
        is_long = isinstance(call.prompt, str) and len(call.prompt) > LONG_TEXT_CHARS
        arguments = call.create_arguments()
        if is_long or call.config.is_constrained:
            # Tokenizing it or compiling its grammar here would block the event loop.
            request = await asyncio.to_thread(self._create_request, *arguments)
        else:
            request = self._create_request(*arguments)
        stream = self._stream(request, call.setup)
        if call.stream:
            return async_chunks_of(stream, call.responder)
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
