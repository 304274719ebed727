"""uvicorn's HTTP/1.1 protocol with limits for clients that are slow or send too much.

uvicorn waits for headers without an end and without a bound. Here a connection is closed when the
headers of a request do not arrive in time, are too long or too many, also those behind a body in
chunks; when the body of a request that has been answered goes on for as long; and connections above
a limit are refused. One object per connection, on the event loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mlc_native.server.config import check_positive
from mlc_native.server.events import ABORT_EXTENSION

# A wish for another protocol, which a server may ignore.
_UPGRADE_HEADERS = (b"upgrade", b"http2-settings")


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """Limits of a connection. Times in seconds.

    Raises:
        InvalidConfig: a value is not above 0; it is named.

    Attributes:
        header_timeout_s: from the first byte of a request, or from the connection, to the end of
            its headers; and from an answer to the end of a body that nobody reads any more.
        max_header_bytes: of request line and headers together, and of those behind a body.
        max_headers: number of headers.
        max_connections: at the same time; None is no limit.
    """

    header_timeout_s: float = 10
    max_header_bytes: int = 32 << 10
    max_headers: int = 100
    max_connections: int | None = None

    def __post_init__(self) -> None:
        check_positive(self, [field.name for field in fields(self)])


def _end_with_connection(cycle: RequestResponseCycle) -> None:
    """Lets an answer without a length end with its connection.

    uvicorn would send it in chunks, which a client of HTTP/1.0 takes for a part of the body.
    """
    send = cycle.send
    has_no_length = False

    async def send_without_chunks(message: Any) -> None:
        nonlocal has_no_length
        if message["type"] == "http.response.start":
            names = [name.lower() for name, _ in message.get("headers", ())]
            if b"content-length" not in names:
                has_no_length = True
                cycle.chunked_encoding = False
        elif has_no_length:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    cycle.send = send_without_chunks  # type: ignore[method-assign]


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
        self._is_in_head = True  # or between chunks of a body, where headers may follow
        self._has_body_to_come = False
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
        self._unset_keepalive_if_required()
        rest: bytes | None = data
        try:
            while rest is not None:
                rest = self._feed(rest)
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("")
            return
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
        if self._asks_for_upgrade():
            return  # the parser stops here: see _feed
        self._has_body_to_come = True
        super().on_headers_complete()
        if self.parser.get_http_version() == "1.0":
            _end_with_connection(self.cycle)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_body_to_come:
            super().on_header(name, value)  # those behind a body say nothing here

    def on_chunk_header(self) -> None:
        """A chunk follows; headers if it has no bytes."""
        self._is_in_head = True

    def on_body(self, body: bytes) -> None:
        self._is_in_head = False
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._asks_for_upgrade():
            return
        self._has_body_to_come = self._is_in_head = False
        self._stop_head_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._has_body_to_come and self.cycle.response_complete:
            self._start_head_timer()

    def _asks_for_upgrade(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _feed(self, data: bytes) -> bytes | None:
        """Gives data to the parser. Returns what it must have next, if anything.

        It takes no body of a request that asks for another protocol, such as h2c. Another parser
        gets the headers again, without this wish, and what follows them.
        """
        try:
            self.parser.feed_data(data)
            return None
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        if not self._asks_for_upgrade():
            raise httptools.HttpParserError("CONNECT")
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(t for t in tokens if t.lower() not in _UPGRADE_HEADERS)
            if name not in _UPGRADE_HEADERS:
                lines.append(name + b": " + value)
        self.parser = httptools.HttpRequestParser(self)
        return b"\r\n".join([*lines, b"", rest])

    def send_400_response(self, msg: str) -> None:
        """Answers what is no request, and closes the connection."""
        self._refuse(self._refusal or b"400 Bad Request")

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
        if self._has_body_to_come:  # of a request that has its answer
            self.transport.close()
        else:
            self._refuse(b"408 Request Timeout")
