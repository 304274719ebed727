"""An ASGI app at another place: requests go there whole, the messages of answers come back.

``Front`` is the ASGI app that clients reach; ``answers`` runs the real app for one request.
What lies between them is a function from a request to an asynchronous iterator.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mlc_native.server.errors import ClientGone
from mlc_native.server.gate import path_below_root
from mlc_native.server.ray.prefixes import Key, prompt_keys

_LOST = "the replica that answered has ended; send the request again"


@dataclass(frozen=True)
class Forwarded:
    """A request with its whole body."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    client: tuple[str, int] | None
    keys: tuple[Key, ...]  # of its prompt


Call = Callable[[Forwarded], AsyncIterator[list[Message]]]


class Front:
    """The ASGI app on the side of the clients.

    Args:
        call: passes a request on and returns the messages of its answer, several at a time.
            Its iterator has ``cancel`` or ``aclose``, which ends the request.
        max_body_bytes: size of a request.
    """

    def __init__(self, call: Call, max_body_bytes: int) -> None:
        self._call = call
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers an HTTP request."""
        try:
            body = await self._read(receive)
        except ClientGone:
            return
        if body is None:
            await _refuse(send, 413, f"a request may have {self._max_body_bytes} bytes")
            return
        relay = asyncio.ensure_future(self._relay(_forwarded(scope, body), send))
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait({relay, gone}, return_when=asyncio.FIRST_COMPLETED)
            if relay.done():
                relay.result()
        finally:
            for task in (relay, gone):
                task.cancel()
            await asyncio.gather(relay, gone, return_exceptions=True)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body; None if it is too large. Raises ClientGone within it."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            body += message.get("body", b"")
            if len(body) > self._max_body_bytes:
                return None
            if not message.get("more_body"):
                return bytes(body)

    async def _relay(self, request: Forwarded, send: Send) -> None:
        started = is_stream = False
        answer = self._call(request)
        try:
            async for messages in answer:
                for message in messages:
                    started = True
                    is_stream = is_stream or _is_event_stream(message)
                    await send(message)
        except Exception:  # of Ray: the replica is gone, or it has failed
            if not started:
                await _refuse(send, 503, _LOST)
            elif is_stream:
                event = b"data: " + _error(_LOST, 503) + b"\n\n"
                await send({"type": "http.response.body", "body": event, "more_body": False})
            else:
                raise  # the connection is closed within the body
        finally:
            await _end(answer)


def _forwarded(scope: Scope, body: bytes) -> Forwarded:
    client = scope.get("client")
    return Forwarded(
        *(scope["method"], path_below_root(scope), scope.get("query_string", b"")),
        [(bytes(name), bytes(value)) for name, value in scope["headers"]],
        body,
        None if client is None else (client[0], client[1]),
        prompt_keys(body) if scope["method"] == "POST" else (),
    )


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(answer: Any) -> None:
    with suppress(Exception):  # it has ended
        if hasattr(answer, "cancel"):
            answer.cancel()
        else:
            await answer.aclose()


def _is_event_stream(message: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in message.get("headers", ())
    )


def _error(message: str, status: int) -> bytes:
    kind = "invalid_request_error" if status < 500 else "unavailable_error"
    error = {"message": message, "type": kind, "param": None, "code": None}
    return json.dumps({"error": error}).encode()


async def _refuse(send: Send, status: int, message: str) -> None:
    headers = [(b"content-type", b"application/json")]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": _error(message, status)})


async def answers(app: ASGIApp, request: Forwarded) -> AsyncGenerator[list[Message], None]:
    """Runs an app for a request and yields its messages, all that are there at a time.

    Closing the generator is the client's disconnect: it returns when the app has.
    """
    ready: asyncio.Queue[Message | None] = asyncio.Queue()
    gone = asyncio.Event()
    bodies = iter([{"type": "http.request", "body": request.body, "more_body": False}])

    async def receive() -> Message:
        for message in bodies:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if gone.is_set():
            raise OSError("the client has gone")
        ready.put_nowait(dict(message))

    async def run() -> None:
        try:
            await app(_scope(request), receive, send)
        finally:
            ready.put_nowait(None)

    task = asyncio.ensure_future(run())
    try:
        messages: list[Message] = []
        while True:
            message = await ready.get()
            if message is not None:
                messages.append(message)
            if message is None or ready.empty():
                if messages:
                    yield messages
                    messages = []
                if message is None:
                    break
        await task
    finally:
        gone.set()
        await asyncio.gather(task, return_exceptions=True)


def _scope(request: Forwarded) -> Scope:
    return {
        **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1"},
        **{"method": request.method, "path": request.path, "raw_path": request.path.encode()},
        **{"query_string": request.query, "headers": request.headers, "scheme": "http"},
        **{"client": request.client, "server": None, "root_path": "", "extensions": {}},
        "state": {},
    }
