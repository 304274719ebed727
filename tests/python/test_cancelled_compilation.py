"""A request that is given up while its grammar compiles: the process that compiles ends with it.

The grammar takes longer than any test, so nothing but giving it up ends its compilation.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlc_native import AsyncMLCEngine, GenerationConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import EngineTerminatedError

pytest.importorskip("xgrammar")

WORKER = "mlc_native_gram"  # the name of the process, which the kernel cuts
PATIENCE_S = 200  # the limit of a test ends it before
SETTINGS = {"grammar_compile_timeout_s": 3600, "verbose": False}


def slow_grammar() -> dict[str, Any]:
    """Alternatives that all share their first half."""
    rules = ["root ::= r0"]
    for i in range(4000):
        rules.append(f'r{i} ::= [a-z]* r{(i * 7 + 1) % 4000} | [a-y]* r{(i * 5 + 3) % 4000} | ""')
    return {"type": "grammar", "grammar": "\n".join(rules)}


SLOW: dict[str, Any] = {"prompt": "x", "max_tokens": 5, "response_format": slow_grammar()}
QUICK: dict[str, Any] = {"prompt": "x", "response_format": {"type": "choice", "choice": ["yes"]}}


def workers() -> list[int]:
    """The processes of this one that compile grammars."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended
            continue
        state, parent = fields.split()[:2]
        if name == WORKER and int(parent) == os.getpid() and state != "Z":
            found.append(int(stat.parent.name))
    return found


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def await_worker() -> None:
    await_that(lambda: len(workers()) > 0)


def await_no_worker() -> None:
    await_that(lambda: not workers())


@pytest.fixture
def engine() -> Iterator[MLCEngine]:
    with MLCEngine("demo", **SETTINGS) as engine:
        yield engine
    await_no_worker()


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
def test_an_abort(engine: MLCEngine, by_id: bool) -> None:
    thread, results = call_in_thread(lambda: engine.completions.create(**SLOW, request_id="slow"))
    await_worker()
    engine.abort("another")
    assert workers()
    if by_id:
        engine.abort("slow")
    else:
        engine.abort_all()
    thread.join()
    await_no_worker()
    assert results[0].choices[0].finish_reason == "abort"
    assert results[0].choices[0].text == ""
    expect_serving(engine)


def test_another_request_that_waits_for_the_grammar_keeps_it(engine: MLCEngine) -> None:
    calls = [
        call_in_thread(lambda name=name: engine.completions.create(**SLOW, request_id=name))
        for name in ("first", "second")
    ]
    await_worker()
    await_that(lambda: len(engine._preparations) == 2)
    engine.abort("second")
    calls[1][0].join()
    await_worker()
    assert not calls[0][1]
    engine.abort("first")
    for thread, results in calls:
        thread.join()
        assert results[0].choices[0].finish_reason == "abort"
    await_no_worker()


def test_ctrl_c(engine: MLCEngine) -> None:
    def interrupt() -> None:
        await_worker()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        engine.completions.create(**SLOW)
    thread.join()
    await_no_worker()
    expect_serving(engine)


def test_ctrl_c_where_the_caller_steps_the_engine() -> None:
    config = GenerationConfig(response_format=SLOW["response_format"])
    engine = SyncMLCEngine("demo", **SETTINGS)
    thread = threading.Thread(target=lambda: (await_worker(), os.kill(os.getpid(), signal.SIGINT)))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        engine.create_request("r", "x", config)
    thread.join()
    await_no_worker()


@pytest.mark.parametrize("method", ["create", "generate"])
def test_a_cancelled_task(method: str) -> None:
    async def main() -> None:
        async with AsyncMLCEngine("demo", **SETTINGS) as engine:
            if method == "create":
                coroutine: Any = engine.completions.create(**SLOW, stream=True)
            else:
                coroutine = engine.generate(["x"], response_format=SLOW["response_format"])
            task = asyncio.create_task(coroutine)
            await asyncio.to_thread(await_worker)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(await_no_worker)
            answer = await engine.completions.create(**QUICK)
            assert answer.choices[0].text == "yes"

    asyncio.run(main())
    await_no_worker()


def test_the_end_of_the_engine() -> None:
    engine = MLCEngine("demo", **SETTINGS)
    thread, results = call_in_thread(lambda: engine.completions.create(**SLOW))
    await_worker()
    engine.terminate()
    thread.join()
    assert isinstance(results[0], EngineTerminatedError)
    await_no_worker()
