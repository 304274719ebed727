"""The parts of an engine that outlive its object or that several kinds of engines share.

EngineState is what streams and traces hold instead of the engine. ForkGuard makes engines unusable
in a forked child. shut_down ends a C++ engine and its threads; it runs when the engine object is
terminated, collected or left at the exit of the interpreter. Any thread may call all of it.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from mlc_native import _core
from mlc_native._stream_bridge import StreamBridge
from mlc_native.errors import EngineTerminatedError
from mlc_native.serve.echo_engine import EchoEngine
from mlc_native.serve.event_trace_recorder import EventTraceRecorder
from mlc_native.serve.load_report import LoadReport
from mlc_native.serve.preparations import Preparations

TERMINATED = "the engine was terminated"
FORKED = (
    "this process was forked from the one that owns the engine: create an engine here, "
    "or start processes with the spawn method"
)


class EngineState:
    """What streams and traces share: the bridge to the consumers and the trace recorder.

    One per engine; never holds the engine object.
    """

    def __init__(self, trace_recorder: EventTraceRecorder | None, bridge: StreamBridge) -> None:
        self.trace_recorder = trace_recorder
        self.bridge = bridge

    def record_event(self, request_id: str, event: str) -> None:
        """Adds a trace event; nothing when tracing is off."""
        if self.trace_recorder is not None:
            self.trace_recorder.add_event(request_id, event)

    def get_request_stream_callback(self) -> Callable[[Any], None]:
        """What the engine calls with each batch of outputs."""
        callback: Callable[[Any], None] = self.bridge
        return callback


class ForkGuard:
    """Marks engines as unusable in a child process, where their threads do not exist."""

    def __init__(self) -> None:
        self._engines: weakref.WeakSet[Any] = weakref.WeakSet()
        os.register_at_fork(after_in_child=self._after_fork)

    def watch(self, engine: Any) -> None:
        """From now on ``engine._forget_after_fork()`` runs in forked children."""
        self._engines.add(engine)

    def _after_fork(self) -> None:
        for engine in list(self._engines):
            engine._forget_after_fork()


FORK_GUARD = ForkGuard()


def keep_forever(core: Any) -> None:
    """Never destroys an engine inherited through fork: that would wait for threads it lacks."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(core))


def shut_down(
    core: _core.ThreadedEngine | EchoEngine,
    bridge: StreamBridge,
    threads: list[Any],
    preparations: Preparations,
    loads: list[LoadReport],
) -> None:
    """Ends all requests, a load that runs and both loops, and joins the threads."""
    preparations.abort_all()
    core.exit_background_loop()
    for report in list(loads):  # after the exit, which refuses further ones
        report.stop(EngineTerminatedError(TERMINATED))
    for thread in threads:
        # Not from a thread of its own: a callback may drop the last reference to the engine.
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join()
    bridge.close(TERMINATED)
