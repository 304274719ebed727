"""Fixtures of the server's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from live_server import LiveServer

from mlc_native import AsyncMLCEngine, EngineConfig
from mlc_native.server import ServerConfig
from mlc_native.server.http_protocol import HttpLimits

Serve = Callable[..., LiveServer]


@pytest.fixture
def make_engine(make_model: Callable[..., str], fake_lib: str) -> Callable[..., AsyncMLCEngine]:
    """make_engine(engine_config, **fake): an engine on the fake model."""

    def make(engine_config: EngineConfig | None = None, **fake: Any) -> AsyncMLCEngine:
        return AsyncMLCEngine(
            make_model(**fake), model_lib=fake_lib, mode="server", engine_config=engine_config
        )

    return make


@pytest.fixture
def serve(make_engine: Callable[..., AsyncMLCEngine]) -> Iterator[Serve]:
    """serve(config, limits, engine_config, **fake): a server with the model "fake"."""
    servers: list[LiveServer] = []

    def make(
        config: ServerConfig | None = None,
        limits: HttpLimits | None = None,
        engine_config: EngineConfig | None = None,
        **fake: Any,
    ) -> LiveServer:
        servers.append(LiveServer({"fake": make_engine(engine_config, **fake)}, config, limits))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def demo_server() -> Iterator[LiveServer]:
    """A server with the demo model."""
    server = LiveServer({"demo": AsyncMLCEngine("demo", "cpu", mode="server")})
    yield server
    server.stop()
