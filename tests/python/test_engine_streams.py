"""Aborted streams, many threads and event loops, and engines side by side, on the fake model."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from facades import USER, Answer, AsyncFacade, MakeModel, SyncFacade

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine
from mlc_native.errors import InvalidRequest
from mlc_native.protocol.generation_config import GenerationConfig

pytestmark = pytest.mark.both_step_kinds


SLOW = {"us_per_step": 2000, "cost": "sleep"}
LONG = {"max_tokens": 2000, "extra_body": {"ignore_eos": True}}


@pytest.fixture
def engine(make_model: MakeModel, fake_lib: str) -> Iterator[MLCEngine]:
    """A slow MLCEngine: its answers last long enough to interfere with."""
    with MLCEngine(make_model(**SLOW), model_lib=fake_lib, mode="server") as made:
        yield made


@pytest.fixture
async def async_engine(make_model: MakeModel, fake_lib: str) -> Any:
    async with AsyncMLCEngine(make_model(**SLOW), model_lib=fake_lib, mode="server") as made:
        yield made


# However a request is aborted, its consumer gets the final output.
def test_abort_ends_the_iterator(engine: MLCEngine) -> None:
    stream = engine.completions.create(prompt="abc", stream=True, request_id="r", **LONG)
    first = next(stream)
    assert first.choices[0].finish_reason is None
    engine.abort("r")
    rest = list(stream)
    assert rest[-1].choices[0].finish_reason == "abort"
    engine.abort("r")  # gone: ignored
    assert engine.metrics()["num_aborts"] == 1


async def test_async_abort_ends_the_iterator(async_engine: AsyncMLCEngine) -> None:
    stream = await async_engine.chat.completions.create(
        messages=USER, stream=True, request_id="r", **LONG
    )
    await anext(stream)
    await async_engine.abort("r")
    rest = [chunk async for chunk in stream]
    assert rest[-1].choices[0].finish_reason == "abort"


def test_closing_a_stream_aborts_its_request(engine: MLCEngine) -> None:
    stream = engine.completions.create(prompt="abc", stream=True, request_id="r", **LONG)
    next(stream)
    stream.close()
    assert engine.metrics()["num_running_requests"] == 0
    assert engine.metrics()["num_aborts"] == 1
    assert len(engine.state.bridge) == 0


def test_dropping_a_stream_aborts_its_request(engine: MLCEngine) -> None:
    stream = engine.completions.create(prompt="abc", stream=True, **LONG)
    next(stream)
    del stream
    assert engine.metrics()["num_running_requests"] == 0
    stream = engine.completions.create(prompt="abc", stream=True, **LONG)  # never started
    del stream
    assert engine.metrics()["num_running_requests"] == 0
    assert engine.metrics()["num_aborts"] == 2


async def test_cancelling_a_task_aborts_its_request(async_engine: AsyncMLCEngine) -> None:
    task = asyncio.create_task(async_engine.completions.create(prompt="abc", **LONG))
    while (await async_engine.metrics())["num_running_requests"] == 0:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    metrics = await async_engine.metrics()
    assert (metrics["num_running_requests"], metrics["num_aborts"]) == (0, 1)


async def test_leaving_an_async_stream_aborts_its_request(async_engine: AsyncMLCEngine) -> None:
    stream = await async_engine.completions.create(prompt="abc", stream=True, **LONG)
    async for _ in stream:
        break
    await stream.aclose()
    assert (await async_engine.metrics())["num_running_requests"] == 0


# The second caller is refused and nothing happens to the first.
def test_a_duplicate_id_leaves_the_first_alone(engine: MLCEngine) -> None:
    stream = engine.completions.create(
        prompt="abc", stream=True, request_id="r", max_tokens=30, extra_body={"ignore_eos": True}
    )
    next(stream)
    with pytest.raises(InvalidRequest, match='"r"') as error:
        engine.completions.create(prompt="abc", request_id="r")
    assert error.value.field == "request_id"
    assert list(stream)[-1].choices[0].finish_reason == "length"
    assert engine.completions.create(prompt="abc", request_id="r", max_tokens=1).id == "r"


# Whoever asks again until the id is free gets an answer of its own.
def test_an_id_that_was_given_up_comes_again(engine: MLCEngine) -> None:
    for _ in range(10):
        stream = engine.completions.create(prompt="abc", stream=True, request_id="r", **LONG)
        next(stream)
        stream.close()
        answer = None
        while answer is None:
            with contextlib.suppress(InvalidRequest):
                answer = engine.completions.create(
                    prompt="abc", request_id="r", max_tokens=2, extra_body={"ignore_eos": True}
                )
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 2


async def test_a_duplicate_async_id_leaves_the_first_alone(async_engine: AsyncMLCEngine) -> None:
    stream = await async_engine.completions.create(
        prompt="abc", stream=True, request_id="r", max_tokens=30, extra_body={"ignore_eos": True}
    )
    with pytest.raises(InvalidRequest):
        await async_engine.completions.create(prompt="abc", request_id="r")
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices[0].finish_reason == "length"


# W11
def test_metrics_during_a_stream_take_nothing_from_it(engine: MLCEngine) -> None:
    stream = engine.completions.create(prompt="abc", stream=True, max_tokens=20)
    texts = [next(stream).choices[0].text]
    assert engine.metrics()["num_running_requests"] == 1
    texts += [chunk.choices[0].text for chunk in stream]
    alone = engine.completions.create(prompt="abc", max_tokens=20)
    assert "".join(texts) == alone.choices[0].text


def test_many_threads_on_one_engine(make_model: MakeModel, fake_lib: str) -> None:
    with MLCEngine(make_model(), model_lib=fake_lib, mode="server") as engine:
        prompts = [f"prompt {i}" for i in range(32)]
        config = {"max_tokens": 40, "extra_body": {"ignore_eos": True}}
        expected = [engine.completions.create(prompt=p, **config).choices[0].text for p in prompts]
        results: dict[int, str] = {}

        def work(i: int) -> None:
            stream = engine.completions.create(prompt=prompts[i], stream=True, **config)
            results[i] = "".join(chunk.choices[0].text for chunk in stream)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert [results[i] for i in range(len(prompts))] == expected
        engine._debug_call_func_on_all_worker("audit_pages")


# W10
def test_one_engine_many_event_loops(make_model: MakeModel, fake_lib: str) -> None:
    engine = AsyncMLCEngine(make_model(), model_lib=fake_lib, mode="server")

    async def ask(prompt: str) -> str:
        chunks = await engine.completions.create(prompt=prompt, stream=True, max_tokens=20)
        return "".join([chunk.choices[0].text async for chunk in chunks])

    async def main() -> list[str]:
        return list(await asyncio.gather(*[ask(f"p{i}") for i in range(8)]))

    expected = asyncio.run(main())
    assert asyncio.run(main()) == expected  # a second loop, after the first was closed
    results: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: results.append(asyncio.run(main()))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == [expected] * 4
    engine.terminate()


def test_a_loop_that_closes_early_harms_no_request(make_model: MakeModel, fake_lib: str) -> None:
    engine = AsyncMLCEngine(make_model(**SLOW), model_lib=fake_lib, mode="server")
    kept: list[Any] = []

    async def abandon() -> None:
        stream = await engine.completions.create(prompt="abc", stream=True, **LONG)
        kept.append(stream._stream if hasattr(stream, "_stream") else stream)
        await anext(stream)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(abandon())
    loop.close()  # without shutdown_asyncgens: the stream is still there

    async def ask() -> Any:
        return await engine.completions.create(prompt="xyz", max_tokens=10)

    assert asyncio.run(ask()).usage.completion_tokens == 10
    while asyncio.run(engine.metrics())["num_running_requests"]:
        pass
    engine.terminate()


def test_engines_in_one_process_are_independent(make_model: MakeModel, fake_lib: str) -> None:
    first = MLCEngine(make_model(answer="first"), model_lib=fake_lib)
    second = MLCEngine(make_model(answer="second"), model_lib=fake_lib)
    streams = [
        e.completions.create(prompt="x", stream=True, request_id="same") for e in (first, second)
    ]
    texts = ["".join(c.choices[0].text for c in stream) for stream in streams]
    assert texts == ["first", "second"]
    first.terminate()
    assert second.completions.create(prompt="x").choices[0].text == "second"
    second.terminate()


def test_more_requests_than_fit_are_all_answered(make_model: MakeModel, fake_lib: str) -> None:
    config = EngineConfig(max_num_sequence=4, max_total_sequence_length=128)
    with MLCEngine(make_model(), model_lib=fake_lib, engine_config=config) as engine:
        arguments = {"max_tokens": 60, "extra_body": {"ignore_eos": True}}
        streams = [
            engine.completions.create(prompt=f"prompt {i}", stream=True, **arguments)
            for i in range(12)
        ]
        texts = ["".join(c.choices[0].text for c in stream) for stream in streams]
        for i in range(12):
            alone = engine.completions.create(prompt=f"prompt {i}", **arguments)
            assert alone.choices[0].text == texts[i]


@pytest.mark.parametrize("facade", [SyncFacade, AsyncFacade])
def test_terminate_ends_open_streams(facade: Any, make_model: MakeModel, fake_lib: str) -> None:
    made = facade(make_model(**SLOW), model_lib=fake_lib)
    answers: list[Answer] = []
    config = GenerationConfig(max_tokens=2000, debug_config={"ignore_eos": True})
    thread = threading.Thread(target=lambda: answers.append(made.generate("abc", config)))
    thread.start()
    while made.metrics()["num_running_requests"] == 0:
        pass
    made.engine.terminate()
    thread.join(60)
    assert not thread.is_alive()
    assert answers[0].finish_reasons == ["abort"]
    made.terminate()
