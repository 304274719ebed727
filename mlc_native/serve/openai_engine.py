"""OpenAIEngine: from a request of OpenAI's interface to what the C++ engine takes.

The parts that MLCEngine and AsyncMLCEngine share because nothing in them waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest, CompletionRequest
from mlc_native.serve.engine_base import MLCEngineBase
from mlc_native.serve.model_setup import ModelSetup
from mlc_native.serve.request_processing import (
    Prompt,
    chat_prompt,
    check_unsupported,
    generation_config,
    random_request_id,
)
from mlc_native.serve.responses import ChatResponder, CompletionResponder


@dataclass
class OpenAICall:
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


class OpenAIEngine(MLCEngineBase):
    """The parts of both engines that do not wait."""

    def _chat_call(self, request: ChatCompletionRequest, request_id: str | None) -> OpenAICall:
        self._check_running()
        setup = self._model.current
        request_id = request_id or random_request_id("chatcmpl")
        return OpenAICall(
            request_id,
            chat_prompt(request, setup.conv_template),
            generation_config(request, setup.chat_stop_token_ids, setup.chat_stop_strs),
            ChatResponder(request, request_id, setup.name),
            request.stream,
            setup,
            begins_turn=True,
        )

    def _completion_call(self, request: CompletionRequest, request_id: str | None) -> OpenAICall:
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
        return OpenAICall(
            request_id, request.prompt, config, responder, request.stream, setup, begins_turn=False
        )
