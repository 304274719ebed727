"""A server on localhost for tests: the real one, on a thread, on engines of this process."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import httpx

from mlc_native import AsyncMLCEngine
from mlc_native.server import ServerConfig
from mlc_native.server.http_protocol import HttpLimits
from mlc_native.server.http_server import Address, HttpServer, serve
from mlc_native.server.models import Models
from mlc_native.server.state import ServerState

T = TypeVar("T")
WAIT_S = 60
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


class LiveServer:
    """Started by the constructor; ``stop`` ends server and engines."""

    def __init__(
        self,
        engines: AsyncMLCEngine | Mapping[str, AsyncMLCEngine],
        config: ServerConfig | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        self.state = ServerState(Models.of(engines), config or ServerConfig())
        self.engines = [model.loaded() for model in self.state.models.all]
        address = Address(port=0)
        self._server = HttpServer(self.state, address, limits or HttpLimits(), 30)
        self._listener = address.bind()
        self.url = address.url(self._listener)
        self.address = self._listener.getsockname()[:2]
        self.client = httpx.Client(base_url=self.url, timeout=WAIT_S)
        self._thread = threading.Thread(target=serve, args=(self._server, self._listener))
        self._thread.start()

    @property
    def engine(self) -> AsyncMLCEngine:
        """The only engine, or the first one."""
        return self.engines[0]

    def stop(self) -> None:
        self.client.close()
        self._server.force_exit = self._server.should_exit = True
        self._thread.join(WAIT_S)
        self._listener.close()
        for engine in self.engines:
            engine.terminate()
        assert not self._thread.is_alive()

    def on_loop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine on the server's loop and returns its result."""
        self.client.get("/ping").raise_for_status()  # the loop runs
        loop = self._server.own_loop
        assert loop is not None
        return asyncio.run_coroutine_threadsafe(work(), loop).result(WAIT_S)

    def wait_until_idle(self, timeout_s: float = WAIT_S) -> None:
        """Returns when no request runs; TimeoutError if that takes longer."""

        async def wait() -> None:
            await asyncio.wait_for(self.state.running.wait_until_idle(), timeout_s)

        self.on_loop(wait)

    def metrics(self) -> Any:
        """The engine's metrics, which it takes after it has dealt with earlier aborts."""
        return self.engine._query_metrics().metrics

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return self.client.post(path, json=body, **more)

    def chat(self, **fields: Any) -> Any:
        """The answer to a chat request that must succeed."""
        response = self.post(CHAT, {"messages": USER, **fields})
        assert response.status_code == 200, response.text
        return response.json()

    def stream(self, path: str, body: Any) -> list[Any]:
        """The events of a stream that must succeed, without the last one."""
        response = self.post(path, {**body, "stream": True})
        assert response.status_code == 200, response.text
        return events_of(response.text)

    def limit_send_buffers(self, size: int) -> None:
        """Of connections that are made from now on."""
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=WAIT_S)


def events_of(text: str) -> list[Any]:
    """The JSON of each event; the last event must be [DONE], and comments are left out."""
    events = [event for event in text.split("\n\n") if event and not event.startswith(":")]
    assert all(event.startswith("data: ") for event in events), events
    assert events[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


def raw_request(path: str, body: bytes, *headers: str) -> bytes:
    """A POST as bytes."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error object of an answer."""
    body = response.json()
    assert body.keys() == {"error"}
    error: dict[str, Any] = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    return error
