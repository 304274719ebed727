"""MLCEngine: OpenAI's interface on an engine inside this process, for threads.

AsyncMLCEngine (serve/async_engine.py) is the same for event loops. Both turn a call into
requests and a responder, which makes chunks of their outputs; they differ in how they wait.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from mlc_native import _core
from mlc_native._core import AdapterInfo, Cancellation, PinnedPrefix
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
from mlc_native.serve.async_engine import AsyncMLCEngine as AsyncMLCEngine
from mlc_native.serve.batch import Batch, Configs, GenerationResult, Items
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.embeddings import Embeddings, PooledRequest, PooledResponse, Portions
from mlc_native.serve.metrics import EngineMetrics
from mlc_native.serve.model_setup import Mode, ModelSetup
from mlc_native.serve.openai_engine import OpenAIEngine, PreparedCall
from mlc_native.serve.openai_interface import (
    Arguments,
    Chat,
    ChatCompletions,
    Completions,
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
from mlc_native.serve.streams import ChunkStream, Outputs, RequestStream


class MLCEngine(OpenAIEngine):
    """An engine for threads. Any number of threads may call it; calls wait without the GIL.

    Args:
        model: model folder, "demo" (the model inside this package) or hub id.
        device: "cpu", "cuda" (the first GPU), "cuda:i", or "auto" (a GPU where one can be used); or
            an object that prints as one of them, such as a torch.device.
        model_lib: plug-in library that creates the model; None is the decoder of the device, and
            "mock://echo" an engine without weights that answers with the prompt.
        mode: "auto" (as many sequences as fit into memory), or MLC-LLM's "local" (at most 4
            sequences and 8192 tokens), "interactive" (one sequence) and "server" (as many as fit,
            with a limited queue).
        engine_config: further settings, also as a dict. The object is not changed.
        enable_tracing: record events in ``state.trace_recorder``.
        settings: fields of EngineConfig (``dtype="bf16"``); they take precedence.

    Use it as a context manager, or call ``terminate()``. Dropping the last reference and leaving
    the interpreter also end it.
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
        super().__init__(model, device, model_lib, mode, engine_config, enable_tracing, settings)

    @property
    def chat(self) -> Chat:
        """``chat.completions.create``."""
        return Chat(ChatCompletions(self._create))

    @property
    def completions(self) -> Completions:
        """``completions.create``."""
        return Completions(self._create)

    @property
    def embeddings(self) -> Embeddings:
        """``embeddings.create``."""
        return Embeddings(partial(self._create_pooled, EmbeddingRequest))

    def classify(
        self, inputs: Prompts, **arguments: Unpack[ClassificationArguments]
    ) -> list[Classification]:
        """The classes of texts, by a model that was trained for it or has the setting
        ``classifier_from_token``.

        Args:
            inputs: a text or token ids, or a list of them.
            arguments: ``use_activation`` (False: the logits), ``add_special_tokens``,
                ``truncate_prompt_tokens``, ``priority``, ``queue_timeout_s``, ``timeout_s``,
                ``cache_salt``, ``adapter``, ``model``, ``request_id``.

        Returns:
            For each input the probabilities of all classes (``probs``) and the name of the
            likeliest one (``label``).

        Raises:
            InvalidRequest: an argument is wrong, or the model has no classes.
            QueueFull, EngineRequestError, EngineTerminatedError: see ``embeddings.create``.
        """
        arguments_of_call = {"input": inputs, **arguments}
        response = self._create_pooled(ClassificationRequest, arguments_of_call, False)
        data: list[Classification] = response.data
        return data

    def score(
        self,
        text_1: str | Sequence[str],
        text_2: str | Sequence[str],
        **arguments: Unpack[ComparisonArguments],
    ) -> list[Score]:
        """How well texts go together: what a reranker says, or the cosines of embeddings.

        Args:
            text_1: one text for all of ``text_2``, or as many: the queries.
            text_2: a text or a list of texts: the documents.
            arguments: ``instruction``, ``use_activation`` (False: the logits of a reranker),
                ``truncate_prompt_tokens``, ``priority``, ``queue_timeout_s``, ``timeout_s``,
                ``cache_salt``, ``adapter``, ``model``.

        Raises:
            InvalidRequest: an argument is wrong, or the model has several classes.
            QueueFull, EngineRequestError, EngineTerminatedError: see ``embeddings.create``.
        """
        plan = self._compare(Pairs(("text_1", "text_2"), text_1, text_2), arguments)
        return plan.score_response(self._compute(plan)).data

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        top_n: int | None = None,
        *,
        return_documents: bool = True,
        **arguments: Unpack[ComparisonArguments],
    ) -> RerankResponse:
        """Documents in the order of their scores for a query, the best one first; see ``score``.

        Args:
            query: one text.
            documents: texts.
            top_n: only so many of the best; None or 0: all.
            return_documents: whether the results have the texts, too.
            arguments: as of ``score``.
        """
        ranking = Ranking(query, documents, top_n, return_documents=return_documents)
        plan = self._compare(ranking.pairs, arguments)
        return ranking.response(plan, self._compute(plan))

    def generate(
        self,
        prompts: Items,
        generation_config: Configs = None,
        *,
        progress: bool | None = None,
        **options: Unpack[GenerateArguments],
    ) -> list[GenerationResult]:
        """Answers any number of prompts and chats, and returns the results in their order.

        The engine has as many of them at a time as it can run, and other requests are served
        alongside. ``prompts`` may be a generator; it is read as answers are finished.

        Args:
            prompts: an iterable of prompts (text or token ids), of chats (lists of messages) and of
                objects with "prompt" or "messages" and settings of their own. A single one gives a
                list of one result.
            generation_config: settings of all answers, or a list with those of each prompt.
            progress: show a progress bar on stderr; None: if it is a terminal.
            options: further settings, which take precedence: those of GenerationConfig, and those
                of a chat (``tools``, ...).

        Returns:
            One GenerationResult per prompt. What is wrong with a prompt, or fails while it is
            answered, is the ``error`` of its result.

        Raises:
            InvalidRequest: a setting is wrong.
            EngineTerminatedError: the engine was terminated.
        """
        return Batch(self, prompts, generation_config, options, progress).run()

    def abort(self, request_id: str) -> None:
        """Ends a request: its consumer gets finish reason "abort". Unknown ids are ignored."""
        self._abort(request_id)

    def abort_all(self) -> None:
        """Ends all requests; each consumer gets finish reason "abort"."""
        self._abort_all()

    def metrics(self) -> EngineMetrics:
        """Returns the engine's metrics, taken between two steps."""
        return self._query_metrics()

    def render_chat(self, messages: Messages, **arguments: Unpack[RenderArguments]) -> RenderedChat:
        """Returns the prompt that ``chat.completions.create`` makes of its arguments.

        Args:
            messages: as in ``chat.completions.create``.
            arguments: ``tools``, ``tool_choice``, ``documents``, ``chat_template``,
                ``chat_template_kwargs``, ``add_generation_prompt``, ``continue_final_message``,
                ``add_special_tokens``, ``allow_special_tokens_in_content``.

        Raises:
            InvalidRequest: an argument is wrong, or the model has no chat template.
        """
        self._check_running()
        return render_chat(self._model.current, messages, arguments)

    def pin_prefix(self, prompt: Prompt, *, add_special_tokens: bool = True) -> int:
        """Keeps a prompt in the prefix cache until it is unpinned, and returns the id of the pin.

        The prompt is computed if it is not in the cache. The same tokens have the same pin. Pins
        always leave room for a sequence of ``max_single_sequence_length`` tokens.

        Args:
            prompt: text or token ids.
            add_special_tokens: put what the tokenizer puts around a text (BOS) around this one, as
                completions do. What the text begins with is not repeated.

        Raises:
            InvalidRequest: the prompt can never be served, no room is left for pins, or the prefix
                cache is off.
        """
        setup = self._model.current
        token_ids = self._token_ids(
            prompt, setup, PIN_CONFIG, add_special_tokens=add_special_tokens
        )
        for _ in self._generate(token_ids, PIN_CONFIG, random_request_id("pin"), setup):
            pass
        return self._pin_prefix(token_ids, setup)

    def unpin_prefix(self, pin_id: int) -> None:
        """Releases a pinned prompt. Raises InvalidRequest for an id that is not pinned."""
        self._unpin_prefix(pin_id)

    def pinned_prefixes(self) -> list[PinnedPrefix]:
        """Returns all pins, with the id and the numbers of tokens and pages of each."""
        return self._pinned_prefixes()

    def load_adapter(self, name: str, folder: str | os.PathLike[str]) -> None:
        """Loads an adapter (LoRA) that requests choose with ``adapter=name``.

        Other requests go on meanwhile. The adapters of a model end with it: a reload loads those of
        its setting ``adapters``.

        Args:
            name: what requests call it; also their ``model``.
            folder: with adapter_config.json and adapter_model.safetensors as PEFT writes them, or
                hub id.

        Raises:
            InvalidRequest: the name is empty or taken, or ``folder`` is no path.
            LoadError: files are missing or damaged, or do not fit the model.
            InvalidConfig: the adapter is of a kind that is not supported.
        """
        self._load_adapter(name, folder)

    def unload_adapter(self, name: str) -> None:
        """Drops an adapter. Requests that run with it finish with it; new ones are refused.

        Raises:
            InvalidRequest: no adapter of this name is loaded.
        """
        self._unload_adapter(name)

    def adapters(self) -> list[AdapterInfo]:
        """Returns the loaded adapters, with the name, folder, rank and bytes of each."""
        return self._adapters()

    def reload(
        self,
        model: str | os.PathLike[str],
        engine_config: EngineConfig | Mapping[str, Any] | None = None,
        *,
        model_lib: str | os.PathLike[str] | None = None,
        mode: Mode = "auto",
        **settings: Unpack[EngineSettings],
    ) -> None:
        """Replaces the model. Requests of the old one end with finish reason "abort".

        The arguments are those of the constructor. An error that is found before the load (a wrong
        setting, a folder that is not a model) leaves the old model in service. If the load itself
        fails or is interrupted, no model is loaded. Requests are refused with ModelNotLoaded during
        the load and after a failed one; another reload may follow.
        """
        self._reload(model, engine_config, model_lib, mode, settings)

    def unload(self) -> None:
        """Drops the model. Requests end with "abort"; new ones are refused until a reload."""
        self._unload()

    def _create(self, kind: RequestKind, arguments: Arguments, is_body: bool) -> Any:
        return self._answer(self._prepare(kind, arguments, is_body, Cancellation()))

    def _compute(self, plan: Comparison) -> list[PooledResponse]:
        """The responses to the calls of a plan."""
        responses: list[PooledResponse] = []
        for call in plan.calls:
            with call.errors():
                responses.append(self._create_pooled(call.kind, call.fields, False))
        return responses

    def _create_pooled(self, kind: type[PooledRequest], arguments: Arguments, is_body: bool) -> Any:
        call = self._prepare_pooled(kind, arguments, is_body)
        portions = Portions(call.requests, call.setup.engine_config)
        stream_of = partial(self._stream, setup=call.setup, call_id=portions.call_id)
        outputs: list[Outputs] = []
        cancellation = Cancellation()
        with self._preparations.entry(portions.call_id, cancellation):
            while portions:
                outputs += portions.open(stream_of, cancellation)
        return call.responder.response(outputs)

    def _handle_chat_completion(
        self, request: ChatCompletionRequest, request_id: str | None = None
    ) -> Any:
        return self._answer(self._prepare_request(request, request_id, Cancellation()))

    def _handle_completion(self, request: CompletionRequest, request_id: str | None = None) -> Any:
        return self._answer(self._prepare_request(request, request_id, Cancellation()))

    def _answer(self, call: PreparedCall) -> Any:
        stream = self._stream(call.requests, call.setup)
        if call.stream:
            return ChunkStream(stream, call.responder)
        return call.responder.response(list(stream))

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
        return self._stream([request], setup)

    def _stream(
        self, requests: list[_core.Request], setup: ModelSetup, call_id: str | None = None
    ) -> RequestStream:
        open_channel = self.state.bridge.open_sync
        return RequestStream(self, self._open_requests(open_channel, requests, setup, call_id))
