"""ServerState: what the endpoints of one app share. Belongs to the event loop of the app."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mlc_native.serve.work_threads import outcome_of
from mlc_native.server.config import ServerConfig
from mlc_native.server.fields import IgnoredFields
from mlc_native.server.health import Health
from mlc_native.server.models import Models
from mlc_native.server.prometheus import RequestMetrics
from mlc_native.server.running import Running

ResultT = TypeVar("ResultT")
NUM_THREADS = 2


class ServerState:
    """Models, settings, running requests, metrics, and threads for work that takes a while."""

    def __init__(self, models: Models, config: ServerConfig) -> None:
        self.models = models
        self.config = config
        self.running = Running(config.max_concurrent_requests)
        self.ignored_fields = IgnoredFields()
        self.metrics = {model.name: RequestMetrics() for model in models.all}
        self.health = Health(config.stuck_step_timeout_s)
        self.pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="mlc-native-server")

    async def on_thread(self, work: Callable[[], ResultT]) -> ResultT:
        """Runs work that would block the event loop."""
        return await outcome_of(self.pool.submit(work))

    async def end_requests(self) -> None:
        """Ends all running requests: each gets an error instead of the rest of its answer."""
        for model in self.models.all:
            if model.engine is not None:
                await model.engine.abort_all()
