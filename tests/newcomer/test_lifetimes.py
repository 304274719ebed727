"""Newcomer tasks: cancel, time out, use threads and processes."""

from __future__ import annotations

import asyncio
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import mlc_native
from mlc_native import AsyncMLCEngine, MLCEngine

LONG: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me a story."}],
    "max_tokens": 2000,
    "ignore_eos": True,
}


def question(i: int) -> list[Any]:
    return [{"role": "user", "content": f"What is {i} + 2?"}]


def test_break_out_of_a_stream(engine: MLCEngine) -> None:
    """Who has read enough breaks; the request ends."""
    for _chunk in engine.chat.completions.create(stream=True, **LONG):
        break
    answer = engine.chat.completions.create(messages=question(3), temperature=0)
    assert "5" in answer.choices[0].message.content


def test_stream_as_context_manager(engine: MLCEngine) -> None:
    """OpenAI's streams close at the end of `with`."""
    with engine.chat.completions.create(stream=True, **LONG) as stream:
        next(iter(stream))
    assert list(stream) == []


async def test_stream_as_async_context_manager(async_engine: AsyncMLCEngine) -> None:
    """The same with `async with`."""
    async with await async_engine.chat.completions.create(stream=True, **LONG) as stream:
        async for _chunk in stream:
            break
    assert [chunk async for chunk in stream] == []


async def test_cancel_a_task(async_engine: AsyncMLCEngine) -> None:
    """A cancelled task ends its request."""
    task = asyncio.create_task(async_engine.chat.completions.create(**LONG))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    answer = await async_engine.chat.completions.create(messages=question(3), temperature=0)
    assert "5" in answer.choices[0].message.content


async def test_wait_for(async_engine: AsyncMLCEngine) -> None:
    """asyncio's timeout."""
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(async_engine.chat.completions.create(**LONG), 0.001)


def test_timeout_of_a_request(engine: MLCEngine) -> None:
    """OpenAI's `timeout` has its unit in its name; an answer that takes longer is cut."""
    with pytest.raises(TypeError, match="timeout_s"):
        engine.chat.completions.create(timeout=0.002, **LONG)
    answer = engine.chat.completions.create(timeout_s=0.002, **LONG)
    assert answer.choices[0].finish_reason == "timeout"
    assert answer.usage.completion_tokens < 2000


def test_threads_share_an_engine(engine: MLCEngine) -> None:
    """A pool of threads, as in front of any blocking call."""

    def ask(i: int) -> str:
        answer = engine.chat.completions.create(messages=question(i), temperature=0)
        return answer.choices[0].message.content or ""

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [ask(i) for i in range(4)]


def ask_in_a_process(i: int) -> str:
    with MLCEngine("demo") as engine:
        answer = engine.chat.completions.create(messages=question(i), temperature=0)
        return answer.choices[0].message.content or ""


def test_multiprocessing(engine: MLCEngine) -> None:
    """A process has an engine of its own."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        answers = pool.map(ask_in_a_process, [2, 3])
    assert "4" in answers[0]
    assert "5" in answers[1]


def test_pickle(engine: MLCEngine) -> None:
    """An engine does not travel to a process; the error says to make one there."""
    with pytest.raises((mlc_native.MLCNativeError, TypeError), match="process"):
        multiprocessing.reduction.ForkingPickler.dumps(engine)


def test_without_with() -> None:
    """An engine of a notebook is never closed explicitly."""
    engine = MLCEngine("demo")
    assert engine.generate(["a"], max_tokens=1)[0].error is None
    del engine


async def test_sync_engine_in_a_loop(engine: MLCEngine) -> None:
    """A notebook runs an event loop, and the synchronous engine works in its cells."""
    assert engine.generate(["a"], max_tokens=1)[0].error is None
