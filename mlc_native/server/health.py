"""Health: whether the engines make progress.

A probe asks an engine for its metrics, which it answers between two steps, also when it is idle.
Each look at the health starts a probe unless one is out, so an engine that is stuck in a step is
found by the first look that comes ``stuck_after_s`` later. Nothing runs between two looks.
"""

from __future__ import annotations

import asyncio

from mlc_native.errors import MLCNativeError, ModelNotLoaded
from mlc_native.serve.async_engine import AsyncMLCEngine
from mlc_native.serve.metrics import EngineMetrics

_QUICK_S = 0.5  # what a look waits for an answer


class _Probe:
    def __init__(self, engine: AsyncMLCEngine) -> None:
        self.since = asyncio.get_running_loop().time()
        self.task = asyncio.ensure_future(engine.metrics())
        self.task.add_done_callback(_see_error)


def _see_error(task: asyncio.Task[EngineMetrics]) -> None:
    """Takes the error of a probe whose caller has left, which asyncio would log otherwise."""
    if not task.cancelled():
        task.exception()


class Health:
    """The probes that are out, by engine."""

    def __init__(self, stuck_after_s: float) -> None:
        self._stuck_after_s = stuck_after_s
        self._probes: dict[int, _Probe] = {}

    async def problem(self, engine: AsyncMLCEngine) -> str | None:
        """Why the engine is not healthy; None when it is."""
        probe = self._probe(engine)
        try:
            await asyncio.wait_for(asyncio.shield(probe.task), _QUICK_S)
        except TimeoutError:
            waiting_s = asyncio.get_running_loop().time() - probe.since
            if waiting_s < self._stuck_after_s:
                return None
            return f"a step has been running for more than {self._stuck_after_s:g} seconds"
        except ModelNotLoaded:
            return None
        except MLCNativeError:
            return "the engine is not running"
        return None

    async def metrics(self, engine: AsyncMLCEngine) -> EngineMetrics:
        """The engine's metrics, which all that ask at the same time share."""
        return await asyncio.shield(self._probe(engine).task)

    def _probe(self, engine: AsyncMLCEngine) -> _Probe:
        probe = self._probes.get(id(engine))
        if probe is None or probe.task.done():
            probe = self._probes[id(engine)] = _Probe(engine)
        return probe
