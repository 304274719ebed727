"""``SyncMLCEngine.embeddings``: requests that are stepped until their embeddings are there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mlc_native.errors import EngineRequestError, QueueFull
from mlc_native.protocol.embeddings import EmbeddingRequest, EmbeddingResponse
from mlc_native.protocol.validation import validated
from mlc_native.serve import data
from mlc_native.serve.embeddings import EmbeddingOutputs, embedding_requests, service_config
from mlc_native.serve.openai_interface import Arguments, body_fields, request_fields
from mlc_native.serve.request import Request
from mlc_native.serve.request_processing import check_request_id, random_request_id

if TYPE_CHECKING:
    from mlc_native.serve.sync_engine import SyncMLCEngine


class _Answer:
    """What has come of one request; see SyncMLCEngine._collecting."""

    def __init__(self, outputs: EmbeddingOutputs) -> None:
        self._outputs = outputs
        self.error_message = ""
        self.finished = False

    def add(self, output: data.RequestStreamOutput) -> None:
        request_id, (first, *_) = output.unpack()
        self.finished = output.is_final
        self.error_message = self.error_message or first.error_message
        self._outputs.add(
            *(request_id, first.request_final_usage_json_str),
            *(output.embedding_bytes, first.finish_reason),
        )


def _add(engine: SyncMLCEngine, request: Request) -> None:
    """Adds a request, as soon as the queue has room for it."""
    while True:
        try:
            return engine.add_request(request)
        except QueueFull:
            if engine.empty():
                raise
            engine.step()


def create_embeddings(
    engine: SyncMLCEngine, arguments: Arguments, is_body: bool
) -> EmbeddingResponse:
    """``embeddings.create`` or, with ``is_body``, ``create_from``. Steps the engine."""
    core, setup = engine._engine(), engine._setup
    assert setup is not None
    setup = replace(
        setup,
        max_input_sequence_length=engine.max_input_sequence_length,
        input_length_reason=engine._input_length_reason,
    )
    request_id = None if is_body else arguments.get("request_id")
    if request_id is not None:
        check_request_id(request_id, setup.engine_config)
    fields: dict[str, Any] = (
        body_fields(EmbeddingRequest, arguments)[0]
        if is_body
        else request_fields(EmbeddingRequest, arguments)
    )
    request = validated(EmbeddingRequest, fields)
    requests = embedding_requests(
        *(core, setup, request, service_config(request)), request_id or random_request_id("embd")
    )
    outputs = EmbeddingOutputs(request, setup.name, [each.id for each in requests])
    answers = {each.id: _Answer(outputs) for each in requests}
    with engine._collecting(answers):
        for each in requests:
            _add(engine, each)
        while any(not answer.finished for answer in answers.values()):
            engine.step()
    for each_id, answer in answers.items():
        if answer.error_message:
            raise EngineRequestError(each_id, answer.error_message)
    return outputs.response()
