"""How requests share an engine: deadlines, priorities, the queue limit, aborting everything."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from facades import OPENAI_FACADES

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import InvalidConfig, InvalidRequest, QueueFull
from mlc_native.protocol.generation_config import GenerationConfig

MakeModel = Callable[..., str]
pytestmark = pytest.mark.both_step_kinds
SLOW = {"us_per_step": 2000, "cost": "sleep"}
# No answer of this length ends within a test.
LONG: dict[str, Any] = {"max_tokens": -1, "extra_body": {"ignore_eos": True}}


@pytest.fixture
def make_engine(make_model: MakeModel, fake_lib: str) -> Iterator[Callable[..., MLCEngine]]:
    made: list[MLCEngine] = []

    def make(**config: Any) -> MLCEngine:
        config = {"max_num_sequence": 1, **config}
        model = make_model(**SLOW, context_window_size=1 << 20)
        made.append(MLCEngine(model, model_lib=fake_lib, engine_config=EngineConfig(**config)))
        return made[-1]

    yield make
    for engine in made:
        engine.terminate()


def long_body(**fields: Any) -> dict[str, Any]:
    """Arguments of an endless request with extra fields."""
    return {"max_tokens": -1, "extra_body": {"ignore_eos": True, **fields}}


# ------------------------------------------------------------------------------------ deadlines


@pytest.mark.parametrize("facade", OPENAI_FACADES.values())
def test_a_total_deadline_keeps_what_there_is(
    facade: Any, make_model: MakeModel, fake_lib: str
) -> None:
    made = facade(make_model(**SLOW, context_window_size=1 << 20), model_lib=fake_lib)
    response = made.complete(prompt="abc", **long_body(timeout_s=0.2))
    assert response.choices[0].finish_reason == "timeout"
    assert response.usage.completion_tokens > 0
    chunks = made.chat(
        messages=[{"role": "user", "content": "x"}], stream=True, **long_body(timeout_s=0.1)
    )
    assert chunks[-1].choices[0].finish_reason == "timeout"
    assert made.metrics()["num_timeouts"] == 2
    assert made.metrics()["kv_pages_used"] == 0
    made.terminate()


def test_a_queue_deadline_is_for_the_start(make_engine: Callable[..., MLCEngine]) -> None:
    engine = make_engine()
    running = engine.completions.create(
        prompt="abc", stream=True, request_id="r", **long_body(queue_timeout_s=60)
    )
    next(running)
    late = engine.completions.create(prompt="abc", **long_body(queue_timeout_s=0.05))
    assert late.choices[0].finish_reason == "timeout"
    assert late.usage.completion_tokens == 0
    running.close()


def test_deadlines_of_the_engine(make_engine: Callable[..., MLCEngine]) -> None:
    engine = make_engine(timeout_s=0.1)
    response = engine.completions.create(prompt="abc", **LONG)
    assert response.choices[0].finish_reason == "timeout"
    response = engine.completions.create(
        prompt="abc", max_tokens=60, extra_body={"ignore_eos": True, "timeout_s": 60}
    )
    assert response.choices[0].finish_reason == "length"


@pytest.mark.parametrize("field", ["timeout_s", "queue_timeout_s"])
@pytest.mark.parametrize("value", [0, -1, 1e10, float("nan")])
def test_deadlines_out_of_range(
    make_engine: Callable[..., MLCEngine], field: str, value: float
) -> None:
    with pytest.raises(InvalidRequest, match=r"\(0, 1e9\] seconds") as error:
        make_engine().completions.create(prompt="abc", extra_body={field: value})
    assert error.value.field == field


def test_deadlines_of_the_engine_out_of_range(make_engine: Callable[..., MLCEngine]) -> None:
    with pytest.raises(InvalidConfig, match="timeout_s"):
        make_engine(timeout_s=0)


# ----------------------------------------------------------------------------------- priorities


def test_priorities_decide_who_is_next(make_model: MakeModel, fake_lib: str) -> None:
    order: list[str] = []

    def callback(outputs: list[Any]) -> None:
        order.extend(output.request_id for output in outputs if output.is_final)

    engine = SyncMLCEngine(
        make_model(),
        model_lib=fake_lib,
        engine_config=EngineConfig(max_num_sequence=1),
        request_stream_callback=callback,
    )
    for priority in ("low", "normal", "high"):
        config = GenerationConfig(max_tokens=2, priority=priority)  # type: ignore[arg-type]
        engine.add_request(engine.create_request(priority, "abc", config))
    while not engine.empty():
        engine.step()
    assert order == ["high", "normal", "low"]


def test_an_unknown_priority(make_engine: Callable[..., MLCEngine]) -> None:
    with pytest.raises(ValueError, match="'high', 'normal' or 'low'"):
        make_engine().completions.create(prompt="abc", extra_body={"priority": "urgent"})


# ---------------------------------------------------------------------------------- queue limit


def test_a_full_queue_refuses(make_engine: Callable[..., MLCEngine]) -> None:
    engine = make_engine(max_queue_length=2)
    running = engine.completions.create(prompt="abc", stream=True, **LONG)
    next(running)
    waiting = [engine.completions.create(prompt="abc", stream=True, **LONG) for _ in range(2)]
    with pytest.raises(QueueFull, match="2 requests wait") as error:
        engine.completions.create(prompt="abc")
    assert (error.value.queue_length, error.value.max_queue_length) == (2, 2)
    assert error.value.field == "max_queue_length"
    assert isinstance(error.value, InvalidRequest)
    metrics = engine.metrics()
    assert (metrics["queue_length"], metrics["num_queue_full"]) == (2, 1)
    assert "mlc_native_num_queue_full_total 1.0" in metrics.prometheus_text()
    waiting.pop().close()
    assert engine.metrics()["queue_length"] == 1
    waiting.append(engine.completions.create(prompt="abc", stream=True, **LONG))
    for stream in [running, *waiting]:
        stream.close()


async def test_a_full_queue_refuses_async_requests(make_model: MakeModel, fake_lib: str) -> None:
    config = EngineConfig(max_num_sequence=1, max_queue_length=1)
    model = make_model(**SLOW, context_window_size=1 << 20)
    async with AsyncMLCEngine(model, model_lib=fake_lib, engine_config=config) as engine:
        running = await engine.completions.create(prompt="abc", stream=True, **LONG)
        await anext(running)
        results = await asyncio.gather(
            *(engine.completions.create(prompt="abc", stream=True, **LONG) for _ in range(20)),
            return_exceptions=True,
        )
        assert sum(isinstance(result, QueueFull) for result in results) == 19
        await engine.abort_all()
        rest = [chunk async for chunk in running]
        assert rest[-1].choices[0].finish_reason == "abort"
        assert len(engine.state.bridge) <= 1


def test_the_limit_of_a_server(make_model: MakeModel, fake_lib: str) -> None:
    config = EngineConfig(max_num_sequence=3)
    with MLCEngine(make_model(), model_lib=fake_lib, mode="server", engine_config=config) as engine:
        assert engine.engine_config.max_queue_length == 48
    with MLCEngine(make_model(), model_lib=fake_lib) as engine:
        assert engine.engine_config.max_queue_length == -1


# ------------------------------------------------------------------------------------ abort all


def test_abort_all_ends_every_consumer(make_engine: Callable[..., MLCEngine]) -> None:
    engine = make_engine(max_num_sequence=2)
    reasons: list[Any] = []
    accepted = threading.Barrier(7)

    def consume() -> None:
        stream = engine.completions.create(prompt="abc", stream=True, **LONG)
        accepted.wait(60)
        reasons.append(list(stream)[-1].choices[0].finish_reason)

    threads = [threading.Thread(target=consume) for _ in range(6)]
    for thread in threads:
        thread.start()
    accepted.wait(60)
    engine.abort_all()
    for thread in threads:
        thread.join(60)
    assert reasons == ["abort"] * 6
    assert engine.completions.create(prompt="abc", max_tokens=2).usage is not None
    assert engine.metrics()["num_aborts"] == 6
    engine.abort_all()


def test_abort_all_of_the_sync_engine(make_model: MakeModel, fake_lib: str) -> None:
    finals: list[str] = []

    def callback(outputs: list[Any]) -> None:
        finals.extend(output.request_id for output in outputs if output.is_final)

    engine = SyncMLCEngine(make_model(), model_lib=fake_lib, request_stream_callback=callback)
    for i in range(3):
        engine.add_request(engine.create_request(str(i), "abc", GenerationConfig(max_tokens=9)))
    engine.step()
    engine.abort_all()
    assert sorted(finals) == ["0", "1", "2"]
    assert engine.empty()


# --------------------------------------------------------------------------------------- debug


@pytest.mark.parametrize("facade", OPENAI_FACADES.values())
def test_debug_functions(facade: Any, make_model: MakeModel, fake_lib: str) -> None:
    made = facade(make_model(), model_lib=fake_lib)
    call = made.engine._debug_call_func_on_all_worker
    assert '"requests":{}' in call("dump_state")
    assert '"kv_pool":' in call("memory_summary")
    call("profiler_start")
    made.complete(prompt="abc", max_tokens=3)
    assert '"forward":{"count":3,' in call("profiler_stop")
    with pytest.raises(InvalidRequest, match="audit_pages: ") as error:
        call("cuda_profiler_start")
    assert error.value.field == "name"
    made.terminate()


@pytest.mark.parametrize("facade", OPENAI_FACADES.values())
def test_metrics_as_a_special_request(facade: Any, make_model: MakeModel, fake_lib: str) -> None:
    made = facade(make_model(), model_lib=fake_lib)
    query = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "extra_body": {"debug_config": {"special_request": "query_engine_metrics"}},
    }
    (chunk,) = made.complete(prompt="x", **query)  # while nothing runs
    assert chunk.usage.extra["num_steps"] == 0
    made.complete(prompt="abc", max_tokens=4)
    (chunk,) = made.complete(prompt="x", **query)
    assert chunk.usage.extra["completion_tokens_sum"] == 4
    assert chunk.choices == []
    made.terminate()
