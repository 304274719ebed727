"""JSON schemas of requests and answers that no pydantic class describes."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TOKENS: Schema = {"type": "array", "items": _COUNT}
_MESSAGES: Schema = {"type": "array", "items": {"type": "object"}, "minItems": 1}
_TOOLS: Schema = {"type": ["array", "null"], "items": {"type": "object"}}
_TEXT_OR_TEXTS: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}


def _object(required: str, **properties: Schema) -> Schema:
    """An object with these properties. It must have those that ``required`` names."""
    return {
        "type": "object",
        "required": required.split(),
        "properties": properties,
    }


def _nullable(kind: str, **more: Any) -> Schema:
    return {"type": [kind, "null"], **more}


def _all_of(**properties: Schema) -> Schema:
    return _object(" ".join(properties), **properties)


_MODEL = _all_of(
    id=_TEXT,
    object={"const": "model"},
    created=_COUNT,
    owned_by=_TEXT,
    parent=_nullable("string"),
)
# What requests that compare texts have besides them.
_COMPARISON: dict[str, Schema] = {
    "model": _nullable("string"),
    "instruction": _nullable("string"),
    "use_activation": {"type": "boolean"},
}
_STATUS = _all_of(status={"const": "ok"})

SCHEMAS: dict[str, Schema] = {
    "Error": _all_of(
        error=_all_of(
            message=_TEXT, type=_TEXT, param=_nullable("string"), code=_nullable("string")
        )
    ),
    "AnthropicError": _all_of(type={"const": "error"}, error=_all_of(type=_TEXT, message=_TEXT)),
    "ResponsesRequest": _object(
        "input",
        input={"anyOf": [_TEXT, {"type": "array", "items": {"type": "object"}}]},
        instructions={"anyOf": [_TEXT, {"type": ["array", "null"]}]},
        max_output_tokens=_nullable("integer", minimum=1),
        tools=_TOOLS,
    ),
    "Response": _all_of(
        id=_TEXT,
        object={"const": "response"},
        created_at=_COUNT,
        status={"enum": ["completed", "incomplete"]},
        model=_TEXT,
        output={"type": "array", "items": _object("type id", type=_TEXT, id=_TEXT)},
        usage=_all_of(input_tokens=_COUNT, output_tokens=_COUNT, total_tokens=_COUNT),
    ),
    "MessagesRequest": _object(
        "messages max_tokens",
        messages=_MESSAGES,
        max_tokens={"type": "integer", "minimum": 1},
        tools=_TOOLS,
    ),
    "Message": _all_of(
        id=_TEXT,
        type={"const": "message"},
        role={"const": "assistant"},
        model=_TEXT,
        content={"type": "array", "items": _object("type", type=_TEXT)},
        stop_reason={"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
        stop_sequence=_nullable("string"),
        usage=_all_of(
            input_tokens=_COUNT,
            cache_read_input_tokens=_COUNT,
            cache_creation_input_tokens=_COUNT,
            output_tokens=_COUNT,
        ),
    ),
    "CountTokensRequest": _object("messages", messages=_MESSAGES),
    "CountTokensResponse": _all_of(input_tokens=_COUNT),
    "TokenizeRequest": {
        **_all_of(),
        "anyOf": [_all_of(prompt=_TEXT), _all_of(content=_TEXT), _all_of(messages=_MESSAGES)],
    },
    "TokenizeResponse": _object(
        "count max_model_len tokens",
        count=_COUNT,
        max_model_len=_COUNT,
        tokens={
            "type": "array",
            "items": {"anyOf": [_COUNT, _object("id piece", id=_COUNT)]},
        },
        token_strs={"type": "array", "items": _nullable("string")},
    ),
    "DetokenizeRequest": _object("tokens", tokens=_TOKENS),
    "DetokenizeResponse": _all_of(prompt=_TEXT, content=_TEXT),
    "LoadAdapterRequest": _object(
        "lora_name lora_path", lora_name=_TEXT, lora_path=_TEXT, model=_nullable("string")
    ),
    "UnloadAdapterRequest": _all_of(lora_name=_TEXT),
    "ScoreRequest": {
        **_object("", **_COMPARISON),
        "anyOf": [
            _object("text_1 text_2", text_1=_TEXT_OR_TEXTS, text_2=_TEXT_OR_TEXTS),
            _object("queries documents", queries=_TEXT_OR_TEXTS, documents=_TEXT_OR_TEXTS),
        ],
    },
    "ScoreResponse": _all_of(
        id=_TEXT,
        object={"const": "list"},
        created=_COUNT,
        model=_TEXT,
        data={
            "type": "array",
            "items": _all_of(index=_COUNT, object={"const": "score"}, score={"type": "number"}),
        },
        usage=_all_of(prompt_tokens=_COUNT, total_tokens=_COUNT),
    ),
    "RerankRequest": _object(
        "query documents",
        query=_TEXT,
        documents={"type": "array", "items": {"anyOf": [_TEXT, _object("text", text=_TEXT)]}},
        top_n=_COUNT,
        return_documents={"type": "boolean"},
        **_COMPARISON,
    ),
    "RerankResponse": _all_of(
        id=_TEXT,
        model=_TEXT,
        usage=_all_of(prompt_tokens=_COUNT, total_tokens=_COUNT),
        results={
            "type": "array",
            "items": _object(
                "index relevance_score",
                index=_COUNT,
                relevance_score={"type": "number"},
                document=_all_of(text=_TEXT),
            ),
        },
    ),
    "Models": _all_of(object={"const": "list"}, data={"type": "array", "items": _MODEL}),
    "Model": _MODEL,
    "Status": _STATUS,
    "Version": _all_of(version=_TEXT),
}
