"""MLC-LLM's ``/debug/*``: the trace, the metrics and a reset of an engine. Off by default."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from mlc_native.errors import invalid_request
from mlc_native.serve.async_engine import AsyncMLCEngine
from mlc_native.server.body import read_json
from mlc_native.server.gate import send_json
from mlc_native.server.state import ServerState

NAMES = ("dump_event_trace", "dump_engine_metrics", "reset_engine")


class Debug:
    """POST /debug/NAME with the name of a model, as an ASGI app."""

    def __init__(self, state: ServerState, name: str) -> None:
        self._state = state
        self._answer = {
            "dump_event_trace": self._trace,
            "dump_engine_metrics": self._metrics,
            "reset_engine": self._reset,
        }[name]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state
        body = await read_json(scope, receive, state.config, state.pool)
        engine = state.models.find(body.get("model")).model.loaded()
        await send_json(send, 200, await self._answer(engine))

    async def _trace(self, engine: AsyncMLCEngine) -> bytes:
        recorder = engine.state.trace_recorder
        if recorder is None:
            raise invalid_request("model", "no events are recorded: start with --enable-tracing")
        return (await self._state.on_thread(recorder.dump_json)).encode()

    async def _metrics(self, engine: AsyncMLCEngine) -> object:
        return (await self._state.health.metrics(engine)).metrics

    async def _reset(self, engine: AsyncMLCEngine) -> object:
        await self._state.on_thread(engine.reset)
        return {}
