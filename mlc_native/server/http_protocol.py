"""uvicorn's HTTP/1.1 protocol with limits for clients that are slow or send too much.

uvicorn waits for headers without an end and without a bound. Here a connection is closed when the
headers of a request do not arrive in time, are too long or too many; and connections above a limit
are refused. One object per connection, on the event loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mlc_native.server.config import check_positive
from mlc_native.server.events import ABORT_EXTENSION


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """Limits of a connection. Times in seconds.

    Raises:
        InvalidConfig: a value is not above 0; it is named.

    Attributes:
        header_timeout_s: from the first byte of a request, or from the connection, to the end of
            its headers.
        max_header_bytes: of request line and headers together.
        max_headers: number of headers.
        max_connections: at the same time; None is no limit.
    """

    header_timeout_s: float = 10
    max_header_bytes: int = 32 << 10
    max_headers: int = 100
    max_connections: int | None = None

    def __post_init__(self) -> None:
        check_positive(self, [field.name for field in fields(self)])


def limited_protocol(limits: HttpLimits) -> type[HttpToolsProtocol]:
    """The protocol class for ``uvicorn.Config(http=...)``."""

    class Limited(LimitedProtocol):
        pass

    Limited.limits = limits
    return Limited


class LimitedProtocol(HttpToolsProtocol):
    """Base of ``limited_protocol``."""

    limits: HttpLimits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0  # of a request whose headers are not complete
        self._is_in_head = True
        self._refusal: bytes | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        limit = self.limits.max_connections
        if limit is not None and len(self.connections) > limit:
            self._refuse(b"503 Service Unavailable")
            return
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > self.limits.max_header_bytes:
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True
        self._head_bytes = 0
        self._start_head_timer()
        scope: Any = self.scope
        scope["extensions"] = {ABORT_EXTENSION: self.transport.abort}

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._head_bytes = 0
        self._stop_head_timer()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.max_header_bytes or len(self.headers) > self.limits.max_headers:
            self._refusal = b"431 Request Header Fields Too Large"
            raise ValueError("headers")  # stops the parser, which calls send_400_response
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no request, and closes the connection."""
        self._refuse(self._refusal or b"400 Bad Request")

    def _unsupported_upgrade_warning(self) -> None:
        """There is no other protocol to install: who asks for one is answered in HTTP."""

    def _refuse(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            self.transport.close()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(
                self.limits.header_timeout_s, self._head_is_late
            )

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._refuse(b"408 Request Timeout")
