"""The endpoints about the server itself: models, health, version, metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import mlc_native
from mlc_native.server.errors import HttpError
from mlc_native.server.models import loading_error
from mlc_native.server.openapi import description
from mlc_native.server.prometheus import metrics_text
from mlc_native.server.running import draining_error
from mlc_native.server.state import ServerState


class Status:
    """Starlette endpoints on the state of a server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def models(self, _request: Request) -> Response:
        """GET /v1/models."""
        data = [each for model in self._state.models.all for each in model.describe()]
        return JSONResponse({"object": "list", "data": data})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/{name}."""
        name = request.path_params["name"]
        model = self._state.models.find(name).model
        described = {each["id"]: each for each in model.describe()}
        return JSONResponse(described.get(name) or described[model.name])

    async def health(self, _request: Request) -> Response:
        """GET /health: 503 until all models have been loaded, as scripts that wait for vLLM or
        llama-server expect it, and when an engine has ended or is stuck in a step."""
        for model in self._state.models.all:
            if model.engine is None:
                raise loading_error()
            if model.max_model_len is None:  # it is loaded again
                continue
            problem = await self._state.health.problem(model.engine)
            if problem is not None:
                raise HttpError(503, problem, code="unhealthy")
        return JSONResponse({"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        """GET /ready: 503 while a model loads and while the server ends."""
        if self._state.running.draining:
            raise draining_error()
        if not self._state.models.is_loaded:
            raise loading_error()
        return JSONResponse({"status": "ok"})

    async def ping(self, _request: Request) -> Response:
        """GET or POST /ping: the server runs."""
        return Response(status_code=200)

    async def version(self, _request: Request) -> Response:
        """GET /version."""
        return JSONResponse({"version": mlc_native.__version__})

    async def openapi(self, _request: Request) -> Response:
        """GET /openapi.json."""
        return JSONResponse(await self._state.on_thread(description))

    async def metrics(self, request: Request) -> Response:
        """GET /metrics, in the format of Prometheus or of OpenMetrics."""
        text, content_type = await metrics_text(self._state, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})
