"""The description of the server for programs: ``/openapi.json``.

The requests and answers of OpenAI's interface are described by the engine's own classes, all others
by openapi_schemas. Requests may have further fields, which are ignored, so no schema forbids any.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

import mlc_native
from mlc_native.protocol.embeddings import EmbeddingRequest, EmbeddingResponse
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionRequest,
    CompletionResponse,
)
from mlc_native.protocol.scoring import ClassificationRequest, ClassificationResponse
from mlc_native.server.openapi_schemas import SCHEMAS

_REF = "#/components/schemas/{model}"
_OPENAI, _ANTHROPIC = "Error", "AnthropicError"
# path -> request, answer (None: a text), error, and whether the answer may be a stream. Each is
# there without /v1, too.
_POSTS: dict[str, tuple[str, str | None, str, bool]] = {
    "/v1/chat/completions": ("ChatCompletionRequest", "ChatCompletionResponse", _OPENAI, True),
    "/v1/completions": ("CompletionRequest", "CompletionResponse", _OPENAI, True),
    "/v1/responses": ("ResponsesRequest", "Response", _OPENAI, True),
    "/v1/messages": ("MessagesRequest", "Message", _ANTHROPIC, True),
    "/v1/messages/count_tokens": (
        *("CountTokensRequest", "CountTokensResponse"),
        *(_ANTHROPIC, False),
    ),
    "/v1/tokenize": ("TokenizeRequest", "TokenizeResponse", _OPENAI, False),
    "/v1/detokenize": ("DetokenizeRequest", "DetokenizeResponse", _OPENAI, False),
    "/v1/embeddings": ("EmbeddingRequest", "EmbeddingResponse", _OPENAI, False),
    "/v1/classify": ("ClassificationRequest", "ClassificationResponse", _OPENAI, False),
    "/v1/score": ("ScoreRequest", "ScoreResponse", _OPENAI, False),
    "/v1/rerank": ("RerankRequest", "RerankResponse", _OPENAI, False),
    "/v1/load_lora_adapter": ("LoadAdapterRequest", None, _OPENAI, False),
    "/v1/unload_lora_adapter": ("UnloadAdapterRequest", None, _OPENAI, False),
}
_GETS = {
    "/v1/models": "Models",
    "/models": "Models",
    "/health": "Status",
    "/ready": "Status",
    "/version": "Version",
}


def description() -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, Any] = {}
    for path, (request, answer, error, is_stream) in _POSTS.items():
        operation = {"post": _post(request, answer, error, is_stream)}
        paths[path] = paths[path.removeprefix("/v1")] = operation
    paths["/v2/rerank"] = paths["/v1/rerank"]
    for path, answer in _GETS.items():
        paths[path] = {"get": {"responses": _responses({"application/json": _schema(answer)})}}
    paths["/metrics"] = {"get": {"responses": _responses({"text/plain": {}})}}
    paths["/ping"] = {name: {"responses": _responses({})} for name in ("get", "post")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "mlc_native", "version": mlc_native.__version__},
        "paths": paths,
        "components": {
            "schemas": _openai_schemas() | SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _openai_schemas() -> dict[str, Any]:
    kinds = (ChatCompletionRequest, CompletionRequest, EmbeddingRequest, ClassificationRequest)
    requests = [(kind, "validation") for kind in kinds]
    answers = [
        (kind, "serialization")
        for kind in (
            *(ChatCompletionResponse, CompletionResponse),
            *(EmbeddingResponse, ClassificationResponse),
        )
    ]
    _, document = models_json_schema([*requests, *answers], ref_template=_REF)  # type: ignore[list-item]
    schemas: dict[str, Any] = document["$defs"]
    for kind in kinds:
        schemas[kind.__name__].pop("additionalProperties", None)
    classification = schemas[ClassificationRequest.__name__]
    classification.pop("required")
    classification["properties"]["messages"] = {"type": "array", "items": {"type": "object"}}
    return schemas


def _schema(name: str) -> dict[str, Any]:
    return {"schema": {"$ref": _REF.format(model=name)}}


def _post(request: str, answer: str | None, error: str, is_stream: bool) -> dict[str, Any]:
    content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    if answer is not None:
        content = {"application/json": _schema(answer)}
    if is_stream:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    body = {"required": True, "content": {"application/json": _schema(request)}}
    return {"requestBody": body, "responses": _responses(content, error)}


def _responses(content: dict[str, Any], error: str = _OPENAI) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "the answer"}
    if content:
        answer["content"] = content
    error_content = {"application/json": _schema(error)}
    return {"200": answer, "default": {"description": "an error", "content": error_content}}
