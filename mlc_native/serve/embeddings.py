"""``engine.embeddings`` and ``engine.classify``: from inputs to requests of the engine, and from
its outputs to the response. For threads and for event loops.
"""

from __future__ import annotations

import base64
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack

from mlc_native import _core
from mlc_native._core import Cancellation
from mlc_native.errors import (
    EngineRequestError,
    InvalidRequest,
    QueueFull,
    invalid_request,
    shown,
)
from mlc_native.protocol.embeddings import (
    SERVICE_OPTIONS,
    Embedding,
    EmbeddingArguments,
    EmbeddingRequest,
    EmbeddingResponse,
    EmbeddingUsage,
)
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.scoring import (
    Classification,
    ClassificationRequest,
    ClassificationResponse,
)
from mlc_native.serve.class_labels import ClassLabels
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.embedding_prompts import EmbeddingPrompts
from mlc_native.serve.model_setup import ModelSetup
from mlc_native.serve.openai_interface import Arguments, Prompts, takes_fields_of
from mlc_native.serve.request_processing import (
    Prompt,
    bounded_token_ids,
    encoded_texts,
    ids_of_prompts,
    random_request_id,
)
from mlc_native.serve.responses import completion_usage
from mlc_native.serve.streams import AddedText, Outputs

StreamT = TypeVar("StreamT")
# What becomes of the hidden states of inputs that are not answered.
PooledRequest = EmbeddingRequest | ClassificationRequest
PooledResponse = EmbeddingResponse | ClassificationResponse
# Of the ids of requests that have none.
ID_PREFIXES: dict[type[PooledRequest], str] = {
    EmbeddingRequest: "embd",
    ClassificationRequest: "classify",
}


def service_config(request: PooledRequest) -> GenerationConfig:
    """What of a request concerns the service."""
    return GenerationConfig(**{name: getattr(request, name) for name in SERVICE_OPTIONS})


def prompts_of(request: PooledRequest, prompts: EmbeddingPrompts) -> list[Prompt]:
    """The inputs; texts that are embedded with the prompt of the request in front of them.

    Raises:
        InvalidRequest: there is no such prompt, or inputs are token ids and it is named.
    """
    # Texts of a caller's own class become texts, whose methods do not raise.
    inputs = [str(each) if isinstance(each, str) else each for each in request.inputs()]
    if isinstance(request, ClassificationRequest):
        return list(inputs)
    if not isinstance(inputs[0], str):
        if request.prompt_name:
            raise invalid_request(
                "prompt_name", "a prompt is text; it cannot be in front of token ids"
            )
        return list(inputs)
    prefix = prompts.text(request.prompt_name)
    return [f"{prefix}{text}" for text in inputs]


class PooledOutputs(ABC):
    """The outputs of all requests of a call, in any order, and the response that they make."""

    def __init__(self, model: str, request_ids: Sequence[str]) -> None:
        self._model = model
        self._ids = list(request_ids)
        self._values: dict[str, bytes] = {}
        self._num_tokens = 0

    def add(
        self,
        request_id: str,
        usage_json: str | None,
        values: bytes | None,
        finish_reason: str | None,
    ) -> None:
        """Adds an output of a request.

        Raises:
            EngineRequestError: the request ended early, because of a time limit or an abort.
        """
        if usage_json is not None:
            self._num_tokens += completion_usage(usage_json).prompt_tokens
        elif values is not None:
            self._values[request_id] = values
        elif finish_reason not in (None, "error"):
            raise ended_early(request_id, str(finish_reason))

    @property
    def values(self) -> list[bytes]:
        """The float32 numbers of each input. Requires: all requests have ended well."""
        return [self._values[id_] for id_ in self._ids]

    @property
    def usage(self) -> EmbeddingUsage:
        """The tokens of all inputs."""
        return EmbeddingUsage(prompt_tokens=self._num_tokens, total_tokens=self._num_tokens)

    @abstractmethod
    def response(self) -> PooledResponse:
        """The response. Requires: all requests have ended well."""


class EmbeddingOutputs(PooledOutputs):
    """Outputs that are embeddings."""

    def __init__(
        self, request: EmbeddingRequest, model_name: str, request_ids: Sequence[str]
    ) -> None:
        super().__init__(request.model or model_name, request_ids)
        self._is_base64 = request.encoding_format == "base64"

    def response(self) -> EmbeddingResponse:
        """See PooledOutputs."""
        data = [
            Embedding(index=i, embedding=self._encoded(values))
            for i, values in enumerate(self.values)
        ]
        return EmbeddingResponse(data=data, model=self._model, usage=self.usage)

    def _encoded(self, numbers: bytes) -> list[float] | str:
        if self._is_base64:
            return base64.b64encode(numbers).decode()
        return array("f", numbers).tolist()


class ClassificationOutputs(PooledOutputs):
    """Outputs that are the logits of classes."""

    def __init__(
        self,
        request: ClassificationRequest,
        model_name: str,
        request_ids: Sequence[str],
        labels: ClassLabels,
    ) -> None:
        super().__init__(request.model or model_name, request_ids)
        self._use_activation = request.use_activation
        self._labels = labels

    def response(self) -> ClassificationResponse:
        """See PooledOutputs. Raises InvalidRequest for an activation that is not supported."""
        data = [self._classification(i, values) for i, values in enumerate(self.values)]
        return ClassificationResponse(
            id=random_request_id(ID_PREFIXES[ClassificationRequest]),
            created=int(time.time()),
            model=self._model,
            data=data,
            usage=self.usage,
        )

    def _classification(self, index: int, values: bytes) -> Classification:
        logits = array("f", values).tolist()
        likeliest = max(range(len(logits)), key=logits.__getitem__)
        return Classification(
            index=index,
            label=self._labels.label(likeliest),
            probs=self._labels.activated(logits) if self._use_activation else logits,
            num_classes=len(logits),
        )


def outputs_of(
    request: PooledRequest, setup: ModelSetup, request_ids: Sequence[str]
) -> PooledOutputs:
    """What takes the outputs of a call."""
    if isinstance(request, ClassificationRequest):
        return ClassificationOutputs(request, setup.name, request_ids, setup.class_labels)
    return EmbeddingOutputs(request, setup.name, request_ids)


class PooledResponder:
    """A Responder: makes the response from the outputs of all requests of a call."""

    def __init__(self, outputs: PooledOutputs) -> None:
        self._outputs = outputs

    def opening(self) -> list[Any]:
        """See Responder; nothing is streamed."""
        return []

    def pieces(self, _outputs: Outputs) -> list[Any]:
        """See Responder; nothing is streamed."""
        return []

    def chunk(self, _added: AddedText) -> Any:
        """See Responder; nothing is streamed."""
        raise NotImplementedError

    def response(self, outputs: list[Outputs]) -> PooledResponse:
        """See Responder. Raises EngineRequestError for a request that ended early."""
        for output, *_ in outputs:
            self._outputs.add(
                *(output.request_id, output.request_final_usage_json_str),
                *(output.embedding, output.finish_reason),
            )
        return self._outputs.response()


class Portions:
    """The requests of a call, in portions that a queue with a limit has room for. One thread."""

    def __init__(self, requests: list[_core.Request], config: EngineConfig) -> None:
        limit = config.max_queue_length
        self.call_id = requests[0].id
        self._left = requests
        # Half of the queue is for others.
        self._size = len(requests) if limit is None or limit < 0 else max(limit // 2, 1)

    def __bool__(self) -> bool:
        """Whether requests are left."""
        return bool(self._left)

    def open(
        self, open_stream: Callable[[list[_core.Request]], StreamT], cancellation: Cancellation
    ) -> StreamT:
        """The stream of the next portion, which is smaller where others wait.

        Raises:
            EngineRequestError: the call was aborted.
            QueueFull: the queue has no room for one request.
        """
        while True:
            if cancellation.cancelled:
                raise ended_early(self.call_id, "abort")
            try:
                stream = open_stream(self._left[: self._size])
            except QueueFull:
                if self._size == 1:
                    raise
                self._size //= 2
                continue
            self._left = self._left[self._size :]
            return stream


def ended_early(request_id: str, finish_reason: str) -> EngineRequestError:
    """The error for a request that has no embedding because of a time limit or an abort."""
    text = f'the request ended with "{finish_reason}" before its embedding was computed'
    return EngineRequestError(request_id, text, finish_reason)


def pooled_requests(
    core: Any,
    setup: ModelSetup,
    request: PooledRequest,
    config: GenerationConfig,
    request_id: str,
) -> list[_core.Request]:
    """The requests of a C++ engine, one for each input.

    Args:
        config: what concerns the service (``service_config``).
        request_id: of the first one.

    Raises:
        InvalidRequest: an input or a setting is wrong.
    """
    prompts = prompts_of(request, setup.embedding_prompts)
    length = setup.max_input_sequence_length, setup.input_length_reason
    add = request.add_special_tokens
    try:
        encoded = encoded_texts(
            prompts, [config] * len(prompts), setup.tokenizer, *length, add_special_tokens=add
        )
        token_ids = [
            bounded_token_ids(each, setup.tokenizer, config, *length, add_special_tokens=add)
            for each in encoded
        ]
        service = config.apply_to(_core.GenerationConfig())
        ids = ids_of_prompts(request_id, len(prompts))
        return [
            _pooled_request(core, id_, tokens, request, service, second_text)
            for id_, tokens, second_text in zip(
                ids, token_ids, _second_texts(request, prompts), strict=True
            )
        ]
    except InvalidRequest as error:
        if error.field != "prompt":
            raise
        text = str(error).replace('"prompt"', '"input"')
        raise invalid_request("input", text, error.code) from None


def _second_texts(request: PooledRequest, prompts: list[Prompt]) -> list[int]:
    """Where the second text of each input begins; 0: it has none."""
    given = request.second_texts if isinstance(request, ClassificationRequest) else None
    if given is None:
        return [0] * len(prompts)
    if len(given) != len(prompts) or isinstance(prompts[0], str):
        raise invalid_request(
            "second_texts",
            f'"second_texts" must have a number for each "input" of token ids, of which there are '
            f"{0 if isinstance(prompts[0], str) else len(prompts)}, got {shown(given)}",
        )
    return given


def _pooled_request(
    core: Any,
    request_id: str,
    token_ids: list[int],
    request: PooledRequest,
    service: _core.GenerationConfig,
    second_text: int,
) -> _core.Request:
    create = partial(core.create_embedding_request, request_id, token_ids)
    created: _core.Request
    if isinstance(request, ClassificationRequest):
        if not 0 <= second_text <= len(token_ids):
            raise invalid_request(
                "second_texts",
                f'"second_texts" must be in [0, {len(token_ids)}], the length of the input, '
                f"got {shown(second_text)}",
            )
        created = create(None, None, None, service, classify=True, second_text=second_text)
        return created
    try:
        created = create(request.pooling, request.dimensions, request.normalize, service)
    except TypeError:  # more than C++ has an integer for
        raise invalid_request(
            "dimensions", f'"dimensions" must be in [1, 2^63), got {shown(request.dimensions)}'
        ) from None
    return created


class Embeddings:
    """``engine.embeddings`` of an MLCEngine."""

    def __init__(self, create: Callable[[Arguments, bool], EmbeddingResponse]) -> None:
        self._create = create

    @takes_fields_of(EmbeddingRequest)
    def create(
        self, *, input: Prompts, **arguments: Unpack[EmbeddingArguments]
    ) -> EmbeddingResponse:
        """The embeddings of texts, by OpenAI's parameters.

        The texts are computed in batches, beside the other requests of the engine.

        Raises:
            InvalidRequest: a ValueError; the request is wrong, and ``field`` names what is.
            QueueFull: an InvalidRequest; too many requests wait already.
            EngineRequestError: the engine ended a request with an error, or too early.
            EngineTerminatedError: the engine is gone.
        """
        return self._create({"input": input, **arguments}, False)

    def create_from(self, body: Mapping[str, Any]) -> EmbeddingResponse:
        """``create`` with the fields of a JSON body as OpenAI's clients send it.

        A field that is not known is ignored; a warning names it, once per engine.
        """
        return self._create(body, True)


class AsyncEmbeddings:
    """``engine.embeddings`` of an AsyncMLCEngine."""

    def __init__(self, create: Callable[[Arguments, bool], Awaitable[EmbeddingResponse]]) -> None:
        self._create = create

    @takes_fields_of(EmbeddingRequest)
    async def create(
        self, *, input: Prompts, **arguments: Unpack[EmbeddingArguments]
    ) -> EmbeddingResponse:
        """The same as ``MLCEngine.embeddings.create``.

        Raises:
            InvalidRequest: see there.
        """
        return await self._create({"input": input, **arguments}, False)

    async def create_from(self, body: Mapping[str, Any]) -> EmbeddingResponse:
        """``create`` with the fields of a JSON body; see ``MLCEngine.embeddings.create_from``."""
        return await self._create(body, True)
