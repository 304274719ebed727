"""EventStream: server-sent events to one client, with comments while nothing happens and an end
for clients that do not read.

Belongs to the task that sends. The clock runs on the same event loop: it looks at the stream a few
times in each of its intervals, so that an event costs no timer.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Scope, Send

from mlc_native.server.config import ServerConfig
from mlc_native.server.errors import ClientGone

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE = b": keep-alive\n\n"
ABORT_EXTENSION = "mlc_native.abort_connection"  # a function in scope["extensions"]
_LOOKS_PER_INTERVAL = 4


class EventStream:
    """An asynchronous context manager; entering it sends the headers.

    Leaving it without an error ends the response.
    """

    def __init__(
        self, scope: Scope, send: Send, config: ServerConfig, headers: list[tuple[bytes, bytes]]
    ) -> None:
        self._scope = scope
        self._send = send
        self._headers = [*HEADERS, *headers]
        self._keep_alive_s = config.keep_alive_interval_s
        self._stalled_s = config.stalled_reader_timeout_s
        self._look_s = min(self._keep_alive_s, self._stalled_s) / _LOOKS_PER_INTERVAL
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._last_sent = self._loop.time()
        self._is_sending = False  # since _last_sent
        self._is_stalled = False
        self._comment: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
        self._timer = self._loop.call_later(self._look_s, self._look)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self._write(b"", more_body=False)
        except asyncio.CancelledError:
            if not self._is_stalled:
                raise
            kind = asyncio.CancelledError
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._comment is not None:
                self._comment.cancel()
        if self._is_stalled and kind is asyncio.CancelledError:
            assert self._task is not None
            self._task.uncancel()
            abort = self._scope.get("extensions", {}).get(ABORT_EXTENSION)
            if abort is not None:
                abort()  # the data that it does not take would be kept otherwise
                await asyncio.sleep(0)  # the server of the app learns that the connection is lost
            raise ClientGone

    async def send(self, data: bytes) -> None:
        """Sends any number of events. Waits while the client takes nothing."""
        if data:
            await self._write(data, more_body=True)

    async def _write(self, data: bytes, *, more_body: bool) -> None:
        if self._comment is not None:  # one message at a time
            await self._comment
        self._last_sent = self._loop.time()
        self._is_sending = True
        await self._send({"type": "http.response.body", "body": data, "more_body": more_body})
        self._is_sending = False

    async def _send_comment(self) -> None:
        self._last_sent = self._loop.time()
        self._is_sending = True
        await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
        self._is_sending = False
        self._comment = None

    def _look(self) -> None:
        silent_s = self._loop.time() - self._last_sent
        if self._is_sending:
            if silent_s >= self._stalled_s:
                self._is_stalled = True
                assert self._task is not None
                self._task.cancel()
                return
        elif silent_s + self._look_s > self._keep_alive_s and self._comment is None:
            self._comment = self._loop.create_task(self._send_comment())
        self._timer = self._loop.call_later(self._look_s, self._look)
