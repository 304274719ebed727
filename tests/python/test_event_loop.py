"""AsyncMLCEngine as a good guest of an event loop: where errors arrive, and what runs elsewhere."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from mlc_native import AsyncMLCEngine, InvalidConfig, InvalidRequest, MLCEngine
from mlc_native.conversation import ChatTemplate
from mlc_native.errors import EngineTerminatedError, UnknownFieldWarning
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve import openai_engine
from mlc_native.serve.responses import ChatResponder
from mlc_native.serve.work_threads import WorkThreads, outcome_of
from mlc_native.tokenizers import Tokenizer

MakeModel = Callable[..., str]
USER = {"role": "user", "content": "hi"}
SLOW = {"us_per_step": 2000, "cost": "sleep"}
ENDLESS: dict[str, Any] = {"max_tokens": -1, "ignore_eos": True}


@pytest.fixture
async def engine(make_model: MakeModel, fake_lib: str) -> Any:
    caps = {"max_messages": 1 << 20, "max_logit_bias": 1 << 20}  # large requests are validated
    async with AsyncMLCEngine(make_model(answer="Hi"), model_lib=fake_lib, **caps) as made:
        yield made


# ------------------------------------------------------------------------------- errors, streams


async def test_create_is_a_coroutine_function(engine: AsyncMLCEngine) -> None:
    for function in (
        engine.chat.completions.create,
        engine.chat.completions.create_from,
        engine.completions.create,
        engine.completions.create_from,
        engine.generate,
    ):
        assert inspect.iscoroutinefunction(function)


async def test_errors_arrive_at_the_await(engine: AsyncMLCEngine) -> None:
    create: Any = engine.chat.completions.create
    calls = [create(messages=[USER], n="many"), create(messages=[USER]), create(mesages=[USER])]
    wrong, right, unknown = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(wrong, InvalidRequest)
    assert wrong.field == "n"
    assert right.choices[0].message.content == "Hi"
    assert isinstance(unknown, TypeError)


async def test_a_stream_is_a_context_manager(make_model: MakeModel, fake_lib: str) -> None:
    async with AsyncMLCEngine(make_model(**SLOW), model_lib=fake_lib) as engine:
        for close in ("aclose", "close"):
            async with await engine.completions.create(
                prompt="x", stream=True, **ENDLESS
            ) as chunks:
                await anext(chunks)
                await getattr(chunks, close)()
                assert [chunk async for chunk in chunks] == []
        assert (await engine.metrics())["num_aborts"] == 2
        assert len(engine.state.bridge) == 0


async def test_a_stream_belongs_to_one_task(make_model: MakeModel, fake_lib: str) -> None:
    """A second task that reads is refused. Closing ends the iteration of the first."""
    async with AsyncMLCEngine(make_model(**SLOW), model_lib=fake_lib) as engine:
        chunks = await engine.completions.create(prompt="x", stream=True, **ENDLESS)

        async def read() -> None:
            async for _ in chunks:
                pass

        reader = asyncio.create_task(read())
        await asyncio.sleep(0)  # it waits now
        with pytest.raises(RuntimeError, match="one task at a time"):
            await anext(chunks)
        assert not reader.done()
        await chunks.aclose()
        await asyncio.wait_for(reader, 30)
        assert len(engine.state.bridge) == 0


def test_closing_a_stream_ends_a_thread_that_reads(make_model: MakeModel, fake_lib: str) -> None:
    with MLCEngine(make_model(**SLOW), model_lib=fake_lib) as engine:
        chunks = engine.completions.create(prompt="x", stream=True, **ENDLESS)
        reader = threading.Thread(target=list, args=(chunks,), daemon=True)
        reader.start()
        chunks.close()
        reader.join(30)
        assert not reader.is_alive()


def test_a_stream_of_a_thread_is_a_context_manager(make_model: MakeModel, fake_lib: str) -> None:
    with MLCEngine(make_model(**SLOW), model_lib=fake_lib) as engine:
        with engine.completions.create(prompt="x", stream=True, **ENDLESS) as chunks:
            next(chunks)
        assert list(chunks) == []
        assert engine.metrics()["num_aborts"] == 1
        assert len(engine.state.bridge) == 0


@pytest.mark.parametrize("n", [1, 3])
async def test_a_chunk_has_one_choice(engine: AsyncMLCEngine, n: int) -> None:
    usage = {"include_usage": True}
    chunks = await engine.chat.completions.create(
        messages=[USER], n=n, stream=True, stream_options=usage
    )
    *deltas, last = [chunk async for chunk in chunks]
    assert {len(chunk.choices) for chunk in deltas} == {1}
    assert {chunk.choices[0].index for chunk in deltas} == set(range(n))
    assert last.choices == []


# --------------------------------------------------------------------------------- other threads

HEAVY: list[tuple[Any, str]] = [
    (openai_engine, "validated"),
    (ChatTemplate, "render"),
    (Tokenizer, "encode"),
    (GenerationConfig, "apply_to"),
    (ChatResponder, "response"),
]


class NoExecutor(ThreadPoolExecutor):
    """A default executor of a loop that an engine must leave alone."""

    def submit(self, *_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("asyncio's default executor was used")


@pytest.fixture
def ran_on(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[threading.Thread]]:
    """The threads that each heavy function ran on."""
    threads: dict[str, set[threading.Thread]] = {name: set() for _, name in HEAVY}
    for owner, name in HEAVY:
        original = getattr(owner, name)

        def record(*args: Any, _name: str = name, _original: Any = original, **kwargs: Any) -> Any:
            threads[_name].add(threading.current_thread())
            return _original(*args, **kwargs)

        monkeypatch.setattr(owner, name, record)
    return threads


async def test_preparing_a_request_leaves_the_loop_alone(
    engine: AsyncMLCEngine, ran_on: dict[str, set[threading.Thread]]
) -> None:
    loop = asyncio.get_running_loop()
    executor = NoExecutor()
    loop.set_default_executor(executor)
    await engine.chat.completions.create(messages=[USER])
    stream = await engine.chat.completions.create_from({"messages": [USER], "stream": True})
    assert [chunk async for chunk in stream]
    for name, threads in ran_on.items():
        assert threads, f"{name} did not run"
        assert threading.current_thread() not in threads, f"{name} ran on the loop's thread"
    with pytest.raises(InvalidRequest):
        await engine.completions.create(prompt="")
    await engine.metrics()
    await engine.unpin_prefix(await engine.pin_prefix("abc"))
    assert (await engine.generate(["a", [USER]]))[1].text == "Hi"
    await engine.abort_all()
    for threads in ran_on.values():
        assert threading.current_thread() not in threads


@pytest.mark.parametrize(
    "arguments",
    [
        {"messages": [USER] * 100_000},
        {"messages": [USER], "logit_bias": dict.fromkeys(range(1_000_000), 0.5)},
        {"messages": [{"role": "user", "content": "x" * 300_000}]},
    ],
    ids=["messages", "logit_bias", "text"],
)
async def test_large_requests_leave_the_loop_alone(
    engine: AsyncMLCEngine, ran_on: dict[str, set[threading.Thread]], arguments: Any
) -> None:
    with pytest.raises(InvalidRequest):  # too long, or ids out of range
        await engine.chat.completions.create(**arguments)
    assert ran_on["validated"]
    for threads in ran_on.values():
        assert threading.current_thread() not in threads


async def test_the_loop_goes_on_while_a_request_is_prepared(
    engine: AsyncMLCEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    render = ChatTemplate.render

    def slow_render(*args: Any, **kwargs: Any) -> str:
        entered.set()
        assert go_on.wait(60)
        return render(*args, **kwargs)

    monkeypatch.setattr(ChatTemplate, "render", slow_render)
    task = asyncio.create_task(engine.chat.completions.create(messages=[USER]))
    while not entered.is_set():
        await asyncio.sleep(0)
    assert (await engine.completions.create(prompt="x")).choices[0].text == "Hi"
    assert not task.done()
    go_on.set()
    assert (await task).choices[0].message.content == "Hi"


async def test_a_load_and_an_end_leave_the_loop_alone(
    make_model: MakeModel, fake_lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    terminated = threading.Event()
    load, terminate = AsyncMLCEngine._load, AsyncMLCEngine.terminate

    def spied_load(self: Any, *arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return load(self, *arguments)

    def spied_terminate(self: Any) -> None:
        threads.append(threading.current_thread())
        terminate(self)
        terminated.set()

    monkeypatch.setattr(AsyncMLCEngine, "_load", spied_load)
    monkeypatch.setattr(AsyncMLCEngine, "terminate", spied_terminate)
    arguments = {"model_lib": fake_lib, "max_num_sequence": 2}
    engine = await AsyncMLCEngine.create(make_model(answer="Hi"), **arguments)
    assert engine.engine_config.max_num_sequence == 2
    assert (await engine.completions.create(prompt="x")).choices[0].text == "Hi"
    await engine.aclose()
    await engine.aclose()
    async with engine:
        pass
    with pytest.raises(InvalidConfig):
        await AsyncMLCEngine.create(make_model(), model_lib=fake_lib, mode="fast")  # type: ignore
    terminated.clear()
    task = asyncio.create_task(AsyncMLCEngine.create(make_model(), model_lib=fake_lib))
    await asyncio.sleep(0)  # the load has begun
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert terminated.wait(120)
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("n", [1, 2])
async def test_answers_that_the_end_of_the_engine_cuts(
    make_model: MakeModel, fake_lib: str, n: int
) -> None:
    engine = AsyncMLCEngine(make_model(answer="Hi", **SLOW), model_lib=fake_lib)
    create = engine.chat.completions.create
    whole = asyncio.create_task(create(messages=[USER], n=n, **ENDLESS))
    stream = await create(messages=[USER], n=n, stream=True, **ENDLESS)
    while (await engine.metrics())["num_running_requests"] < 2:
        pass
    engine.terminate()  # the loop gets the last outputs when there are no threads any more
    assert [choice.finish_reason for choice in (await whole).choices] == ["abort"] * n
    chunks = [chunk async for chunk in stream]
    assert sum(chunk.choices[0].finish_reason == "abort" for chunk in chunks) == n


async def test_cancelling_while_a_request_is_prepared(
    engine: AsyncMLCEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    render = ChatTemplate.render

    def slow_render(*args: Any, **kwargs: Any) -> str:
        entered.set()
        assert go_on.wait(60)
        return render(*args, **kwargs)

    monkeypatch.setattr(ChatTemplate, "render", slow_render)
    task = asyncio.create_task(engine.chat.completions.create(messages=[USER]))
    while not entered.is_set():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    monkeypatch.undo()
    await engine.chat.completions.create(messages=[USER])
    metrics = await engine.metrics()
    assert metrics["num_running_requests"] == metrics["num_waiting_requests"] == 0
    assert len(engine.state.bridge) == 0


# ------------------------------------------------------------------------------------------ bodies


class ClosesMeanwhile(asyncio.SelectorEventLoop):
    """A loop that is closed just when another thread has seen it open and is about to call it."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = threading.Event()

    def _closes(self) -> bool:
        elsewhere = threading.current_thread() is not threading.main_thread()
        return elsewhere and self.closed.wait(60)

    def is_closed(self) -> bool:
        return False if self._closes() else super().is_closed()

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> Any:
        self._closes()
        return super().call_soon_threadsafe(*args, **kwargs)

    def close(self) -> None:
        super().close()
        self.closed.set()

    def __del__(self) -> None:
        """Asyncio's asks whether it is closed, on whatever thread."""


def test_a_loop_may_be_closed_while_work_ends(caplog: pytest.LogCaptureFixture) -> None:
    """As Ctrl-C does in ``asyncio.run``: that nothing waits any more is no error to report."""
    threads = WorkThreads()
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        ended.wait(60)

    async def interrupted() -> None:
        task = asyncio.create_task(threads.run(work))
        while not begun.is_set():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ended.set()

    with asyncio.Runner(loop_factory=ClosesMeanwhile) as runner:
        runner.run(interrupted())
    pools = threads._pools
    threads.close()
    for pool in pools:
        pool.shutdown()  # waits for the threads
    assert caplog.records == []


async def test_a_thread_that_cannot_be_started_is_no_end_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error of the system is the caller's to see; the next call may find a thread."""
    threads = WorkThreads()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await threads.run(int)
    assert await threads.run(int) == 0
    threads.close()
    with pytest.raises(EngineTerminatedError):
        await threads.run(int)


async def test_work_that_has_not_begun_is_cancelled() -> None:
    work: Future[int] = Future()
    task = asyncio.create_task(outcome_of(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cancelled()


async def test_a_body_passes_as_it_is(engine: AsyncMLCEngine) -> None:
    body = {"model": "gpt", "messages": [USER], "store": False, "metadata": {}, "stream": False}
    create_from: Any = engine.chat.completions.create_from
    with pytest.warns(UnknownFieldWarning) as warned:
        response = await create_from(body)
    names = [str(warning.message) for warning in warned]
    assert len(names) == 2
    assert '"store"' in names[0]
    assert '"metadata"' in names[1]
    assert (response.model, response.choices[0].message.content) == ("gpt", "Hi")
    await create_from(body)  # each name once: pytest makes other warnings errors
    for wrong in (None, [], "x"):
        with pytest.raises(InvalidRequest) as error:
            await create_from(wrong)
        assert error.value.field == "body"
