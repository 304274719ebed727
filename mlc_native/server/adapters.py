"""``/v1/load_lora_adapter`` and ``/v1/unload_lora_adapter``, as vLLM has them. Off by default."""

from __future__ import annotations

import asyncio

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from mlc_native.errors import InvalidConfig, InvalidRequest, LoadError, invalid_request, shown
from mlc_native.server.body import read_json
from mlc_native.server.config import ServerConfig
from mlc_native.server.errors import HttpError
from mlc_native.server.fields import Fields
from mlc_native.server.state import ServerState

# The engine's names of what is wrong -> the client's.
_CLIENT_NAMES = {"adapter": "lora_name", "folder": "lora_path"}


class LoadAdapter:
    """POST /v1/load_lora_adapter: ``lora_name`` and ``lora_path``, as an ASGI app.

    ``model`` is the model that gets the adapter; by default the first one of the server.
    """

    def __init__(self, state: ServerState, changes: asyncio.Lock) -> None:
        self._state = state
        self._changes = changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state
        _check_allowed(state.config)
        body = await read_json(scope, receive, state.config, state.pool)
        name, folder = _text(body, "lora_name"), _text(body, "lora_path")
        model = state.models.find(body.get("model")).model
        engine = model.loaded()
        async with self._changes:  # else two requests could find the same name free
            if state.models.is_taken(name):
                raise invalid_request(
                    "lora_name", f"a model or adapter of this server has the name {shown(name)}"
                )
            try:
                await engine.load_adapter(name, folder)
            except InvalidRequest as error:
                error.field = _CLIENT_NAMES.get(error.field or "", error.field)
                raise
            except (InvalidConfig, LoadError) as error:  # a LoadError is 500, and loses its text
                message = f"the adapter cannot be loaded: {error}"
                raise HttpError(
                    400, message, param="lora_path", code="adapter_not_loaded"
                ) from error
        answer = PlainTextResponse(f"Success: {model.name} has the adapter {name}.")
        await answer(scope, receive, send)


class UnloadAdapter:
    """POST /v1/unload_lora_adapter: ``lora_name``, as an ASGI app."""

    def __init__(self, state: ServerState, changes: asyncio.Lock) -> None:
        self._state = state
        self._changes = changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state
        _check_allowed(state.config)
        body = await read_json(scope, receive, state.config, state.pool)
        name = _text(body, "lora_name")
        async with self._changes:
            model = state.models.find_adapter(name)
            if model is None:
                raise HttpError(
                    404,
                    f"this server has no adapter {shown(name)}",
                    param="lora_name",
                    code="model_not_found",
                )
            await model.loaded().unload_adapter(name)
        answer = PlainTextResponse(f"Success: {model.name} has the adapter {name} no more.")
        await answer(scope, receive, send)


def _check_allowed(config: ServerConfig) -> None:
    if not config.allow_adapter_loading:
        raise HttpError(
            403,
            "requests may not load or unload adapters; --allow-adapter-loading allows it",
            code="adapter_loading_not_allowed",
        )


def _text(body: Fields, name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise invalid_request(
            name, f'"{name}" must be a text that is not empty, got {shown(value)}'
        )
    return value
