"""The description of the server for programs: ``/openapi.json``, made from the request classes.

Requests may have further fields, which are ignored, so no schema forbids any.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

import mlc_native
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionRequest,
    CompletionResponse,
)

_REF = "#/components/schemas/{model}"
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_ANY_OBJECT = {"type": "object"}
_TOKENIZE = {
    "type": "object",
    "properties": {
        "model": {"type": ["string", "null"]},
        "prompt": {"type": "string"},
        "content": {"type": "string"},
        "messages": {"type": "array", "items": _ANY_OBJECT},
    },
}
_DETOKENIZE = {
    "type": "object",
    "required": ["tokens"],
    "properties": {"tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
}
_MESSAGES = {
    "type": "object",
    "required": ["messages", "max_tokens"],
    "properties": {
        "max_tokens": {"type": "integer", "minimum": 1},
        "messages": {"type": "array", "items": _ANY_OBJECT},
    },
}
_RESPONSES = {
    "type": "object",
    "required": ["input"],
    "properties": {
        "input": {"anyOf": [{"type": "string"}, {"type": "array", "items": _ANY_OBJECT}]},
        "instructions": {"type": ["string", "null"]},
        "max_output_tokens": {"type": ["integer", "null"], "minimum": 1},
        "tools": {"type": "array", "items": _ANY_OBJECT},
    },
}
_STREAMS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
_COUNT = {"type": "object", "required": ["messages"], "properties": _MESSAGES["properties"]}


def description() -> dict[str, Any]:
    """The OpenAPI document."""
    schemas = _schemas()
    posts = {
        "/v1/chat/completions": ("ChatCompletionRequest", "ChatCompletionResponse"),
        "/v1/completions": ("CompletionRequest", "CompletionResponse"),
        "/v1/responses": ("ResponsesRequest", None),
        "/v1/messages": ("MessagesRequest", None),
        "/v1/messages/count_tokens": ("CountTokensRequest", None),
        "/v1/tokenize": ("TokenizeRequest", None),
        "/v1/detokenize": ("DetokenizeRequest", None),
    }
    paths: dict[str, Any] = {}
    for path, (request, response) in posts.items():
        is_stream = path in _STREAMS
        operation = {"post": _post(request, response, is_stream)}
        paths[path] = paths[path.removeprefix("/v1")] = operation
    gets = dict.fromkeys(
        ("/v1/models", "/models", "/health", "/ready", "/version"), "application/json"
    )
    for path, content_type in {**gets, "/ping": "text/plain", "/metrics": "text/plain"}.items():
        paths[path] = {"get": {"responses": _responses(None, content_type)}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "mlc_native", "version": mlc_native.__version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _schemas() -> dict[str, Any]:
    requests = [(ChatCompletionRequest, "validation"), (CompletionRequest, "validation")]
    answers = [(ChatCompletionResponse, "serialization"), (CompletionResponse, "serialization")]
    _, document = models_json_schema([*requests, *answers], ref_template=_REF)  # type: ignore[list-item]
    schemas: dict[str, Any] = document["$defs"]
    for name in ("ChatCompletionRequest", "CompletionRequest"):
        schemas[name].pop("additionalProperties", None)
    return schemas | {
        "Error": _ERROR,
        "TokenizeRequest": _TOKENIZE,
        "DetokenizeRequest": _DETOKENIZE,
        "ResponsesRequest": _RESPONSES,
        "MessagesRequest": _MESSAGES,
        "CountTokensRequest": _COUNT,
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _REF.format(model=name)}


def _post(request: str, response: str | None, is_stream: bool) -> dict[str, Any]:
    body = {"required": True, "content": {"application/json": {"schema": _ref(request)}}}
    responses = _responses(response, "application/json")
    if is_stream:
        responses["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return {"requestBody": body, "responses": responses}


def _responses(response: str | None, content_type: str) -> dict[str, Any]:
    schema = {} if response is None else {"schema": _ref(response)}
    error = {"application/json": {"schema": _ref("Error")}}
    return {
        "200": {"description": "the answer", "content": {content_type: schema}},
        "default": {"description": "an error", "content": error},
    }
