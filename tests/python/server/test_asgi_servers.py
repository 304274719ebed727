"""The app on other servers than uvicorn: plain, streamed, and with a client that goes away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from live_server import CHAT, USER, WAIT_S, events_of

from mlc_native import AsyncMLCEngine
from mlc_native.server import create_app

ANSWER = "An answer of several tokens."


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@asynccontextmanager
async def on_hypercorn(app: Any, port: int) -> AsyncIterator[None]:
    asyncio_server = pytest.importorskip("hypercorn.asyncio")
    config = pytest.importorskip("hypercorn.config").Config()
    config.bind = [f"127.0.0.1:{port}"]
    stop = asyncio.Event()
    serving = asyncio.ensure_future(asyncio_server.serve(app, config, shutdown_trigger=stop.wait))
    try:
        yield
    finally:
        stop.set()
        await serving


@asynccontextmanager
async def on_granian(app: Any, port: int) -> AsyncIterator[None]:
    embed = pytest.importorskip("granian.server.embed")
    interface = pytest.importorskip("granian.constants").Interfaces.ASGINL
    server = embed.Server(app, port=port, interface=interface)
    serving = asyncio.ensure_future(server.serve())
    try:
        yield
    finally:
        server.stop()
        await serving


@asynccontextmanager
async def running(engine: AsyncMLCEngine) -> AsyncIterator[None]:
    try:
        yield
    finally:
        engine.terminate()


def client_of(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S)


async def answered(client: httpx.AsyncClient) -> None:
    """Returns when the server listens."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                assert (await client.get("/ready")).status_code == 200
                return
            except httpx.ConnectError:
                await asyncio.sleep(0.02)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await is_so():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("serve_on", [on_hypercorn, on_granian])
async def test_answers(make_engine: Any, serve_on: Any) -> None:
    port, engine = free_port(), make_engine(answer=ANSWER)
    app = create_app(engine)
    async with running(engine), serve_on(app, port), client_of(port) as client:
        await answered(client)
        plain = (await client.post(CHAT, json={"messages": USER})).json()
        assert plain["choices"][0]["message"]["content"] == ANSWER
        response = await client.post(CHAT, json={"messages": USER, "stream": True})
        parts = [event["choices"][0]["delta"].get("content") for event in events_of(response.text)]
        assert "".join(part or "" for part in parts) == ANSWER
        refused = await client.post(CHAT, json={"messages": []})
        assert refused.status_code == 400
        assert refused.headers["x-request-id"]


@pytest.mark.parametrize("serve_on", [on_hypercorn, on_granian])
async def test_a_client_that_goes_away(make_engine: Any, serve_on: Any) -> None:
    port, engine = free_port(), make_engine(us_per_step=1000)
    app = create_app(engine)
    body = {"messages": USER, "stream": True, "ignore_eos": True, "max_tokens": 4000}

    async def is_idle() -> bool:
        running: int = app.state.server.running.count
        return running == 0

    async with running(engine), serve_on(app, port), client_of(port) as client:
        await answered(client)
        async with client.stream("POST", CHAT, json=body) as response:
            await anext(response.aiter_lines())
            assert not await is_idle()
        await until(is_idle)
