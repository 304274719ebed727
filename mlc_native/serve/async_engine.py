"""AsyncMLCEngine: OpenAI's interface on an engine inside this process, for event loops."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from mlc_native import _core
from mlc_native._core import AdapterInfo, Cancellation, PinnedPrefix
from mlc_native.errors import EngineTerminatedError
from mlc_native.protocol.embeddings import EmbeddingRequest
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest, CompletionRequest
from mlc_native.protocol.scoring import (
    Classification,
    ClassificationArguments,
    ClassificationRequest,
    ComparisonArguments,
    RerankResponse,
    Score,
)
from mlc_native.serve.arguments import EngineSettings, GenerateArguments
from mlc_native.serve.batch import Batch, Configs, GenerationResult, Items
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.embeddings import AsyncEmbeddings, PooledRequest, PooledResponse, Portions
from mlc_native.serve.metrics import EngineMetrics
from mlc_native.serve.model_setup import Mode, ModelSetup
from mlc_native.serve.openai_engine import OpenAIEngine, PlannedCall, PreparedCall
from mlc_native.serve.openai_interface import (
    Arguments,
    AsyncChat,
    AsyncChatCompletions,
    AsyncCompletions,
    Prompts,
    RequestKind,
)
from mlc_native.serve.rendered_chat import (
    Messages,
    RenderArguments,
    RenderedChat,
    render_chat,
)
from mlc_native.serve.request_processing import (
    PIN_CONFIG,
    Prompt,
    random_request_id,
)
from mlc_native.serve.scoring import Comparison, Pairs, Ranking
from mlc_native.serve.streams import AsyncChunkStream, AsyncRequestStream, Outputs
from mlc_native.serve.work_threads import WorkThreads, outcome_of, run_on_thread

T = TypeVar("T")


def _terminate_made(made: Future[Any]) -> None:
    if made.exception() is None:
        made.result().terminate()


class AsyncMLCEngine(OpenAIEngine):
    """An engine for asyncio: any number of tasks, on any number of event loops.

    ``chat.completions.create`` is awaited; with ``stream=True`` the result is iterated with ``async
    for``. Arguments, attributes and errors are those of MLCEngine. The constructor blocks while the
    model loads; ``await AsyncMLCEngine.create(...)`` does not.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        device: object = "auto",
        *,
        model_lib: str | os.PathLike[str] | None = None,
        mode: Mode = "auto",
        engine_config: EngineConfig | Mapping[str, Any] | None = None,
        enable_tracing: bool = False,
        **settings: Unpack[EngineSettings],
    ) -> None:
        self._threads = WorkThreads()
        super().__init__(model, device, model_lib, mode, engine_config, enable_tracing, settings)
        weakref.finalize(self, self._threads.close)

    @classmethod
    async def create(
        cls, model: str | os.PathLike[str], device: object = "auto", **arguments: Any
    ) -> Self:
        """Makes an engine as the constructor does, without blocking the event loop for the load.

        If it is cancelled, the load ends in the background, and the engine is terminated.
        """
        made = run_on_thread(partial(cls, model, device, **arguments))
        try:
            return await outcome_of(made)
        except asyncio.CancelledError:
            made.add_done_callback(_terminate_made)
            raise

    @property
    def chat(self) -> AsyncChat:
        """``await chat.completions.create``."""
        return AsyncChat(AsyncChatCompletions(self._create))

    @property
    def completions(self) -> AsyncCompletions:
        """``await completions.create``."""
        return AsyncCompletions(self._create)

    @property
    def embeddings(self) -> AsyncEmbeddings:
        """``await embeddings.create``."""
        return AsyncEmbeddings(partial(self._create_pooled, EmbeddingRequest))

    async def classify(
        self, inputs: Prompts, **arguments: Unpack[ClassificationArguments]
    ) -> list[Classification]:
        """The same as ``MLCEngine.classify``."""
        arguments_of_call = {"input": inputs, **arguments}
        response = await self._create_pooled(ClassificationRequest, arguments_of_call, False)
        data: list[Classification] = response.data
        return data

    async def score(
        self,
        text_1: str | Sequence[str],
        text_2: str | Sequence[str],
        **arguments: Unpack[ComparisonArguments],
    ) -> list[Score]:
        """The same as ``MLCEngine.score``."""
        pairs = Pairs(("text_1", "text_2"), text_1, text_2)
        plan = await self._work(self._compare, pairs, arguments)
        return plan.score_response(await self._compute(plan)).data

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        top_n: int | None = None,
        *,
        return_documents: bool = True,
        **arguments: Unpack[ComparisonArguments],
    ) -> RerankResponse:
        """The same as ``MLCEngine.rerank``."""
        ranking = Ranking(query, documents, top_n, return_documents=return_documents)
        plan = await self._work(self._compare, ranking.pairs, arguments)
        return ranking.response(plan, await self._compute(plan))

    async def generate(
        self,
        prompts: Items,
        generation_config: Configs = None,
        *,
        progress: bool | None = None,
        **options: Unpack[GenerateArguments],
    ) -> list[GenerationResult]:
        """The same as ``MLCEngine.generate``. Cancelling it aborts what has not been answered.

        If ``prompts`` is a generator, it is read on another thread.
        """
        batch = await self._work(Batch, self, prompts, generation_config, options, progress)
        try:
            return await self._threads.run_long(batch.run)
        except asyncio.CancelledError:
            batch.cancel()
            raise

    async def abort(self, request_id: str) -> None:
        """Ends a request: its consumer gets finish reason "abort". Unknown ids are ignored."""
        self._abort(request_id)

    async def abort_all(self) -> None:
        """Ends all requests; each consumer gets finish reason "abort"."""
        self._abort_all()

    async def metrics(self) -> EngineMetrics:
        """Returns the engine's metrics, taken between two steps."""
        return await self._work(self._query_metrics)

    async def render_chat(
        self, messages: Messages, **arguments: Unpack[RenderArguments]
    ) -> RenderedChat:
        """The same as ``MLCEngine.render_chat``."""
        self._check_not_forked()
        setup = self._model.current
        run = self._threads.run if setup.image_encoder is None else self._threads.run_images
        return await run(render_chat, setup, messages, arguments)

    async def pin_prefix(self, prompt: Prompt, *, add_special_tokens: bool = True) -> int:
        """The same as ``MLCEngine.pin_prefix``.

        If it is cancelled, the prompt may stay pinned; ``pinned_prefixes`` tells, and the same
        prompt gets the same pin.
        """
        setup = self._model.current
        token_ids = await self._work(
            self._token_ids, prompt, setup, PIN_CONFIG, add_special_tokens=add_special_tokens
        )
        request_id = random_request_id("pin")
        request = await self._work(self._create_request, token_ids, PIN_CONFIG, request_id, setup)
        async for _ in self._stream([request], setup):
            pass
        return await self._work(self._pin_prefix, token_ids, setup)

    async def unpin_prefix(self, pin_id: int) -> None:
        """Releases a pinned prompt. Raises InvalidRequest for an id that is not pinned."""
        await self._work(self._unpin_prefix, pin_id)

    async def pinned_prefixes(self) -> list[PinnedPrefix]:
        """Returns all pins, with the id and the numbers of tokens and pages of each."""
        return await self._work(self._pinned_prefixes)

    async def load_adapter(self, name: str, folder: str | os.PathLike[str]) -> None:
        """The same as ``MLCEngine.load_adapter``, without blocking the event loop.

        If it is cancelled, the adapter may be loaded all the same; ``adapters`` tells.
        """
        self._check_not_forked()
        await self._threads.run_long(partial(self._load_adapter, name, folder))

    async def unload_adapter(self, name: str) -> None:
        """Drops an adapter. Requests that run with it finish with it; new ones are refused.

        Raises:
            InvalidRequest: no adapter of this name is loaded.
        """
        await self._work(self._unload_adapter, name)

    async def adapters(self) -> list[AdapterInfo]:
        """Returns the loaded adapters, with the name, folder, rank and bytes of each."""
        return await self._work(self._adapters)

    async def reload(
        self,
        model: str | os.PathLike[str],
        engine_config: EngineConfig | Mapping[str, Any] | None = None,
        *,
        model_lib: str | os.PathLike[str] | None = None,
        mode: Mode = "auto",
        **settings: Unpack[EngineSettings],
    ) -> None:
        """Replaces the model, as ``MLCEngine.reload`` does, without blocking the event loop."""
        await self._change_model(self._reload, model, engine_config, model_lib, mode, settings)

    async def unload(self) -> None:
        """Drops the model. Requests end with "abort"; new ones are refused until a reload."""
        await self._change_model(self._unload)

    def terminate(self) -> None:
        """Ends the engine: open requests end with finish reason "abort". Idempotent.

        Blocks until the engine's step has ended; ``aclose`` does not block the event loop.
        """
        super().terminate()
        self._threads.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """``terminate`` on another thread, so that the event loop goes on. Idempotent."""
        await outcome_of(run_on_thread(self.terminate))

    async def _work(self, function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Runs what would hold up the event loop on a thread of the engine's own."""
        self._check_not_forked()
        return await self._threads.run(function, *arguments, **keywords)

    async def _change_model(self, change: Callable[..., None], *arguments: Any) -> None:
        """Runs a change of the model, which goes on if its task is cancelled."""

        def work() -> None:
            try:
                change(*arguments)
            finally:
                self._threads.renew()

        self._check_not_forked()
        await self._threads.run_long(work)

    async def _create(self, kind: RequestKind, arguments: Arguments, is_body: bool) -> Any:
        return await self._answer(await self._prepared(self._plan, kind, arguments, is_body))

    async def _compute(self, plan: Comparison) -> list[PooledResponse]:
        """The responses to the calls of a plan."""
        responses: list[PooledResponse] = []
        for call in plan.calls:
            with call.errors():
                responses.append(await self._create_pooled(call.kind, call.fields, False))
        return responses

    async def _create_pooled(
        self, kind: type[PooledRequest], arguments: Arguments, is_body: bool
    ) -> Any:
        call = await self._work(self._prepare_pooled, kind, arguments, is_body)
        portions = Portions(call.requests, call.setup.engine_config)
        stream_of = partial(self._stream, setup=call.setup, call_id=portions.call_id)
        outputs: list[Outputs] = []
        cancellation = Cancellation()
        with self._preparations.entry(portions.call_id, cancellation):
            while portions:
                outputs += [each async for each in portions.open(stream_of, cancellation)]
        return await self._work(call.responder.response, outputs)

    async def _handle_chat_completion(
        self, request: ChatCompletionRequest, request_id: str | None = None
    ) -> Any:
        return await self._answer(await self._prepared(self._plan_request, request, request_id))

    async def _handle_completion(
        self, request: CompletionRequest, request_id: str | None = None
    ) -> Any:
        return await self._answer(await self._prepared(self._plan_request, request, request_id))

    async def _prepared(self, plan: Callable[..., PlannedCall], *arguments: Any) -> PreparedCall:
        """A call, prepared on threads. Cancelling it ends a compilation of its grammar."""
        cancellation = Cancellation()
        try:
            half = await self._work(self._prepare_texts, plan, *arguments, cancellation)
            if not isinstance(half, PlannedCall):
                return half
            if half.has_images:
                await self._threads.run_images(half.encode_images)
            if half.is_constrained:
                return await self._threads.run_grammar(self._finish_preparing, half)
            return await self._work(self._finish_preparing, half)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise

    def _prepare_texts(
        self, plan: Callable[..., PlannedCall], *arguments: Any
    ) -> PlannedCall | PreparedCall:
        """All of a call of texts without a grammar; of others, the part that waits for nothing."""
        planned = plan(*arguments)
        waits = planned.is_constrained or planned.has_images
        return planned if waits else self._finish_preparing(planned)

    async def _answer(self, call: PreparedCall) -> Any:
        stream = self._stream(call.requests, call.setup)
        if call.stream:
            return AsyncChunkStream(stream, call.responder, self._work)
        outputs = [each async for each in stream]
        try:
            return await self._work(call.responder.response, outputs)
        except EngineTerminatedError:  # there is no thread any more, but an answer
            return call.responder.response(outputs)

    def _generate(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig,
        request_id: str,
        setup: ModelSetup | None = None,
    ) -> AsyncRequestStream:
        """Submits a request of the running event loop and returns the stream of its outputs.

        Prepares the request on the loop, unlike ``chat`` and ``completions``.
        """
        setup = setup or self._model.current
        request = self._create_request(prompt, generation_config, request_id, setup)
        return self._stream([request], setup)

    def _stream(
        self, requests: list[_core.Request], setup: ModelSetup, call_id: str | None = None
    ) -> AsyncRequestStream:
        loop = asyncio.get_running_loop()
        channel = self._open_requests(
            lambda id_: self.state.bridge.open_async(id_, loop), requests, setup, call_id
        )
        return AsyncRequestStream(self, channel)
