"""``/v1/embeddings``, ``/v1/classify``, ``/v1/score`` and ``/v1/rerank``."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from starlette.types import Receive, Scope, Send

from mlc_native.errors import EngineRequestError, invalid_request, shown
from mlc_native.protocol.embeddings import EmbeddingRequest
from mlc_native.protocol.scoring import ClassificationRequest, RerankResponse, ScoreResponse
from mlc_native.protocol.usage import CompletionUsage
from mlc_native.serve import scoring
from mlc_native.serve.embeddings import ID_PREFIXES, PooledRequest, PooledResponse
from mlc_native.server.body import read_json
from mlc_native.server.config import ServerConfig
from mlc_native.server.fields import Fields, check_template, create_fields, list_field
from mlc_native.server.gate import request_id_of, send_json
from mlc_native.server.generation import until_gone
from mlc_native.server.models import Found
from mlc_native.server.request_log import log_request
from mlc_native.server.state import ServerState
from mlc_native.server.wire import json_bytes, wire_finish

_KINDS: dict[str, type[PooledRequest]] = {
    "embedding": EmbeddingRequest,
    "classification": ClassificationRequest,
}
# Of a chat that is classified: the arguments of ``render_chat``.
_OF_CHATS = (
    *("messages", "tools", "documents", "chat_template", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message"),
)


class Pooled:
    """POST /v1/embeddings or /v1/classify, as an ASGI app.

    Args:
        kind: "embedding" or "classification".
    """

    def __init__(self, state: ServerState, kind: str) -> None:
        self._state = state
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_json(scope, receive, self._state.config, self._state.pool)
        found = self._state.models.find_for_embeddings(body.get("model"))
        chat = {}
        if self._kind == "classification" and body.get("messages") is not None:
            chat = _taken_chat(body, self._state.config)
        fields, ignored = create_fields(self._kind, body, self._state.config)
        headers = self._state.ignored_fields.header(ignored)
        if found.adapter is not None:
            fields.setdefault("adapter", found.adapter)

        async def answer() -> None:
            if chat:
                rendered = await found.model.loaded().render_chat(**chat)
                fields["input"] = rendered.token_ids
            call = _Call(self._state, found, _KINDS[self._kind], fields, request_id_of(scope))
            response = await call.run()
            response.model = found.name

            def write() -> bytes:
                return json_bytes(response.model_dump())

            # Thousands of numbers take milliseconds.
            await send_json(send, 200, await self._state.on_thread(write), headers)

        with self._state.running.admit(found.model.name):
            await until_gone(receive, answer())


def _taken_chat(body: Fields, config: ServerConfig) -> Fields:
    """The fields of a chat that is classified, which are taken out of the body.

    Raises InvalidRequest for a template that the server does not trust, or a further input.
    """
    if body.get("input") is not None:
        raise invalid_request("messages", 'a request has either "input" or "messages"')
    chat = {name: body.pop(name) for name in _OF_CHATS if body.get(name) is not None}
    check_template(chat, config)
    return {"add_generation_prompt": False, **chat}


class Compared(ABC):
    """A request that compares texts.

    Attributes:
        fields: the names of those that are its own.
        pairs: what is compared.
    """

    fields: ClassVar[tuple[str, ...]]
    pairs: scoring.Pairs

    @abstractmethod
    def __init__(self, fields: Fields, config: ServerConfig) -> None:
        """Reads it from the fields of a body that are not null. Raises InvalidRequest."""

    @abstractmethod
    def response(
        self, plan: scoring.Comparison, responses: Sequence[PooledResponse]
    ) -> ScoreResponse | RerankResponse:
        """The response, of those to the calls of the plan."""


class Comparison:
    """An endpoint that compares texts, as an ASGI app: by a reranker, or by cosines.

    ``kind`` reads its JSON and says what is compared and how the answer looks.
    """

    def __init__(self, state: ServerState, kind: type[Compared]) -> None:
        self._state = state
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state
        body = await read_json(scope, receive, state.config, state.pool)
        found = state.models.find_for_embeddings(body.get("model"))
        own = {name: value for name, value in body.items() if value is not None}
        compared = self._kind(own, state.config)
        others = {name: value for name, value in own.items() if name not in compared.fields}
        arguments, ignored = create_fields("comparison", others, state.config)
        headers = state.ignored_fields.header(ignored)
        if found.adapter is not None:
            arguments.setdefault("adapter", found.adapter)
        engine = found.model.loaded()
        request_id = request_id_of(scope)

        async def answer() -> None:
            plan = await engine._work(engine._compare, compared.pairs, arguments)
            responses = []
            for call in plan.calls:
                with call.errors():
                    made = _Call(state, found, call.kind, call.fields, request_id)
                    responses.append(await made.run())

            def write() -> bytes:
                response = compared.response(plan, responses)
                response.model = found.name
                return json_bytes(response.model_dump(exclude_none=True))

            await send_json(send, 200, await state.on_thread(write), headers)

        with state.running.admit(found.model.name):
            await until_gone(receive, answer())


class Score(Compared):
    """``/v1/score``, as vLLM has it: one text with several, or as many with as many."""

    fields = ("text_1", "queries", "data_1", "text_2", "documents", "data_2")

    def __init__(self, fields: Fields, config: ServerConfig) -> None:
        first, left = _one_of(fields, self.fields[:3])
        second, right = _one_of(fields, self.fields[3:])
        self.pairs = scoring.Pairs((first, second), left, right)
        _check_numbers(self.pairs, config)

    def response(
        self, plan: scoring.Comparison, responses: Sequence[PooledResponse]
    ) -> ScoreResponse:
        """See Compared."""
        return plan.score_response(responses)


class Rerank(Compared):
    """``/v1/rerank``, as Jina, Cohere and vLLM have it: documents in the order of their scores."""

    fields = ("query", "documents", "top_n", "return_documents")

    def __init__(self, fields: Fields, config: ServerConfig) -> None:
        documents = [
            each["text"] if isinstance(each, dict) and "text" in each else each
            for each in list_field(fields, "documents")
        ]
        self._ranking = scoring.Ranking(
            *(_one_text(fields.get("query")), documents, fields.get("top_n")),
            return_documents=fields.get("return_documents", True),
        )
        self.pairs = self._ranking.pairs
        _check_numbers(self.pairs, config)

    def response(
        self, plan: scoring.Comparison, responses: Sequence[PooledResponse]
    ) -> RerankResponse:
        """See Compared."""
        return self._ranking.response(plan, responses)


class _Call:
    """A call of the engine for a request to the server."""

    def __init__(
        self,
        state: ServerState,
        found: Found,
        kind: type[PooledRequest],
        fields: Mapping[str, Any],
        request_id: str,
    ) -> None:
        self._state = state
        self._found = found
        self._kind = kind
        self._id = f"{ID_PREFIXES[kind]}-{uuid.uuid4().hex}"
        # Without an input, the engine refuses it.
        self._fields = {"input": None, **fields, "request_id": self._id}
        log_request(state.config, request_id, found.name, self._id, dict(fields))

    async def run(self) -> PooledResponse:
        model = self._found.model
        engine = model.loaded()
        try:
            response: PooledResponse = await engine._create_pooled(self._kind, self._fields, False)
        except EngineRequestError as error:
            if error.finish_reason != "error":
                wire_finish({"finish_reason": error.finish_reason}, has_output=False)
            raise
        num_tokens = response.usage.total_tokens
        usage = CompletionUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)
        self._state.metrics[model.name].observe(self._fields, usage)
        return response


def _one_of(fields: Fields, names: tuple[str, ...]) -> tuple[str, Any]:
    name, *others = [each for each in names if each in fields] or [names[0]]
    if others:
        raise invalid_request(
            others[0], f'"{others[0]}" is another name of "{name}"; a request has one of them'
        )
    return name, fields.get(name)


def _one_text(query: Any) -> Any:
    """A query may be a list of one text."""
    return query[0] if isinstance(query, list) and len(query) == 1 else query


def _check_numbers(pairs: scoring.Pairs, config: ServerConfig) -> None:
    for name, texts in zip(pairs.names, pairs.sides, strict=True):
        if len(texts) > config.max_prompts:
            raise invalid_request(
                name, f'"{name}" may have {config.max_prompts} texts, got {shown(len(texts))}'
            )
