"""WorkThreads: what would hold up an event loop runs here. Owned by an engine; any thread.

Texts, grammars and images have pools of their own, because a grammar may wait for seconds until its
turn to compile comes, an image takes long, and a text never waits.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from mlc_native.errors import EngineTerminatedError
from mlc_native.serve.engine_state import TERMINATED

T = TypeVar("T")
MAX_TEXT_THREADS = 16
# More than the largest max_grammar_queue_length, so that a grammar of the cache finds a thread.
MAX_GRAMMAR_THREADS = 216

# Images are encoded one at a time; others are decoded meanwhile, each of which takes memory.
MAX_IMAGE_THREADS = 4


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


async def outcome_of(work: Future[T]) -> T:
    """What work on a thread returns or raises. Cancelling it cancels work that has not begun.

    It does the same as ``asyncio.wrap_future``, and the event loop may be closed before the work
    ends. asyncio would log an error if that happened between its look at the loop and its call.
    """
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    def hand_over(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nothing waits any more
            loop.call_soon_threadsafe(tell)

    work.add_done_callback(hand_over)
    try:
        await ended
        return work.result()
    except asyncio.CancelledError:
        work.cancel()
        raise


TEXTS, GRAMMARS, IMAGES = 0, 1, 2


def _new_pools() -> tuple[ThreadPoolExecutor, ...]:
    return (
        ThreadPoolExecutor(MAX_TEXT_THREADS, thread_name_prefix="mlc-native-text"),
        ThreadPoolExecutor(MAX_GRAMMAR_THREADS, thread_name_prefix="mlc-native-grammar"),
        ThreadPoolExecutor(MAX_IMAGE_THREADS, thread_name_prefix="mlc-native-image"),
    )


class WorkThreads:
    """Threads that start when they are needed and end with ``close``."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closed = False
        self._pools = _new_pools()

    async def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Returns ``function(*args, **kwargs)``, computed on one of the threads.

        Raises:
            EngineTerminatedError: the threads were closed.
        """
        return await self._run_on(TEXTS, partial(function, *args, **kwargs))

    async def run_grammar(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """``run`` for what may wait until a grammar is compiled."""
        return await self._run_on(GRAMMARS, partial(function, *args, **kwargs))

    async def run_images(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """``run`` for what encodes images."""
        return await self._run_on(IMAGES, partial(function, *args, **kwargs))

    async def _run_on(self, pool: int, call: Callable[[], T]) -> T:
        while True:
            pools = self._pools
            try:
                work = pools[pool].submit(call)
            except RuntimeError:  # the pool is closed, or the system has no thread left
                if self._closed:
                    raise EngineTerminatedError(TERMINATED) from None
                if pools is self._pools:
                    raise
            else:
                return await outcome_of(work)

    def renew(self) -> None:
        """Lets other threads do what comes from now on; the present ones end after their work.

        A thread keeps a cache of words for each tokenizer that it has encoded with, also after the
        tokenizer is gone.
        """
        old, self._pools = self._pools, _new_pools()
        self._shut_down(old)
        if self._closed:
            self._shut_down(self._pools)

    async def run_long(self, function: Callable[[], T]) -> T:
        """``run`` for what may take hours: it has a thread of its own."""
        return await outcome_of(run_on_thread(function))

    def close(self) -> None:
        """Lets the threads end after the work that was handed to them."""
        self._closed = True
        self._shut_down(self._pools)

    def _shut_down(self, pools: tuple[ThreadPoolExecutor, ...]) -> None:
        if os.getpid() != self._pid:
            return  # of a fork, which has no such threads, but perhaps their locks
        for pool in pools:
            pool.shutdown(wait=False)
