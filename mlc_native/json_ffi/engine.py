"""JSONFFIEngine: an MLCEngine whose requests may be JSON texts and whose errors are chunks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from mlc_native.errors import EngineRequestError, InvalidRequest, invalid_request
from mlc_native.protocol.chat_messages import ChatCompletionDelta
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionRequest,
    ChatCompletionStreamResponse,
    ChatCompletionStreamResponseChoice,
    CompletionUsage,
)
from mlc_native.protocol.validation import validated
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.engine import MLCEngine
from mlc_native.serve.metrics import EngineMetrics
from mlc_native.serve.model_setup import Mode
from mlc_native.serve.openai_interface import request_fields
from mlc_native.serve.request_caps import check_fields
from mlc_native.serve.request_processing import random_request_id
from mlc_native.tokenizers import Tokenizer

Chunks = Iterator[ChatCompletionStreamResponse]


class JSONFFIEngine:
    """MLC-LLM's engine of its chat and its apps. Any number of threads may call it.

    What is wrong with a request, and what fails while it is answered, is a chunk with the finish
    reason "error" and the message as its content, followed by a usage chunk of zeros.

    Args:
        model: see MLCEngine, as for the other arguments.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        device: object = "auto",
        *,
        model_lib: str | os.PathLike[str] | None = None,
        mode: Mode = "local",
        engine_config: EngineConfig | Mapping[str, Any] | None = None,
    ) -> None:
        self._model = (model, engine_config, model_lib, mode)
        self._engine = MLCEngine(
            model, device, model_lib=model_lib, mode=mode, engine_config=engine_config
        )
        self.chat = Chat(self)

    @property
    def engine_config(self) -> EngineConfig:
        """The settings with everything inferred filled in."""
        return self._engine.engine_config

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None when the model folder has no tokenizer.json."""
        return self._engine.tokenizer

    def metrics(self) -> EngineMetrics:
        """The engine's metrics."""
        return self._engine.metrics()

    def terminate(self) -> None:
        """Ends the engine. Idempotent."""
        self._engine.terminate()

    def _raw_chat_completion(
        self, request_json_str: str, include_usage: bool, request_id: str
    ) -> Chunks:
        """The chunks for the JSON text of a request."""
        try:
            fields = json.loads(request_json_str)
            if not isinstance(fields, dict):
                raise invalid_request("request", "a request must be a JSON object")
        except (TypeError, ValueError, RecursionError) as error:
            return iter(_error_chunks(request_id, f"invalid JSON: {error}", include_usage))
        return self._chunks(fields, include_usage, request_id)

    def _chunks(self, fields: dict[str, Any], include_usage: bool, request_id: str) -> Chunks:
        streamed = {**fields, "stream": True, "stream_options": {"include_usage": True}}
        try:
            check_fields(streamed, self._engine.engine_config)
            request = validated(ChatCompletionRequest, streamed)
            with self._engine._handle_chat_completion(request, request_id) as stream:
                for chunk in stream:
                    if chunk.usage is None or include_usage:
                        yield chunk
        except (InvalidRequest, EngineRequestError) as error:
            yield from _error_chunks(request_id, str(error), include_usage)

    def _test_reload(self) -> None:
        model, engine_config, model_lib, mode = self._model
        self._engine.reload(model, engine_config, model_lib=model_lib, mode=mode)

    def _test_reset(self) -> None:
        self._engine.reset()

    def _test_unload(self) -> None:
        self._engine.unload()


class Chat:
    """``engine.chat`` of a JSONFFIEngine."""

    def __init__(self, engine: JSONFFIEngine) -> None:
        self.completions = Completions(engine)


class Completions:
    """``engine.chat.completions`` of a JSONFFIEngine."""

    def __init__(self, engine: JSONFFIEngine) -> None:
        self._engine = engine

    def create(self, *, stream: bool = True, **arguments: Any) -> Chunks:
        """A streamed chat completion, by OpenAI's parameters; see MLCEngine.

        Raises:
            InvalidRequest: ``stream`` is False.
            TypeError: an argument does not exist.
        """
        if not stream:
            raise invalid_request("stream", 'JSONFFIEngine streams: "stream" must be True')
        fields = request_fields(ChatCompletionRequest, arguments)
        options = fields.get("stream_options")
        get = options.get if isinstance(options, Mapping) else lambda name: getattr(options, name)
        include_usage = options is not None and bool(get("include_usage"))
        request_id = arguments.get("request_id") or random_request_id("chatcmpl")
        return self._engine._chunks(fields, include_usage, request_id)


def _error_chunks(
    request_id: str, message: str, include_usage: bool
) -> list[ChatCompletionStreamResponse]:
    choice = ChatCompletionStreamResponseChoice(
        finish_reason="error", delta=ChatCompletionDelta(content=message)
    )
    chunks = [ChatCompletionStreamResponse(id=request_id, choices=[choice])]
    if include_usage:
        usage = CompletionUsage()
        chunks.append(ChatCompletionStreamResponse(id=request_id, choices=[], usage=usage))
    return chunks
