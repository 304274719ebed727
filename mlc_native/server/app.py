"""create_app: the server as an ASGI app, for a server of ASGI apps or inside another app."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from mlc_native.serve.async_engine import AsyncMLCEngine
from mlc_native.server.adapters import LoadAdapter, UnloadAdapter
from mlc_native.server.config import ServerConfig
from mlc_native.server.debug import NAMES, Debug
from mlc_native.server.embeddings import Comparison, Pooled, Rerank, Score
from mlc_native.server.errors import HttpError
from mlc_native.server.gate import Gate
from mlc_native.server.generation import Generation
from mlc_native.server.messages import CountTokens, MessagesDialect, anthropic_error
from mlc_native.server.models import Models
from mlc_native.server.openai import OpenAIDialect
from mlc_native.server.page import Page
from mlc_native.server.responses import ResponsesDialect
from mlc_native.server.state import ServerState
from mlc_native.server.status import Status
from mlc_native.server.tokens import Detokenize, Tokenize
from mlc_native.server.unsupported import unsupported_routes


def create_app(
    engine: AsyncMLCEngine | Mapping[str, AsyncMLCEngine], config: ServerConfig | None = None
) -> Starlette:
    """An ASGI app that serves OpenAI's interface.

    It may be mounted into another app. The caller ends the engines.

    Args:
        engine: what answers; or several engines by the names that requests use.
        config: limits, keys and times.

    Raises:
        InvalidConfig: there is no engine, or a setting is wrong.
    """
    return app_of(ServerState(Models.of(engine), config or ServerConfig()))


def app_of(state: ServerState) -> Starlette:
    """The app on a state of its own, which ``app.state.server`` is."""
    config = state.config
    anthropic = dict.fromkeys(("/messages", "/messages/count_tokens"), anthropic_error)
    middleware = [Middleware(Gate, config, anthropic)]
    if config.allow_origins:
        # Outside of the gate: a browser asks first, without a key, what it may send.
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(config.allow_origins),
            allow_methods=list(config.allow_methods),
            allow_headers=list(config.allow_headers),
            allow_credentials=config.allow_credentials,
            expose_headers=["x-request-id", "x-ignored-fields", "retry-after"],
        )
        middleware.insert(0, cors)
    app = Starlette(
        routes=_routes(state),
        middleware=middleware,
        exception_handlers={HTTPException: _no_such_route},  # type: ignore[dict-item]
    )
    app.state.server = state
    return app


async def _no_such_route(request: Request, error: HTTPException) -> NoReturn:
    """What Starlette finds: no such path, or no such method there. The gate answers it."""
    method, path, headers = request.method, request.url.path, dict(error.headers or {})
    if error.status_code == 405:
        message, code = f"{path} takes {headers['Allow']}, not {method}", "method_not_allowed"
    else:
        message, code = f"there is no {method} {path}", "not_found"
    raise HttpError(error.status_code, message, code=code, headers=headers)


def _routes(state: ServerState) -> list[BaseRoute]:
    status = Status(state)
    chat = Generation(state, partial(OpenAIDialect, "chat"))
    completion = Generation(state, partial(OpenAIDialect, "completion"))
    responses = Generation(state, ResponsesDialect)
    messages = Generation(state, MessagesDialect)
    count_tokens = CountTokens(state)
    changes = asyncio.Lock()  # of adapters
    load_adapter, unload_adapter = LoadAdapter(state, changes), UnloadAdapter(state, changes)
    routes: list[BaseRoute] = [
        Route("/health", status.health),
        Route("/ready", status.ready),
        Route("/ping", status.ping, methods=["GET", "POST"]),
        Route("/version", status.version),
        Route("/metrics", status.metrics),
        Route("/openapi.json", status.openapi),
    ]
    if state.config.page:
        routes.append(Route("/", Page().get, include_in_schema=False))
    if state.config.enable_debug:
        routes += [
            Route(f"/debug/{name}", Debug(state, name), methods=["POST"], include_in_schema=False)
            for name in NAMES
        ]
    for prefix in ("/v1", ""):
        routes += [
            Route(f"{prefix}/chat/completions", chat, methods=["POST"]),
            Route(f"{prefix}/completions", completion, methods=["POST"]),
            Route(f"{prefix}/responses", responses, methods=["POST"]),
            Route(f"{prefix}/messages", messages, methods=["POST"]),
            Route(f"{prefix}/messages/count_tokens", count_tokens, methods=["POST"]),
            Route(f"{prefix}/embeddings", Pooled(state, "embedding"), methods=["POST"]),
            Route(f"{prefix}/classify", Pooled(state, "classification"), methods=["POST"]),
            Route(f"{prefix}/score", Comparison(state, Score), methods=["POST"]),
            Route(f"{prefix}/rerank", Comparison(state, Rerank), methods=["POST"]),
            Route(f"{prefix}/models", status.models),
            Route(f"{prefix}/models/", status.models, include_in_schema=False),
            Route(f"{prefix}/models/{{name:path}}", status.model),
            Route(f"{prefix}/tokenize", Tokenize(state), methods=["POST"]),
            Route(f"{prefix}/detokenize", Detokenize(state), methods=["POST"]),
            Route(f"{prefix}/load_lora_adapter", load_adapter, methods=["POST"]),
            Route(f"{prefix}/unload_lora_adapter", unload_adapter, methods=["POST"]),
        ]
    routes.append(Route("/v2/rerank", Comparison(state, Rerank), methods=["POST"]))
    return [*routes, *unsupported_routes()]
