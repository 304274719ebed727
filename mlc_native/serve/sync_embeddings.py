"""Embeddings, classes and scores of a SyncMLCEngine, which is stepped until they are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from mlc_native.errors import EngineRequestError, QueueFull
from mlc_native.protocol.embeddings import EmbeddingRequest
from mlc_native.protocol.scoring import (
    Classification,
    ClassificationArguments,
    ClassificationRequest,
    ComparisonArguments,
    RerankResponse,
    Score,
)
from mlc_native.protocol.validation import validated
from mlc_native.serve import data
from mlc_native.serve.embeddings import (
    ID_PREFIXES,
    Embeddings,
    PooledOutputs,
    PooledRequest,
    PooledResponse,
    outputs_of,
    pooled_requests,
    service_config,
)
from mlc_native.serve.model_setup import ModelSetup
from mlc_native.serve.openai_interface import Arguments, Prompts, body_fields, request_fields
from mlc_native.serve.request import Request
from mlc_native.serve.request_processing import check_request_id, random_request_id
from mlc_native.serve.scoring import Comparison, Pairs, Ranking

if TYPE_CHECKING:
    from mlc_native.serve.sync_engine import SyncMLCEngine


class _Answer:
    """What has come of one request; see SyncMLCEngine._collecting."""

    def __init__(self, outputs: PooledOutputs) -> None:
        self._outputs = outputs
        self.error: EngineRequestError | None = None
        self.finished = False

    def add(self, output: data.RequestStreamOutput) -> None:
        """Raises nothing: outputs of other requests come with this one."""
        request_id, (first, *_) = output.unpack()
        self.finished = output.is_final
        try:
            if first.error_message:
                raise EngineRequestError(request_id, first.error_message)
            self._outputs.add(
                *(request_id, first.request_final_usage_json_str),
                *(output.embedding_bytes, first.finish_reason),
            )
        except EngineRequestError as error:
            self.error = self.error or error


def _raise_error(answers: Iterable[_Answer]) -> None:
    for answer in answers:
        if answer.error is not None:
            raise answer.error


def _add(engine: SyncMLCEngine, request: Request) -> None:
    """Adds a request, as soon as the queue has room for it."""
    while True:
        try:
            return engine.add_request(request)
        except QueueFull:
            if engine.empty():
                raise
            engine.step()


class SyncPooling:
    """The calls of a SyncMLCEngine that embed, classify and compare texts."""

    @property
    def embeddings(self) -> Embeddings:
        """``embeddings.create``, which steps the engine until the embeddings are there."""
        return Embeddings(partial(_create_pooled, self, EmbeddingRequest))

    def classify(
        self, inputs: Prompts, **arguments: Unpack[ClassificationArguments]
    ) -> list[Classification]:
        """The same as ``MLCEngine.classify``."""
        fields = {"input": inputs, **arguments}
        data: list[Classification] = _create_pooled(self, ClassificationRequest, fields, False).data
        return data

    def score(
        self,
        text_1: str | Sequence[str],
        text_2: str | Sequence[str],
        **arguments: Unpack[ComparisonArguments],
    ) -> list[Score]:
        """The same as ``MLCEngine.score``."""
        pairs = Pairs(("text_1", "text_2"), text_1, text_2)
        plan = Comparison(_setup_of(self), pairs, arguments)
        return plan.score_response(_compute(self, plan)).data

    def rerank(
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
        plan = Comparison(_setup_of(self), ranking.pairs, arguments)
        return ranking.response(plan, _compute(self, plan))


def _setup_of(engine: Any) -> ModelSetup:
    engine._engine()  # which raises if it has ended
    return replace(
        engine._setup,
        max_input_sequence_length=engine.max_input_sequence_length,
        input_length_reason=engine._input_length_reason,
    )


def _compute(engine: Any, plan: Comparison) -> list[PooledResponse]:
    responses: list[PooledResponse] = []
    for call in plan.calls:
        with call.errors():
            responses.append(_create_pooled(engine, call.kind, call.fields, False))
    return responses


def _create_pooled(
    engine: Any, kind: type[PooledRequest], arguments: Arguments, is_body: bool
) -> Any:
    """A call; with ``is_body``, of a JSON body. Steps the engine."""
    setup = _setup_of(engine)
    request_id = None if is_body else arguments.get("request_id")
    if request_id is not None:
        check_request_id(request_id, setup.engine_config)
    fields: dict[str, Any] = (
        body_fields(kind, arguments)[0] if is_body else request_fields(kind, arguments)
    )
    request = validated(kind, fields)
    requests = pooled_requests(
        *(engine._engine(), setup, request, service_config(request)),
        request_id or random_request_id(ID_PREFIXES[kind]),
    )
    outputs = outputs_of(request, setup, [each.id for each in requests])
    answers: dict[str, _Answer] = {}
    with engine._collecting(answers):
        for each in requests:
            _add(engine, each)
            # Until it is added, its id may be another request's. No step is in between.
            answers[each.id] = _Answer(outputs)
        while any(not answer.finished for answer in answers.values()):
            engine.step()
            _raise_error(answers.values())
    _raise_error(answers.values())
    return outputs.response()
