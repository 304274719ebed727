"""``/tokenize`` and ``/detokenize``, as vLLM and as llama.cpp have them."""

from __future__ import annotations

from typing import Any

from starlette.types import Receive, Scope, Send

from mlc_native.errors import invalid_request
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest
from mlc_native.protocol.validation import validated
from mlc_native.serve.async_engine import AsyncMLCEngine
from mlc_native.serve.request_processing import chat_prompt, prompt_token_ids
from mlc_native.server.body import read_json
from mlc_native.server.fields import Fields
from mlc_native.server.gate import send_json
from mlc_native.server.state import ServerState
from mlc_native.tokenizers import Tokenizer

# What the prompt of a chat depends on.
_CHAT_FIELDS = ("messages", "tools", "tool_choice")


class Tokenize:
    """POST /tokenize: ``prompt`` (vLLM), ``content`` (llama.cpp) or ``messages`` to token ids."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        engine, fields = await _read(self._state, scope, receive)
        tokenizer = _tokenizer(engine)
        if "messages" in fields:
            tokens = await self._state.on_thread(lambda: _chat_tokens(engine, fields))
        else:
            tokens = await self._state.on_thread(lambda: _text_tokens(tokenizer, fields))
        answer = {
            "count": len(tokens),
            "max_model_len": engine.max_input_sequence_length,
            "tokens": tokens,
        }
        if fields.get("return_token_strs") is True:
            answer["token_strs"] = [tokenizer.id_to_token(token) for token in tokens]
        if fields.get("with_pieces") is True:
            answer["tokens"] = [_piece(tokenizer, token) for token in tokens]
        await send_json(send, 200, answer)


class Detokenize:
    """POST /detokenize: ``tokens`` to text, under the names of both servers."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        engine, fields = await _read(self._state, scope, receive)
        tokenizer = _tokenizer(engine)
        text = await self._state.on_thread(lambda: _text_of(tokenizer, fields.get("tokens")))
        await send_json(send, 200, {"prompt": text, "content": text})


async def _read(
    state: ServerState, scope: Scope, receive: Receive
) -> tuple[AsyncMLCEngine, Fields]:
    """The engine that a request names, and its fields that are not null."""
    body = await read_json(scope, receive, state.config, state.pool)
    engine = state.models.find(body.get("model")).loaded()
    return engine, {name: value for name, value in body.items() if value is not None}


def _chat_tokens(engine: AsyncMLCEngine, fields: Fields) -> list[int]:
    chat = {name: fields[name] for name in _CHAT_FIELDS if name in fields}
    request = validated(ChatCompletionRequest, chat)
    return prompt_token_ids(chat_prompt(request, engine.conv_template), engine.tokenizer)


def _text_tokens(tokenizer: Tokenizer, fields: Fields) -> list[int]:
    name = "prompt" if "prompt" in fields else "content"
    text = fields.get(name)
    if not isinstance(text, str):
        raise invalid_request(name, f'"{name}" must be a text')
    return prompt_token_ids(text, tokenizer)


def _text_of(tokenizer: Tokenizer, tokens: object) -> str:
    limit = tokenizer.token_table.size
    if not isinstance(tokens, list) or not all(_is_token(token, limit) for token in tokens):
        raise invalid_request("tokens", f'"tokens" must be a list of token ids below {limit}')
    return tokenizer.decode(tokens, skip_special_tokens=False)


def _is_token(token: object, limit: int) -> bool:
    return type(token) is int and 0 <= token < limit


def _tokenizer(engine: AsyncMLCEngine) -> Tokenizer:
    if engine.tokenizer is None:
        raise invalid_request("model", "the model has no tokenizer")
    return engine.tokenizer


def _piece(tokenizer: Tokenizer, token: int) -> dict[str, Any]:
    """A token with its text, or with its bytes when they are no text."""
    spelled = tokenizer.token_table.bytes(token)
    try:
        return {"id": token, "piece": spelled.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(spelled)}
