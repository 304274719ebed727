"""A request that is given up while its grammar compiles: the process that compiles ends with it.

The grammar takes longer than any test, so nothing but giving it up ends its compilation.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from grammar_workers import GrammarWorkers, await_that, slow_grammar

from mlc_native import AsyncMLCEngine, GenerationConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import EngineTerminatedError, QueueFull

pytest.importorskip("xgrammar")

SETTINGS: dict[str, Any] = {"grammar_compile_timeout_s": 3600, "verbose": False}
SLOW: dict[str, Any] = {"prompt": "x", "max_tokens": 5, "response_format": slow_grammar()}
QUICK: dict[str, Any] = {"prompt": "x", "response_format": {"type": "choice", "choice": ["yes"]}}


@pytest.fixture
def workers() -> GrammarWorkers:
    return GrammarWorkers()


@pytest.fixture
def engine(workers: GrammarWorkers) -> Iterator[MLCEngine]:
    with MLCEngine("demo", **SETTINGS) as engine:
        yield engine
    workers.await_none()


def call_in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """The thread, and a list that will have the result or the error of the call."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def expect_serving(engine: MLCEngine) -> None:
    assert engine.completions.create(**QUICK).choices[0].text == "yes"


@pytest.mark.parametrize("by_id", [True, False], ids=["abort", "abort_all"])
def test_an_abort(engine: MLCEngine, workers: GrammarWorkers, by_id: bool) -> None:
    thread, results = call_in_thread(lambda: engine.completions.create(**SLOW, request_id="slow"))
    workers.await_some()
    engine.abort("another")
    assert workers.pids()
    if by_id:
        engine.abort("slow")
    else:
        engine.abort_all()
    thread.join()
    workers.await_none()
    assert results[0].choices[0].finish_reason == "abort"
    assert results[0].choices[0].text == ""
    expect_serving(engine)


def test_another_request_that_waits_for_the_grammar_keeps_it(
    engine: MLCEngine, workers: GrammarWorkers
) -> None:
    calls = []
    for name in ("first", "second"):
        create = partial(engine.completions.create, **SLOW, request_id=name)
        calls.append(call_in_thread(create))
        workers.await_some()  # for the first one, which compiles
    await_that(lambda: len(engine._preparations) == 2)
    engine.abort("second")
    calls[1][0].join()
    workers.await_some()
    assert not calls[0][1]
    engine.abort("first")
    for thread, results in calls:
        thread.join()
        assert results[0].choices[0].finish_reason == "abort"
    workers.await_none()


def press_ctrl_c(workers: GrammarWorkers) -> threading.Thread:
    """A thread that does so once a process compiles."""

    def press() -> None:
        workers.await_some()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def test_ctrl_c(engine: MLCEngine, workers: GrammarWorkers) -> None:
    thread = press_ctrl_c(workers)
    with pytest.raises(KeyboardInterrupt):
        engine.completions.create(**SLOW)
    thread.join()
    workers.await_none()
    expect_serving(engine)


def test_ctrl_c_where_the_caller_steps_the_engine(workers: GrammarWorkers) -> None:
    config = GenerationConfig(response_format=SLOW["response_format"])
    engine = SyncMLCEngine("demo", **SETTINGS)
    thread = press_ctrl_c(workers)
    with pytest.raises(KeyboardInterrupt):
        engine.create_request("r", "x", config)
    thread.join()
    workers.await_none()


@pytest.mark.parametrize("method", ["create", "generate"])
def test_a_cancelled_task(workers: GrammarWorkers, method: str) -> None:
    async def main() -> None:
        async with AsyncMLCEngine("demo", **SETTINGS) as engine:
            if method == "create":
                coroutine: Any = engine.completions.create(**SLOW, stream=True)
            else:
                coroutine = engine.generate(["x"], response_format=SLOW["response_format"])
            task = asyncio.create_task(coroutine)
            await asyncio.to_thread(workers.await_some)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(workers.await_none)
            answer = await engine.completions.create(**QUICK)
            assert answer.choices[0].text == "yes"

    asyncio.run(main())
    workers.await_none()


def test_the_end_of_the_engine(workers: GrammarWorkers) -> None:
    engine = MLCEngine("demo", **SETTINGS)
    thread, results = call_in_thread(lambda: engine.completions.create(**SLOW))
    workers.await_some()
    engine.terminate()
    thread.join()
    assert isinstance(results[0], EngineTerminatedError)
    workers.await_none()


async def wait_for_grammars(engine: AsyncMLCEngine, number: int) -> list[asyncio.Task[Any]]:
    """Calls that all wait for one grammar."""
    tasks = [asyncio.create_task(engine.completions.create(**SLOW)) for _ in range(number)]
    while len(engine._preparations) < number:
        await asyncio.sleep(0.001)
    return tasks


async def cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_texts_do_not_wait_for_grammars(workers: GrammarWorkers) -> None:
    async def main() -> None:
        async with AsyncMLCEngine("demo", **SETTINGS) as engine:
            tasks = await wait_for_grammars(engine, 40)
            answer = await engine.completions.create(prompt="x", max_tokens=3)
            assert answer.choices[0].finish_reason in ("stop", "length")
            assert not any(task.done() for task in tasks)
            await cancel(tasks)

    asyncio.run(main())
    workers.await_none()


def test_too_many_that_wait_are_refused(workers: GrammarWorkers) -> None:
    async def main() -> None:
        async with AsyncMLCEngine("demo", max_grammar_queue_length=2, **SETTINGS) as engine:
            await engine.completions.create(**QUICK)
            tasks = await wait_for_grammars(engine, 2)
            other = {"type": "choice", "choice": ["no"]}
            with pytest.raises(QueueFull, match='"max_grammar_queue_length" is 2') as refused:
                await engine.completions.create(prompt="x", response_format=other)
            assert refused.value.field == "max_grammar_queue_length"
            assert (refused.value.queue_length, refused.value.max_queue_length) == (2, 2)
            assert (refused.value.status, refused.value.code) == (429, "queue_full")
            await engine.completions.create(**QUICK)  # it is in the cache
            await cancel(tasks)

    asyncio.run(main())
    workers.await_none()
