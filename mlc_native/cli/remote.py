"""RemoteEngine: what a chat needs of an engine, from any server with OpenAI's interface.

One thread at a time. Each request has a connection of its own, which closing the stream closes; a
server takes that as the end of the request.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from mlc_native.cli.http_response import (
    DONE,
    ResponseParser,
    ServerUrl,
    event_object,
    model_names,
)
from mlc_native.errors import invalid_config

KEY_VARIABLES = ("MLC_NATIVE_API_KEY", "OPENAI_API_KEY")
_CONNECT_TIMEOUT_S = 30
_READ_SIZE = 1 << 16


def api_key(given: str | None) -> str | None:
    """The key of the command line or of the environment."""
    return given or next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)


class RemoteEngine:
    """The models of a server; ``chat.completions.create`` streams, as an engine's does.

    Args:
        url: "http://host:port", with or without "/v1".
        model: one of the server's models; None is its first one.
        key: an API key, or None.

    Raises:
        InvalidConfig: the URL is none, or the server has no such model.
        OSError: the server cannot be reached.
    """

    conv_template = "of the server"  # it renders the messages

    def __init__(self, url: str, model: str | None = None, key: str | None = None) -> None:
        self._url = ServerUrl.parse(url)
        self._key = key
        names = model_names(self._get("/models"))
        if model is not None and model not in names:
            raise invalid_config("model", f'{url} has no model "{model}"; it has {names}')
        if not names:
            raise invalid_config("model", f"{url} has no model")
        self.model_name: str = model or names[0]
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))
        self.completions = SimpleNamespace()  # a chat with a server needs none

    def metrics(self) -> Any:
        """Raises InvalidConfig: the metrics of a server are for its operator."""
        raise invalid_config("metrics", "the metrics of a server are at its URL, under /metrics")

    def __enter__(self) -> RemoteEngine:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        pass

    def _create(self, **fields: Any) -> RemoteStream:
        body = {"model": self.model_name, **fields}
        connection = self._connect()
        try:
            connection.sendall(self._url.request("POST", "/chat/completions", self._key, body))
            return RemoteStream(connection)
        except BaseException:
            connection.close()
            raise

    def _get(self, path: str) -> bytes:
        parser = ResponseParser()
        with self._connect() as connection:
            connection.sendall(self._url.request("GET", path, self._key))
            while not parser.done:
                parser.feed(connection.recv(_READ_SIZE))
        parser.check()
        return parser.body()

    def _connect(self) -> socket.socket:
        address = (self._url.host, self._url.port)
        try:
            connection: socket.socket = socket.create_connection(address, _CONNECT_TIMEOUT_S)
        except OSError as error:
            raise self._url.unreachable(error) from error
        context = self._url.tls_context()
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname=self._url.host)
        connection.settimeout(None)  # an answer may take any time to begin
        return connection


class RemoteStream:
    """The chunks of an answer, as objects with the fields that a chat reads."""

    def __init__(self, connection: socket.socket) -> None:
        """Waits for the head of the response. Raises the error that it reports."""
        self._begin = time.monotonic()
        self._first: float | None = None  # when text came first
        self._has_ended = False  # a choice has a finish reason
        self._connection = connection
        self._parser = ResponseParser()
        while not self._parser.status:
            self._parser.feed(connection.recv(_READ_SIZE))
        if self._parser.status != 200:
            while not self._parser.done:
                self._parser.feed(connection.recv(_READ_SIZE))
            self._parser.check()
        self._parser.check_is_stream()

    def __iter__(self) -> Iterator[Any]:
        while True:
            for data in self._parser.events():
                if data == DONE:
                    return
                yield self._chunk(event_object(data))
            if self._parser.done:
                if not self._has_ended:
                    raise ConnectionError("the server ended its answer without a finish reason")
                return
            self._parser.feed(self._connection.recv(_READ_SIZE))

    def close(self) -> None:
        """Ends the request."""
        self._connection.close()

    def _chunk(self, fields: dict[str, Any]) -> Any:
        """A chunk as the engine's: missing fields are None.

        Raises:
            ConnectionError: it is the error that ended the answer.
        """
        if fields.get("error"):
            error = fields["error"]
            raise ConnectionError(error["message"] if isinstance(error, dict) else str(error))
        found = fields.get("choices")
        choices = [_choice(choice) for choice in (found if isinstance(found, list) else [])]
        self._has_ended |= any(choice.finish_reason is not None for choice in choices)
        if self._first is None and any(
            c.delta.content or c.delta.reasoning_content for c in choices
        ):
            self._first = time.monotonic()
        usage = fields.get("usage")
        known = self._usage(usage) if isinstance(usage, dict) else None
        return SimpleNamespace(usage=known, choices=choices)

    def _usage(self, usage: dict[str, Any]) -> Any:
        """The usage with times as they were seen here."""
        now = time.monotonic()
        first = now if self._first is None else self._first
        num_tokens, prompt_tokens = (
            count if isinstance(count := usage.get(name), int) else 0
            for name in ("completion_tokens", "prompt_tokens")
        )
        times = {"ttft_s": first - self._begin}
        if now > first and num_tokens > 1:
            times["decode_tokens_per_s"] = (num_tokens - 1) / (now - first)
        return SimpleNamespace(
            prompt_tokens=prompt_tokens, completion_tokens=num_tokens, extra=times
        )


def _choice(choice: Any) -> Any:
    choice = choice if isinstance(choice, dict) else {}
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    return SimpleNamespace(
        finish_reason=choice.get("finish_reason"),
        delta=SimpleNamespace(content=delta.get("content"), reasoning_content=reasoning),
    )
