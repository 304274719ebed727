"""A small HTTP/1.1 client without sockets: bytes of requests, and a parser of responses.

It does what ``chat --url`` and ``bench`` need of an OpenAI server: one request per connection or
several, bodies by length, in chunks or to the end, and server-sent events as they arrive.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from mlc_native.errors import InvalidRequest, QueueFull, invalid_config

DONE = b"[DONE]"
_SCHEMES = {"http": 80, "https": 443}


@dataclass(frozen=True)
class ServerUrl:
    """Where a server is. ``path`` ends with "/v1"."""

    host: str
    port: int
    path: str
    tls: bool

    @staticmethod
    def parse(url: str) -> ServerUrl:
        """Reads "http://host:port", also with "/v1" or a prefix. Raises InvalidConfig."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if host is None or parts.scheme not in _SCHEMES:
            raise invalid_config("url", f'--url must be like http://127.0.0.1:8000, got "{url}"')
        path = parts.path.rstrip("/")
        path = path if path.endswith("/v1") else path + "/v1"
        return ServerUrl(host, port or _SCHEMES[parts.scheme], path, parts.scheme == "https")

    def tls_context(self) -> ssl.SSLContext | None:
        """How to verify the server; None without TLS."""
        return ssl.create_default_context() if self.tls else None

    def request(self, method: str, path: str, key: str | None, body: object = None) -> bytes:
        """The bytes of a request. ``path`` follows "/v1"; a body is sent as JSON."""
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            f"{method} {self.path}{path} HTTP/1.1",
            f"Host: {host}:{self.port}",
            "User-Agent: mlc-native",
            "Accept: application/json, text/event-stream, text/plain",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
        ]
        if key:
            lines.append(f"Authorization: Bearer {key}")
        return "\r\n".join([*lines, "", ""]).encode() + content


@dataclass
class ResponseParser:
    """Reads a response as its bytes arrive.

    Attributes:
        status: 0 until the status line is there.
        headers: by lower-case name.
        done: the response is complete.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    done: bool = False
    _data: bytearray = field(default_factory=bytearray)  # not yet parsed
    _body: bytearray = field(default_factory=bytearray)  # not yet taken
    _left: int | None = None  # of the body or the chunk; None: until the end
    _chunked: bool = False

    def feed(self, data: bytes) -> None:
        """Adds received bytes; none mean that the server has closed the connection.

        Raises:
            ConnectionError: what has arrived is no response, or the connection ended within one.
        """
        if not data:
            self._end()
            return
        self._data += data
        if not self.status and not self._read_head():
            return
        if self._chunked:
            self._read_chunks()
            return
        size = len(self._data) if self._left is None else min(self._left, len(self._data))
        self._take(size)
        if self._left is not None:
            self._left -= size
            self.done = self._left == 0

    def _end(self) -> None:
        if not self.done and (not self.status or self._chunked or self._left is not None):
            raise ConnectionError("the server closed the connection before the end of its answer")
        self.done = True

    def _read_head(self) -> bool:
        head, separator, rest = bytes(self._data).partition(b"\r\n\r\n")
        if not separator:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        parts = first.split(" ", 2)
        if not parts[0].startswith("HTTP/1.") or len(parts) < 2 or not parts[1].isdigit():
            raise ConnectionError(f"the server does not speak HTTP/1.1, it began with {first!r}")
        self._data = bytearray(rest)
        if parts[1] == "100":
            return self._read_head()
        self.status = int(parts[1])
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if self._chunked:
            self._left = 0
        elif length is not None and length.isdigit():
            self._left = int(length)
            self.done = self._left == 0
        return True

    def _read_chunks(self) -> None:
        """``_left`` is what is missing of the chunk with the line end behind it."""
        while self._data and not self.done:
            if self._left:
                size = min(self._left, len(self._data))
                self._take(size)
                self._left -= size
                if self._left == 0:
                    del self._body[-2:]
                continue
            line, separator, _ = bytes(self._data[:64]).partition(b"\r\n")
            if not separator:
                return
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise ConnectionError("the server sent a broken chunk") from None
            del self._data[: len(line) + 2]
            if size == 0:
                self.done = True
            else:
                self._left = size + 2

    def _take(self, size: int) -> None:
        self._body += self._data[:size]
        del self._data[:size]

    def events(self) -> list[bytes]:
        """The data of the complete server-sent events since the last call."""
        whole, separator, rest = bytes(self._body).replace(b"\r\n", b"\n").rpartition(b"\n\n")
        if not separator:
            return []
        self._body = bytearray(rest)
        found = []
        for event in whole.split(b"\n\n"):
            lines = [line for line in event.split(b"\n") if line.startswith(b"data:")]
            if lines:
                found.append(b"\n".join(line[5:].removeprefix(b" ") for line in lines))
        return found

    def body(self) -> bytes:
        """The body that no event was taken of."""
        return bytes(self._body)

    def check(self) -> None:
        """Raises the error that a complete response reports.

        Raises:
            InvalidRequest: status 400 to 499; QueueFull for 429.
            ConnectionError: another status that is not 200.
        """
        if self.status != 200:
            raise error_of(self.status, self.body())


def error_of(status: int, body: bytes) -> Exception:
    """The error that an answer of an OpenAI server reports."""
    try:
        parsed: Any = json.loads(body)
    except ValueError:
        parsed = None
    fields = parsed.get("error", parsed) if isinstance(parsed, Mapping) else {}
    fields = fields if isinstance(fields, Mapping) else {"message": fields}
    message = str(fields.get("message") or bytes(body[:200]).decode("utf-8", "replace"))
    text = f"{message} (status {status})"
    if status == 429:
        return QueueFull(text)
    if not 400 <= status < 500:
        return ConnectionError(text)
    param = fields.get("param")
    if fields.get("code") == "context_length_exceeded":
        param = "prompt"
    return InvalidRequest(text, param if isinstance(param, str) else None)
