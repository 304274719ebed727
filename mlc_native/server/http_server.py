"""Runs the app under uvicorn: limits of connections and headers, and an end without cut answers.

The first SIGTERM or SIGINT starts the drain: ``/ready`` turns 503, new requests are refused,
running ones end. The second one ends the running ones, too; the third one cuts every connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from mlc_native.errors import invalid_config
from mlc_native.server.app import app_of
from mlc_native.server.http_protocol import HttpLimits, limited_protocol
from mlc_native.server.state import ServerState

logger = logging.getLogger(__name__)

LAST_BYTES_S = 5  # for answers on their way to clients, after the last request has ended
KEEP_ALIVE_S = 75
BACKLOG = 2048


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where the server listens: host and port, or a unix socket; and how it is reached.

    Attributes:
        root_path: what a reverse proxy has taken from the front of the paths.
        ssl_keyfile, ssl_certfile, ssl_ca_certs: files for TLS.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    uds: str | None = None
    root_path: str = ""
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_ca_certs: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise invalid_config("port", f'"port" must be in [0, 65535], got {self.port}')
        for name in ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs"):
            file = getattr(self, name)
            if file is not None and self.ssl_certfile is None:
                raise invalid_config(name, f'"{name}" needs "ssl_certfile"')
            if file is not None and not Path(file).is_file():
                raise invalid_config(name, f'"{name}": there is no file "{file}"')

    def bind(self) -> socket.socket:
        """The listening socket. Raises OSError."""
        try:
            return self._bind()
        except OSError as error:
            place = self.uds if self.uds is not None else f"{self.host}:{self.port}"
            raise OSError(error.errno, error.strerror, place) from None

    def _bind(self) -> socket.socket:
        if self.uds is not None:
            if Path(self.uds).is_socket():
                _remove_left_socket(self.uds)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(self.uds)
            listener.listen(BACKLOG)
            return listener
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        return socket.create_server((self.host, self.port), family=family, backlog=BACKLOG)

    def url(self, listener: socket.socket) -> str:
        """The address of a listening socket, as a client without a proxy types it."""
        if self.uds is not None:
            return f"unix:{self.uds}"
        scheme = "https" if self.ssl_certfile else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{listener.getsockname()[1]}"  # a proxy has the root_path


def _remove_left_socket(path: str) -> None:
    """Removes what a server that has ended has left. Raises OSError if one listens there."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
            return
        except (TimeoutError, BlockingIOError):
            pass  # one that is busy
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


class HttpServer(uvicorn.Server):
    """A uvicorn server that drains before it ends."""

    def __init__(
        self, state: ServerState, address: Address, limits: HttpLimits, shutdown_timeout_s: float
    ) -> None:
        config = uvicorn.Config(
            app_of(state),
            loop="uvloop",
            http=limited_protocol(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            root_path=address.root_path,
            ssl_keyfile=address.ssl_keyfile,
            ssl_certfile=address.ssl_certfile,
            ssl_ca_certs=address.ssl_ca_certs,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=LAST_BYTES_S,
        )
        if not shutdown_timeout_s >= 0:
            raise invalid_config(
                "shutdown_timeout",
                f'"shutdown_timeout" must be 0 or more, got {shutdown_timeout_s}',
            )
        super().__init__(config)
        try:
            config.load()
        except ssl.SSLError as error:
            raise invalid_config(
                "ssl_certfile", f"the certificate and the key cannot be used: {error}"
            ) from None
        self._state = state
        self._shutdown_timeout_s = shutdown_timeout_s
        self._drain: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._num_signals = 0
        self.own_loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, on the loop that signals are handed to."""
        self.own_loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to end has arrived. uvicorn's own would not let requests end."""
        if self.own_loop is None:
            self.should_exit = True
        else:
            self.own_loop.call_soon_threadsafe(self._on_signal)

    def _on_signal(self) -> None:
        self._num_signals += 1
        if self._num_signals == 1:
            self._state.running.draining = True
            logger.info("the server ends; requests that still run: %d", self._state.running.count)
            self._drain = asyncio.ensure_future(self._drain_requests())
        elif self._num_signals == 2:
            self._ending = asyncio.ensure_future(self._state.end_requests())
        else:
            self.force_exit = self.should_exit = True

    async def _drain_requests(self) -> None:
        running = self._state.running
        try:
            await asyncio.wait_for(running.wait_until_idle(), self._shutdown_timeout_s)
        except TimeoutError:
            logger.warning("%d requests are ended", running.count)
            await self._state.end_requests()
        self.should_exit = True


def serve(server: HttpServer, listener: socket.socket) -> None:
    """Serves until a signal has ended the server."""
    server.run(sockets=[listener])
