"""``/v1/embeddings``, and what follows from embeddings: ``/v1/score`` and ``/v1/rerank``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from math import hypot
from operator import mul
from typing import Any

from starlette.types import Receive, Scope, Send

from mlc_native.errors import EngineRequestError, InvalidRequest, invalid_request, shown
from mlc_native.protocol.embeddings import EmbeddingResponse
from mlc_native.protocol.usage import CompletionUsage
from mlc_native.serve.async_engine import AsyncMLCEngine
from mlc_native.server.body import read_json
from mlc_native.server.config import ServerConfig
from mlc_native.server.fields import Fields, create_fields, integer, list_field
from mlc_native.server.gate import request_id_of, send_json
from mlc_native.server.generation import until_gone
from mlc_native.server.models import Found
from mlc_native.server.request_log import log_request
from mlc_native.server.state import ServerState
from mlc_native.server.wire import json_bytes, wire_finish

Answer = Callable[[EmbeddingResponse], dict[str, Any]]


class Embeddings:
    """POST /v1/embeddings, as an ASGI app."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_json(scope, receive, self._state.config, self._state.pool)
        found = self._state.models.find_for_embeddings(body.get("model"))
        fields, ignored = create_fields("embedding", body, self._state.config)
        headers = self._state.ignored_fields.header(ignored)
        call = _Call(self._state, found, fields, request_id_of(scope))

        async def answer() -> None:
            response = await call.run()
            response.model = found.name

            def write() -> bytes:
                return json_bytes(response.model_dump())

            # Thousands of numbers take milliseconds.
            await send_json(send, 200, await self._state.on_thread(write), headers)

        with self._state.running.admit(found.model.name):
            await until_gone(receive, answer())


class Comparison:
    """An endpoint that compares texts by the cosines of their embeddings, as an ASGI app.

    ``read`` takes its JSON and says what is compared and how the answer looks.
    """

    def __init__(
        self, state: ServerState, read: Callable[[Fields, ServerConfig], Compared]
    ) -> None:
        self._state = state
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state
        body = await read_json(scope, receive, state.config, state.pool)
        found = state.models.find_for_embeddings(body.get("model"))
        fields = {name: value for name, value in body.items() if value is not None}
        compared = self._read(fields, state.config)
        engine = found.model.loaded()
        sides = [
            _Call(state, found, compared.embedding_fields(engine, side), request_id_of(scope))
            for side in (0, 1)
        ]

        async def answer() -> None:
            left = await _of(sides[0], compared.names[0])
            right = await _of(sides[1], compared.names[1])

            def write() -> bytes:
                scores = _cosines(left, right)
                num_tokens = left.usage.total_tokens + right.usage.total_tokens
                usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
                return json_bytes(compared.answer(found.name, scores, usage))

            await send_json(send, 200, await state.on_thread(write))

        with state.running.admit(found.model.name):
            await until_gone(receive, answer())


async def _of(call: _Call, name: str) -> EmbeddingResponse:
    """The embeddings of a side; ``name`` is the client's of its texts."""
    try:
        return await call.run()
    except InvalidRequest as error:
        if error.field == "input":
            raise invalid_request(name, str(error), error.code) from None
        raise


class Compared:
    """Texts of two sides, and the answer with what their comparison gives.

    Attributes:
        names: the client's names of both sides.
    """

    # Names of prompts that a model folder may have for each side.
    _PROMPTS = (("query",), ("document", "passage"))

    def __init__(self, names: tuple[str, str], left: list[str], right: list[str]) -> None:
        self.names = names
        self._sides = (left, right)

    def embedding_fields(self, engine: AsyncMLCEngine, side: int) -> Fields:
        """The arguments of ``embeddings.create`` for a side."""
        there = engine.embedding_prompts.names
        name = next((each for each in self._PROMPTS[side] if each in there), None)
        return {"input": self._sides[side], "prompt_name": name}

    def answer(self, model: str, scores: list[float], usage: dict[str, int]) -> dict[str, Any]:
        """The JSON object of the answer."""
        raise NotImplementedError


class Score(Compared):
    """``/v1/score``, as vLLM has it: one text with several, or as many with as many."""

    @classmethod
    def read(cls, fields: Fields, config: ServerConfig) -> Score:
        """Reads a request. Raises InvalidRequest."""
        first, left = _one_of(fields, ("text_1", "queries", "data_1"))
        second, right = _one_of(fields, ("text_2", "documents", "data_2"))
        lefts, rights = _texts(first, left, config), _texts(second, right, config)
        if len(lefts) not in (1, len(rights)):
            raise invalid_request(
                first,
                f'"{first}" must have one text or as many as "{second}", which has {len(rights)}, '
                f"got {len(lefts)}",
            )
        return cls((first, second), lefts, rights)

    def answer(self, model: str, scores: list[float], usage: dict[str, int]) -> dict[str, Any]:
        """See Compared."""
        return {
            "id": f"score-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": model,
            "data": [
                {"index": i, "object": "score", "score": score} for i, score in enumerate(scores)
            ],
            "usage": usage,
        }


class Rerank(Compared):
    """``/v1/rerank``, as Jina, Cohere and vLLM have it: documents in the order of their scores."""

    def __init__(
        self, query: str, documents: list[str], top_n: int | None, *, with_documents: bool
    ) -> None:
        super().__init__(("query", "documents"), [query], documents)
        self._documents = documents
        self._top_n = top_n
        self._with_documents = with_documents

    @classmethod
    def read(cls, fields: Fields, config: ServerConfig) -> Rerank:
        """Reads a request. Raises InvalidRequest."""
        query = _texts("query", fields.get("query"), config)
        if len(query) != 1:
            raise invalid_request("query", f'"query" must be one text, got {len(query)}')
        documents = [
            each["text"] if isinstance(each, dict) and "text" in each else each
            for each in list_field(fields, "documents")
        ]
        top_n = integer(fields, "top_n")
        if "top_n" in fields and (top_n is None or top_n < 0):
            value = shown(fields["top_n"])
            raise invalid_request(
                "top_n", f'"top_n" must be an integer of at least 0 (0 is all), got {value}'
            )
        wanted = fields.get("return_documents", True)
        if not isinstance(wanted, bool):
            raise invalid_request(
                "return_documents",
                f'"return_documents" must be true or false, got {shown(wanted)}',
            )
        texts = _texts("documents", documents, config)
        return cls(query[0], texts, top_n, with_documents=wanted)

    def answer(self, model: str, scores: list[float], usage: dict[str, int]) -> dict[str, Any]:
        """See Compared."""
        order = sorted(range(len(scores)), key=lambda i: -scores[i])[: self._top_n or None]
        results: list[dict[str, Any]] = [{"index": i, "relevance_score": scores[i]} for i in order]
        if self._with_documents:
            for result in results:
                result["document"] = {"text": self._documents[result["index"]]}
        return {
            "id": f"rerank-{uuid.uuid4().hex}",
            "model": model,
            "usage": usage,
            "results": results,
        }


class _Call:
    """A call of ``embeddings.create`` for a request to the server."""

    def __init__(self, state: ServerState, found: Found, fields: Fields, request_id: str) -> None:
        self._state = state
        self._found = found
        self._fields = fields
        fields.setdefault("input", None)  # which the engine refuses
        if found.adapter is not None:
            fields.setdefault("adapter", found.adapter)
        self._id = f"embd-{uuid.uuid4().hex}"
        log_request(state.config, request_id, found.name, self._id, fields)

    async def run(self) -> EmbeddingResponse:
        model = self._found.model
        engine = model.loaded()
        try:
            response = await engine.embeddings.create(request_id=self._id, **self._fields)
        except EngineRequestError as error:
            if error.finish_reason != "error":
                wire_finish({"finish_reason": error.finish_reason}, has_output=False)
            raise
        num_tokens = response.usage.total_tokens
        usage = CompletionUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)
        self._state.metrics[model.name].observe(self._fields, usage)
        return response


def _cosines(left: EmbeddingResponse, right: EmbeddingResponse) -> list[float]:
    """Of the pairs; a side of one text is compared with each text of the other."""
    lefts = [each.embedding for each in left.data]
    rights = [each.embedding for each in right.data]
    if len(lefts) == 1:
        lefts *= len(rights)
    return [_cosine(a, b) for a, b in zip(lefts, rights, strict=True)]  # type: ignore[arg-type]


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    lengths = hypot(*a) * hypot(*b)
    return sum(map(mul, a, b)) / lengths if lengths else 0.0


def _one_of(fields: Fields, names: tuple[str, ...]) -> tuple[str, Any]:
    name = next((each for each in names if each in fields), names[0])
    return name, fields.get(name)


def _texts(name: str, value: Any, config: ServerConfig) -> list[str]:
    """A text or a list of texts. Raises InvalidRequest."""
    texts = [value] if isinstance(value, str) else value
    is_right = isinstance(texts, list) and all(isinstance(text, str) and text for text in texts)
    if not is_right or not texts:
        raise invalid_request(
            name,
            f'"{name}" must be a text or a list of texts, none of them empty, got {shown(value)}',
        )
    if len(texts) > config.max_prompts:
        raise invalid_request(
            name, f'"{name}" may have {config.max_prompts} texts, got {len(texts)}'
        )
    return texts
