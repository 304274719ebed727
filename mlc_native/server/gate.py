"""Gate: what happens to every request, whatever it asks for.

It gives the request an id, asks for the key, turns errors into answers, and writes the access log.
A pure ASGI middleware: it adds no task and no copy to a stream.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mlc_native.errors import MLCNativeError
from mlc_native.server import wire
from mlc_native.server.body import header
from mlc_native.server.config import ServerConfig
from mlc_native.server.errors import (
    ClientGone,
    HttpError,
    error_body,
    error_headers,
    public_error,
)

access_logger = logging.getLogger("mlc_native.access")

OPEN_PATHS = {"/", "/health", "/ready", "/ping"}
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_SCOPE_KEY = "mlc_native.request_id"
ErrorWriter = Callable[[MLCNativeError], bytes]


def request_id_of(scope: Scope) -> str:
    """The id that the gate gave to a request, or that its client did."""
    request_id: str = scope[_SCOPE_KEY]
    return request_id


async def send_json(
    send: Send,
    status: int,
    body: object,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    """Sends a whole answer. ``body`` is JSON in bytes, or what becomes JSON."""
    data = body if isinstance(body, bytes) else wire.json_bytes(body)
    all_headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
        *(headers or []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": data})


class Keys:
    """Compares keys in a time that says nothing about them."""

    def __init__(self, keys: Any) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def allow(self, scope: Scope) -> bool:
        """Whether a request carries one of the keys."""
        given = []
        authorization = header(scope, b"authorization")
        if authorization is not None:
            scheme, _, token = authorization.partition(b" ")
            if scheme.lower() == b"bearer":
                given.append(token.strip())
        key = header(scope, b"x-api-key")
        if key is not None:
            given.append(key.strip())
        found = False
        for candidate in given:
            digest = hashlib.sha256(candidate).digest()
            for allowed in self._digests:  # all of them, whichever matches
                found |= hmac.compare_digest(digest, allowed)
        return found


class Gate:
    """Wraps the routes of the server.

    ``error_writers`` has the paths, without "/v1", whose clients expect errors in another form than
    OpenAI's.
    """

    def __init__(
        self, app: ASGIApp, config: ServerConfig, error_writers: Mapping[str, ErrorWriter]
    ) -> None:
        self._app = app
        self._error_writers = error_writers
        self._keys = Keys(config.api_keys)
        self._open_paths = OPEN_PATHS | ({"/metrics"} if config.metrics_key == "none" else set())
        self._logs_access = config.access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = header(scope, b"x-request-id")
        if given is None or not _REQUEST_ID.fullmatch(given):
            given = uuid.uuid4().hex.encode()
        scope[_SCOPE_KEY] = given.decode()
        answer = _Answer(send, given)
        start = time.perf_counter()
        try:
            self._check_key(scope)
            await self._app(scope, receive, answer.send)
        except ClientGone:
            pass
        except Exception as error:
            path = path_below_root(scope).removeprefix("/v1")
            write = self._error_writers.get(path, error_body)
            await answer.send_error(public_error(error, given.decode()), write)
        finally:
            if self._logs_access:
                self._log(scope, answer.status, time.perf_counter() - start)

    def _check_key(self, scope: Scope) -> None:
        is_open = not self._keys or path_below_root(scope) in self._open_paths
        if not is_open and not self._keys.allow(scope):
            raise HttpError(
                401,
                "the request needs a valid key: Authorization: Bearer KEY, or x-api-key: KEY",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    def _log(self, scope: Scope, status: int | None, duration_s: float) -> None:
        client = scope.get("client")
        entry = {
            "request_id": request_id_of(scope),
            "client": client[0] if client else None,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,  # null when the client went away before the answer
            "duration_s": round(duration_s, 6),
        }
        access_logger.info(json.dumps(entry))


def path_below_root(scope: Scope) -> str:
    """The path below the place where the app is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root and path.startswith(root + "/") else path


class _Answer:
    """Passes an answer on, with the id of its request in the headers."""

    def __init__(self, send: Send, request_id: bytes) -> None:
        self._send = send
        self._request_id = request_id
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self._request_id)]
            message = {**message, "headers": headers}
        await self._send(message)

    async def send_error(self, error: MLCNativeError, write: ErrorWriter) -> None:
        """Answers with an error, unless the answer has begun: then it stays without an end."""
        if self.status is not None:
            return
        headers = [(k.encode(), v.encode()) for k, v in error_headers(error).items()]
        await send_json(self.send, error.status, write(error), headers)
