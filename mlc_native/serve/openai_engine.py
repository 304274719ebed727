"""OpenAIEngine: from a request of OpenAI's interface to what the C++ engine takes.

The parts that MLCEngine and AsyncMLCEngine share because nothing in them waits for the engine. They
may compute for long (validation, templates, tokenization, grammars), so AsyncMLCEngine runs them on
threads of its own.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

from mlc_native import _core
from mlc_native._core import Cancellation
from mlc_native.errors import InvalidRequest, UnknownFieldWarning, invalid_request
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest, CompletionRequest
from mlc_native.protocol.validation import validated
from mlc_native.serve.adapters import check_adapter
from mlc_native.serve.answer_formats import shows_tools
from mlc_native.serve.answer_plan import plan_answer
from mlc_native.serve.chat_prompt import chat_prompt
from mlc_native.serve.continuous_usage import CountingResponder
from mlc_native.serve.embeddings import (
    ID_PREFIXES,
    PooledRequest,
    PooledResponder,
    outputs_of,
    pooled_requests,
    service_config,
)
from mlc_native.serve.engine_requests import EngineRequests
from mlc_native.serve.group_responder import GroupResponder
from mlc_native.serve.images.chat import ChatImages
from mlc_native.serve.images.encoder import NO_TOKEN
from mlc_native.serve.model_setup import ModelSetup
from mlc_native.serve.openai_interface import (
    Arguments,
    RequestKind,
    body_fields,
    request_fields,
)
from mlc_native.serve.request_caps import check_fields, check_generation_config
from mlc_native.serve.request_processing import (
    Prompt,
    check_request_id,
    check_unsupported,
    generation_config,
    ids_of_prompts,
    random_request_id,
)
from mlc_native.serve.responses import ChatResponder, CompletionResponder
from mlc_native.serve.scoring import Comparison, Pairs
from mlc_native.serve.streams import Responder

MAX_REPORTED_FIELDS = 1000


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
    constrained_by: str = field(default="response_format", kw_only=True)  # a field of the request
    prompt_field: str = field(
        default="prompt", kw_only=True
    )  # of the request, which has the prompt
    add_special_tokens: bool  # around a prompt that is text
    images: ChatImages | None = field(default=None, kw_only=True)  # that are not encoded yet

    def encode_images(self) -> None:
        """Puts the images of a chat into its prompt. May take seconds.

        Raises:
            InvalidRequest: an image is wrong.
        """
        if self.images is None:
            return
        tokenizer = self.setup.tokenizer
        assert isinstance(self.prompt, str)
        assert tokenizer is not None  # which the chat template belongs to
        self.prompt = self.images.pieces(
            self.prompt, tokenizer, add_special_tokens=self.add_special_tokens
        )
        self.images = None

    def token_ids_of(self, created: _core.Request) -> list[int]:
        """The tokens of the request that it became. The image token stands for each row."""
        encoder = self.setup.image_encoder
        row_id = NO_TOKEN if encoder is None else encoder.row_token_id
        return [
            token_id
            for piece in created.inputs
            for token_id in (piece if isinstance(piece, list) else [row_id] * len(piece))
        ]

    def create_arguments(self) -> tuple[Prompt, GenerationConfig, str, ModelSetup, bool, bool]:
        """The arguments of ``EngineRequests._create_request``."""
        return (
            *(self.prompt, self.config, self.request_id, self.setup),
            *(self.begins_turn, self.add_special_tokens),
        )


@dataclass
class PlannedCall:
    """A call of ``create`` with all that is known before its prompts are tokenized."""

    request: ChatCompletionRequest | CompletionRequest
    calls: list[OpenAICall]  # one per prompt
    cancellation: Cancellation

    @property
    def is_constrained(self) -> bool:
        """Whether a grammar is compiled for it."""
        return any(call.config.is_constrained for call in self.calls)

    @property
    def has_images(self) -> bool:
        """Whether it has images that are not encoded yet."""
        return any(call.images is not None for call in self.calls)

    def encode_images(self) -> None:
        """Encodes them. Raises InvalidRequest if one is wrong."""
        for call in self.calls:
            call.encode_images()


@dataclass
class PreparedCall:
    """A call of ``create`` whose requests can be handed to the engine: one per prompt."""

    requests: list[_core.Request]
    responder: Responder
    stream: bool
    setup: ModelSetup


class OpenAIEngine(EngineRequests):
    """The parts of both engines that do not wait."""

    def __init__(self, *arguments: Any) -> None:
        self._reported_fields: set[str] = set()
        super().__init__(*arguments)

    def _prepare(
        self, kind: RequestKind, arguments: Arguments, is_body: bool, cancellation: Cancellation
    ) -> PreparedCall:
        """A call of ``create`` or, with ``is_body``, of ``create_from``."""
        return self._finish_preparing(self._plan(kind, arguments, is_body, cancellation))

    def _prepare_request(
        self,
        request: ChatCompletionRequest | CompletionRequest,
        request_id: str | None,
        cancellation: Cancellation,
    ) -> PreparedCall:
        return self._finish_preparing(self._plan_request(request, request_id, cancellation))

    def _plan(
        self, kind: RequestKind, arguments: Arguments, is_body: bool, cancellation: Cancellation
    ) -> PlannedCall:
        """The first half of ``_prepare``, which waits for no grammar."""
        self._check_running()
        if is_body:
            fields, unknown = body_fields(kind, arguments)
            self._report_unknown_fields(unknown)
            check_fields(fields, self._model.current.engine_config)
            return self._plan_request(validated(kind, fields), None, cancellation)
        fields = request_fields(kind, arguments)
        check_fields(fields, self._model.current.engine_config)
        request_id = arguments.get("request_id")
        return self._plan_request(validated(kind, fields), request_id, cancellation)

    def _plan_request(
        self,
        request: ChatCompletionRequest | CompletionRequest,
        request_id: str | None,
        cancellation: Cancellation,
    ) -> PlannedCall:
        if request_id is not None:
            check_request_id(request_id, self._model.current.engine_config)
        if isinstance(request, ChatCompletionRequest):
            calls = [self._chat_call(request, request_id)]
        else:
            calls = self._completion_calls(request, request_id)
        return PlannedCall(request, calls, cancellation)

    def _finish_preparing(self, planned: PlannedCall) -> PreparedCall:
        request, calls = planned.request, planned.calls
        requests = [self._request_of(call, planned.cancellation) for call in calls]
        responder = calls[0].responder
        if len(calls) > 1:
            responder = GroupResponder({call.request_id: call.responder for call in calls})
        options = request.stream_options
        if options and options.include_usage and options.continuous_usage_stats:
            prompt_tokens = sum(len(piece) for each in requests for piece in each.inputs)
            responder = CountingResponder(responder, prompt_tokens)
        if request.return_token_ids:
            for call, created in zip(calls, requests, strict=True):
                call.responder.prompt_token_ids = call.token_ids_of(created)
        return PreparedCall(requests, responder, request.stream, calls[0].setup)

    def _prepare_pooled(
        self, kind: type[PooledRequest], arguments: Arguments, is_body: bool
    ) -> PreparedCall:
        """A call of ``embeddings.create`` or of ``classify``; with ``is_body``, of a JSON body."""
        self._check_running()
        setup = self._model.current
        if is_body:
            fields, unknown = body_fields(kind, arguments)
            self._report_unknown_fields(unknown)
        else:
            fields = request_fields(kind, arguments)
        request_id = None if is_body else arguments.get("request_id")
        if request_id is not None:
            check_request_id(request_id, setup.engine_config)
        request = validated(kind, fields)
        config = service_config(request)
        _choose_adapter(request, config, setup)
        with self._asking(setup):
            requests = pooled_requests(
                *(self._core, setup, request, config),
                request_id or random_request_id(ID_PREFIXES[kind]),
            )
        ids = [each.id for each in requests]
        return PreparedCall(
            requests, PooledResponder(outputs_of(request, setup, ids)), False, setup
        )

    def _compare(self, pairs: Pairs, arguments: Arguments) -> Comparison:
        """What is computed for the scores of pairs."""
        self._check_running()
        return Comparison(self._model.current, pairs, arguments)

    def _request_of(self, call: OpenAICall, cancellation: Cancellation) -> _core.Request:
        """The request of the engine. An error names the field of the call that is wrong."""
        call.encode_images()
        try:
            return self._create_request(*call.create_arguments(), cancellation=cancellation)
        except InvalidRequest as error:
            names = {"prompt": call.prompt_field, "stop_strs": "stop"}
            names["response_format"] = call.constrained_by
            engines_name = error.field or ""
            name = names.get(engines_name, engines_name)
            if name == engines_name:
                raise
            text = str(error)
            if engines_name == "response_format":
                # Pointers into the structural tag that was made become pointers into a schema.
                text = re.sub(r'"/format/[^"]*?/json_schema', '"', text)
                text = text.replace('"response_format": ', f"a schema of {name}: ", 1)
            else:
                text = text.replace(f'"{engines_name}"', f'"{name}"')
            raise invalid_request(name, text, error.code) from None

    def _report_unknown_fields(self, names: list[str]) -> None:
        """Warns of each name once."""
        for name in names:
            if name in self._reported_fields or len(self._reported_fields) > MAX_REPORTED_FIELDS:
                continue
            self._reported_fields.add(name)
            message = f'the field "{name}" of a request is not known and was ignored'
            warnings.warn(message, UnknownFieldWarning, stacklevel=6)

    def _chat_call(self, request: ChatCompletionRequest, request_id: str | None) -> OpenAICall:
        self._check_running()
        setup = self._model.current
        check_fields(dict(request), setup.engine_config)
        request_id = request_id or random_request_id("chatcmpl")
        images = ChatImages(setup.image_encoder, setup.max_input_sequence_length)
        prompt = chat_prompt(request, setup.conv_template, setup.engine_config, images)
        limit = setup.max_input_sequence_length
        formats = setup.answer_formats
        if request.chat_template is not None:
            formats = replace(formats, shows_tools=shows_tools(request.chat_template))
        plan = plan_answer(request, prompt, formats, limit)
        config = generation_config(request, setup.chat_stop_token_ids, setup.chat_stop_strs)
        config.response_format = plan.response_format
        _choose_adapter(request, config, setup)
        return OpenAICall(
            request_id,
            prompt,
            config,
            ChatResponder(
                request,
                request_id,
                setup.name,
                plan,
                setup.tokenizer,
            ),
            request.stream,
            setup,
            begins_turn=not request.continue_final_message,
            add_special_tokens=images.add_special_tokens(request),
            constrained_by=plan.constrained_by,
            prompt_field="messages",
            images=images if images else None,
        )

    def _prompt_call(
        self,
        prompt: Prompt,
        config: GenerationConfig,
        request_id: str,
        *,
        add_special_tokens: bool | None,
    ) -> OpenAICall:
        """A request for the answer to a prompt, which is no part of a response."""
        return OpenAICall(
            *(request_id, prompt, config, None, False, self._model.current),
            begins_turn=False,
            add_special_tokens=add_special_tokens is not False,
        )

    def _check_generation_config(self, config: GenerationConfig) -> None:
        """Raises InvalidRequest for settings that are wrong for every prompt."""
        self._check_running()
        check_generation_config(config, self._model.current.engine_config)
        defaults = self._core.get_default_generation_config()
        limits = self._core.get_request_limits
        checked = config.apply_to(defaults, self._model.current.tokenizer, limits)
        checked.validate(limits().vocab_size)
        check_adapter(config.adapter, self.adapter_names)

    def _completion_calls(
        self, request: CompletionRequest, request_id: str | None
    ) -> list[OpenAICall]:
        """One call per prompt. Choice ``i * n + j`` is answer j to prompt i."""
        check_unsupported(request)
        request_id = request_id or random_request_id("cmpl")
        prompts = request.prompts()
        ids = ids_of_prompts(request_id, len(prompts))
        return [
            self._completion_call(request, prompt, id_, request_id, i * request.n)
            for i, (prompt, id_) in enumerate(zip(prompts, ids, strict=True))
        ]

    def _completion_call(
        self,
        request: CompletionRequest,
        prompt: str | list[int],
        request_id: str,
        response_id: str,
        first_index: int,
    ) -> OpenAICall:
        setup = self._model.current
        echo = _echo_of(prompt, setup) if request.echo else ""
        responder = CompletionResponder(
            request, response_id, setup.name, echo=echo, first_index=first_index
        )
        config = generation_config(request)
        _choose_adapter(request, config, setup)
        return OpenAICall(
            *(request_id, prompt, config, responder, request.stream, setup),
            begins_turn=False,
            add_special_tokens=request.add_special_tokens is not False,
        )


def _choose_adapter(
    request: ChatCompletionRequest | CompletionRequest | PooledRequest,
    config: GenerationConfig,
    setup: ModelSetup,
) -> None:
    """Chooses the adapter that ``model`` names. ``adapter``, and the model's own name, go first."""
    name = request.model
    if config.adapter is None and name != setup.name and name in setup.adapters.current:
        config.adapter = name


def _echo_of(prompt: str | list[int], setup: ModelSetup) -> str:
    """The text of a prompt."""
    if isinstance(prompt, str):
        return prompt
    try:
        return setup.tokenizer.decode(prompt) if setup.tokenizer is not None else ""
    except InvalidRequest:  # the prompt is refused for the same ids, by the name of its field
        return ""
