"""Endpoints of other servers that this one does not have: each says so, instead of "not found"."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from mlc_native.server.errors import HttpError

_NO_POOLING = "this server has no such form of embeddings; use /v1/embeddings"
_NO_MODERATION = "this server generates text; it does not classify texts for moderation"
_TEXT_ONLY = "this server reads and writes text only"
_NOT_STORED = "responses are not stored: send the earlier items in input"
_PATHS = {
    "pooling": _NO_POOLING,
    "moderations": _NO_MODERATION,
    **dict.fromkeys(
        (
            *("audio/speech", "audio/transcriptions", "audio/translations"),
            *("images/generations", "images/edits", "images/variations"),
        ),
        _TEXT_ONLY,
    ),
}


def _refusal(status: int, message: str, code: str) -> Callable[[Request], NoReturn]:
    def refuse(_request: Request) -> NoReturn:
        raise HttpError(status, message, code=code)

    return refuse


def unsupported_routes() -> list[BaseRoute]:
    """The routes. Clients repeat a request that gets a status of 500 or more, so it is 400."""
    routes: list[BaseRoute] = []
    for prefix in ("/v1", ""):
        for path, message in _PATHS.items():
            refuse = _refusal(400, message, "unsupported_endpoint")
            routes.append(
                Route(f"{prefix}/{path}", refuse, methods=["POST"], include_in_schema=False)
            )
        stored = _refusal(404, _NOT_STORED, "response_not_found")
        routes += [
            Route(
                f"{prefix}/responses/{{id}}",
                stored,
                methods=["GET", "DELETE"],
                include_in_schema=False,
            ),
            Route(
                f"{prefix}/responses/{{id}}/cancel",
                stored,
                methods=["POST"],
                include_in_schema=False,
            ),
            Route(f"{prefix}/responses/{{id}}/input_items", stored, include_in_schema=False),
        ]
    return routes
