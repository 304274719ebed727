"""WorkThreads: what would hold up an event loop runs here. Owned by an engine; any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from mlc_native.errors import EngineTerminatedError
from mlc_native.serve.engine_state import TERMINATED

T = TypeVar("T")
MAX_THREADS = 32  # as many grammars may be compiled at a time


def run_on_thread(function: Callable[[], T]) -> Future[T]:
    """Runs a function on a thread of its own. The future cannot be cancelled."""
    done: Future[T] = Future()

    def call() -> None:
        try:
            done.set_result(function())
        except BaseException as error:
            done.set_exception(error)

    done.set_running_or_notify_cancel()
    threading.Thread(target=call, name="mlc-native-long-work", daemon=True).start()
    return done


class WorkThreads:
    """Threads that start when they are needed and end with ``close``."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="mlc-native-work")

    async def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Returns ``function(*args, **kwargs)``, computed on one of the threads.

        Raises:
            EngineTerminatedError: the threads were closed.
        """
        call = partial(function, *args, **kwargs)
        try:
            future = asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError:
            raise EngineTerminatedError(TERMINATED) from None
        return await future

    async def run_long(self, function: Callable[[], T]) -> T:
        """``run`` for what may take hours: it has a thread of its own."""
        return await asyncio.wrap_future(run_on_thread(function))

    def close(self) -> None:
        """Lets the threads end after the work that was handed to them."""
        self._pool.shutdown(wait=False)
