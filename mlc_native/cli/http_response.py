"""Requests to an OpenAI server as bytes, and its responses with their server-sent events.

``chat --url`` and ``bench`` have sockets and event loops of their own; httptools parses HTTP for
both.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

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

    def unreachable(self, error: OSError) -> ConnectionError:
        """The error for a server that cannot be reached, which says where it was looked for."""
        reason = error.strerror or str(error)
        return ConnectionError(f"no connection to {self.host}:{self.port}: {reason}")

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


class ResponseParser:
    """Reads a response as its bytes arrive.

    Attributes:
        status: 0 until the headers are there.
        keeps_connection: another request may follow on the connection.
        done: the response is complete.
    """

    def __init__(self) -> None:
        self.status = 0
        self.keeps_connection = False
        self.done = False
        self._parser = HttpResponseParser(self)
        self._has_length = False  # otherwise the body ends with the connection
        self._content_type = b""
        self._body = bytearray()  # not yet taken

    def feed(self, data: bytes) -> None:
        """Adds received bytes; none mean that the server has closed the connection.

        Raises:
            ConnectionError: what has arrived is no response, or the connection ended within one.
        """
        if data:
            try:
                self._parser.feed_data(data)
            except (HttpParserError, HttpParserUpgrade) as error:
                raise ConnectionError(f"the server sent no HTTP/1.1: {error}") from None
            return
        if not self.done and (not self.status or self._has_length):
            raise ConnectionError("the server closed the connection before the end of its answer")
        self.done = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by httptools, as the next three are."""
        if name.lower() == b"content-type":
            self._content_type = value.partition(b";")[0].strip()
        self._has_length |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:  # others announce the response
            self.status = status
            self.keeps_connection = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.done = self.status != 0

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

    def check_is_stream(self) -> None:
        """Raises ConnectionError for a response with status 200 that has no events."""
        kind = self._content_type
        if self.status == 200 and kind and kind.lower() != b"text/event-stream":
            shown = kind[:100].decode("latin-1")
            raise ConnectionError(f'the server sent "{shown}" and no stream of events')

    def check(self) -> None:
        """Raises the error that a complete response reports.

        Raises:
            InvalidRequest: status 400 to 499; QueueFull for 429.
            ConnectionError: another status that is not 200.
        """
        if self.status != 200:
            raise error_of(self.status, self.body())


def model_names(body: bytes) -> list[str]:
    """The names in an answer of /v1/models. Raises ConnectionError for anything else."""
    try:
        return [str(model["id"]) for model in json.loads(body)["data"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        shown = body[:100].decode("utf-8", "replace")
        raise ConnectionError(f"the server sent no list of models: {shown}") from None


def event_object(data: bytes) -> dict[str, Any]:
    """The JSON object of an event. Raises ConnectionError for anything else."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        shown = data[:100].decode("utf-8", "replace")
        raise ConnectionError(f"the server sent an event that is no JSON object: {shown}")
    return fields


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
    param, code = (fields.get(name) for name in ("param", "code"))
    return InvalidRequest(
        text, param if isinstance(param, str) else None, code if isinstance(code, str) else None
    )
