"""``/tokenize`` and ``/detokenize``, as vLLM and as llama.cpp have them."""

from __future__ import annotations

from typing import Any, cast

from starlette.types import Receive, Scope, Send

from mlc_native.errors import invalid_request, shown
from mlc_native.serve.async_engine import AsyncMLCEngine
from mlc_native.serve.rendered_chat import RenderArguments
from mlc_native.serve.request_processing import prompt_token_ids
from mlc_native.server.body import read_json
from mlc_native.server.fields import Fields, check_template
from mlc_native.server.gate import send_json
from mlc_native.server.state import ServerState
from mlc_native.server.wire import json_bytes
from mlc_native.template_sandbox.prompt_text import PromptText
from mlc_native.tokenizers import Tokenizer


class Tokenize:
    """POST /tokenize: ``prompt`` (vLLM), ``content`` (llama.cpp) or ``messages`` to token ids."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        engine, fields = await _read(self._state, scope, receive)
        tokenizer = _tokenizer(engine)
        if "messages" in fields:
            tokens = await chat_tokens(engine, fields)
        else:
            tokens = await self._state.on_thread(lambda: _text_tokens(tokenizer, fields))

        def write() -> bytes:
            return json_bytes(_answer(tokens, tokenizer, engine.max_input_sequence_length, fields))

        await send_json(send, 200, await self._state.on_thread(write))


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
    engine = state.models.find(body.get("model")).model.loaded()
    fields = {name: value for name, value in body.items() if value is not None}
    check_template(fields, state.config)
    return engine, fields


def _answer(
    tokens: list[int], tokenizer: Tokenizer, max_model_len: int, fields: Fields
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "count": len(tokens),
        "max_model_len": max_model_len,
        "tokens": tokens,
    }
    if _flag(fields, "return_token_strs"):
        answer["token_strs"] = [tokenizer.id_to_token(token) for token in tokens]
    if _flag(fields, "with_pieces"):
        answer["tokens"] = [_piece(tokenizer, token) for token in tokens]
    return answer


async def chat_tokens(engine: AsyncMLCEngine, fields: Fields) -> list[int]:
    """The prompt of a chat. Raises InvalidRequest."""
    names = RenderArguments.__optional_keys__
    arguments = cast(RenderArguments, {name: fields[name] for name in names if name in fields})
    chat = await engine.render_chat(fields.get("messages", []), **arguments)
    return chat.token_ids


def _text_tokens(tokenizer: Tokenizer, fields: Fields) -> list[int]:
    # The names and the defaults of vLLM and of llama.cpp.
    is_prompt = "prompt" in fields
    name = "prompt" if is_prompt else "content"
    if name not in fields:
        raise invalid_request("prompt", 'there must be a "prompt", "messages" or "content"')
    text = fields[name]
    if not isinstance(text, str):
        raise invalid_request(name, f'"{name}" must be a text')
    if is_prompt:
        add = _flag(fields, "add_special_tokens", default=True)
    else:
        add = _flag(fields, "add_special")
        if not _flag(fields, "parse_special", default=True):
            text = PromptText(text)  # which has no control tokens
    return prompt_token_ids(text, tokenizer, add_special_tokens=add)


def _flag(fields: Fields, name: str, *, default: bool = False) -> bool:
    """A field that must be true or false. Raises InvalidRequest."""
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise invalid_request(name, f'"{name}" must be true or false, got {shown(value)}')
    return value


def _text_of(tokenizer: Tokenizer, tokens: object) -> str:
    limit = tokenizer.token_table.size
    listed = tokens if isinstance(tokens, list) else [tokens]
    wrong = [token for token in listed if not _is_token(token, limit)]
    if wrong or listed is not tokens:
        raise invalid_request(
            "tokens",
            f'"tokens" must be a list of token ids in [0, {limit}), got '
            + shown(wrong[0] if listed is tokens else tokens),
        )
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
