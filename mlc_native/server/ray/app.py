"""build_app: a model in replicas on Ray Serve, with routing by prefix.

A replica is an engine with the ASGI app of ``create_app``. The front takes requests and passes each
to a replica: to the one with the longest cached prefix unless that one is much busier than another.
Ray starts and ends replicas by the number of requests, replaces those that die or are not healthy,
and lets the requests of a replica end before it ends.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from mlc_native.protocol.validation import validated
from mlc_native.serve.async_engine import AsyncMLCEngine
from mlc_native.serve.model_setup import Mode
from mlc_native.server.app import app_of
from mlc_native.server.config import ServerConfig
from mlc_native.server.models import Models, served_as
from mlc_native.server.ray.forwarding import Forwarded, Front, answers
from mlc_native.server.ray.prefixes import Key, PrefixTable, choose
from mlc_native.server.state import ServerState

# A replica with the prefix may have so many requests more than the one with the fewest.
SLACK = 8
SHUTDOWN_TIMEOUT_S = 60.0


class Settings(BaseModel):
    """What is served, by how many replicas. ``serve run`` takes them as ``name=value``.

    Attributes:
        model: model folder, "demo" or hub id; on every machine that has replicas.
        device: as for AsyncMLCEngine.
        model_lib: as for AsyncMLCEngine.
        mode: as for AsyncMLCEngine.
        engine_config: fields of EngineConfig.
        server_config: fields of ServerConfig.
        served_model_name: the model's name in requests; default: its own.
        min_replicas: replicas at any time.
        max_replicas: replicas at most.
        target_ongoing_requests: requests per replica that more replicas are started for.
        max_ongoing_requests: requests that a replica gets at most; others wait in the front.
        num_cpus: that Ray reserves for a replica.
        num_gpus: that Ray reserves for a replica.
        num_fronts: processes that take requests.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str
    device: str = "auto"
    model_lib: str | None = None
    mode: Mode = "server"
    engine_config: dict[str, Any] = Field(default_factory=dict)
    server_config: dict[str, Any] = Field(default_factory=dict)
    served_model_name: str | None = None
    min_replicas: int = Field(default=1, ge=1)
    max_replicas: int = Field(default=1, ge=1)
    target_ongoing_requests: float = Field(default=16, gt=0)
    max_ongoing_requests: int = Field(default=256, ge=1)
    num_cpus: float = Field(default=1, ge=0)
    num_gpus: float = Field(default=0, ge=0)
    num_fronts: int = Field(default=1, ge=1)


class PrefixRouter(RequestRouter):
    """Routes a Forwarded request to the replica with the longest cached prefix."""

    def initialize_state(self, **_: Any) -> None:
        """Ray's constructor of subclasses."""
        self._table = PrefixTable()
        self._running: dict[str, Any] = {}  # request -> replica; single operations only

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The replicas by preference, in ranks: the prefix, then the fewest requests."""
        by_id = {replica.replica_id: replica for replica in candidate_replicas}
        running = Counter(list(self._running.values()))
        loads = {replica_id: running[replica_id] for replica_id in by_id}
        best = choose(self._table.match(_keys(pending_request)), loads, SLACK)
        first = [] if best is None else [[by_id[best]]]
        others = [id_ for id_ in by_id if id_ != best]
        others.sort(key=lambda id_: (loads[id_], random.random()))
        return [*first, *([by_id[id_]] for id_ in others)]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: Any, result: Any
    ) -> None:
        """The replica will have the prompt in its cache."""
        self._table.add(_keys(pending_request), replica_id)
        self._running[pending_request.metadata.internal_request_id] = replica_id

    def on_request_completed(self, replica_id: Any, internal_request_id: str) -> None:
        """Any thread."""
        self._running.pop(internal_request_id, None)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """A replica that has ended has no cache any more."""
        super().update_replicas(replicas)
        self._table.keep({replica.replica_id for replica in replicas})


def _keys(pending_request: PendingRequest | None) -> tuple[Key, ...]:
    args = () if pending_request is None else pending_request.args
    return args[0].keys if args and isinstance(args[0], Forwarded) else ()


class Replica:
    """An engine and its app."""

    def __init__(self, settings: Settings) -> None:
        self._engine = AsyncMLCEngine(
            settings.model,
            settings.device,
            model_lib=settings.model_lib,
            mode=settings.mode,
            engine_config=settings.engine_config,
        )
        names = () if settings.served_model_name is None else (settings.served_model_name,)
        model = served_as(settings.model, names)
        model.engine = self._engine
        self._state = ServerState(Models([model]), ServerConfig(**settings.server_config))
        self._app = app_of(self._state)

    async def answer(self, request: Forwarded) -> AsyncGenerator[list[Message], None]:
        """The messages of an answer."""
        async for messages in answers(self._app, request):
            yield messages

    async def check_health(self) -> None:
        """Ray replaces a replica for which this raises."""
        problem = await self._state.health.problem(self._engine)
        if problem is not None:
            raise RuntimeError(problem)

    def __del__(self) -> None:
        """Ray's end of a replica, after its requests."""
        if hasattr(self, "_engine"):
            self._engine.terminate()


async def _forward(scope: Scope, receive: Receive, send: Send) -> None:
    await serve.get_replica_context().servable_object.front(scope, receive, send)


def _front_app() -> Starlette:
    app = Starlette()
    app.router.default = _forward
    return app


class FrontDeployment:
    """The front in a process of its own."""

    def __init__(self, replicas: Any, max_body_bytes: int) -> None:
        stream = replicas.options(stream=True).answer
        self.front = Front(stream.remote, max_body_bytes)


def build_app(settings: Settings | Mapping[str, Any]) -> serve.Application:
    """The application for ``serve.run`` and for ``serve run mlc_native.server.ray:build_app``.

    Raises:
        InvalidRequest: a setting does not exist or has a wrong type.
        InvalidConfig: a setting of the server is wrong.
    """
    if not isinstance(settings, Settings):
        settings = validated(Settings, dict(settings))
    config = ServerConfig(**settings.server_config)
    replicas = serve.deployment(Replica).options(
        name="Replica",
        autoscaling_config=AutoscalingConfig(
            min_replicas=settings.min_replicas,
            max_replicas=max(settings.min_replicas, settings.max_replicas),
            target_ongoing_requests=settings.target_ongoing_requests,
        ),
        max_ongoing_requests=settings.max_ongoing_requests,
        ray_actor_options={"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus},
        request_router_config=RequestRouterConfig(request_router_class=PrefixRouter),
        graceful_shutdown_timeout_s=SHUTDOWN_TIMEOUT_S,
    )
    front = serve.deployment(serve.ingress(_front_app)(FrontDeployment)).options(
        name="Front",
        num_replicas=settings.num_fronts,
        max_ongoing_requests=1 << 20,  # the replicas have the limits
        ray_actor_options={"num_cpus": 0},
    )
    return front.bind(replicas.bind(settings), config.max_body_bytes)
